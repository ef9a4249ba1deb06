"""``examples/study/full_scale.sh``: the commands that it gives, and the checkpoints it picks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from tandem_plugin.cli import app

STUDY = Path(__file__).parents[1] / "examples" / "study"
RECORDER = """#!{python}
import json, os, sys
with open({record!r}, "a") as file:
    file.write(json.dumps([os.path.basename(sys.argv[0]), *sys.argv[1:]]) + "\\n")
if sys.argv[1:2] == ["path"]:
    print("/rewards.py")
elif sys.argv[1:2] != ["-m"] and sys.argv[0].endswith("python"):
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
"""


DIFFERING = {
    "data.seed",
    "actor_rollout_ref.actor.data_loader_seed",
    "actor_rollout_ref.actor.use_kl_loss",
    "actor_rollout_ref.actor.kl_loss_coef",
    "actor_rollout_ref.actor.kl_loss_type",
    "trainer.default_local_dir",
    "trainer.rollout_data_dir",
    "trainer.validation_data_dir",
    "trainer.experiment_name",
}


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a part of the script with `tandem` and verl recorded and not run; what was called."""
    record, tools = tmp_path / "record.jsonl", tmp_path / "tools"
    tools.mkdir()
    for name in ("tandem", "python"):
        tool = tools / name
        tool.write_text(RECORDER.format(python=sys.executable, record=str(record)))
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("OUT", str(tmp_path / "out"))
    repository = str(STUDY.parents[1])
    monkeypatch.setenv("PYTHONPATH", f"{repository}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")

    def run(part: str, **environment: str) -> list[list[str]]:
        record.unlink(missing_ok=True)
        done = subprocess.run(
            [str(STUDY / "full_scale.sh"), part],
            env=os.environ | environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        lines = record.read_text().splitlines() if record.exists() else []
        calls = [json.loads(line) for line in lines]
        own = (["path"], ["-c"])  # what the script asks about for itself
        return [c for c in calls if c[1:2] not in own and "keep_seniors" not in c[1]]

    return run


def parsed(call: list[str]) -> dict[str, Any]:
    """The options of a recorded `tandem` command, as the command itself reads them."""
    command: Any = get_command(app)
    context, words = None, call[1:]
    while hasattr(command, "commands"):
        name = words.pop(0)
        command = command.commands[name]
    context = command.make_context(call[1], words)
    return dict(context.params)


def overrides(call: list[str]) -> dict[str, str]:
    """The overrides of a recorded run of verl; later ones win."""
    assert call[:3] == ["python", "-m", "verl.trainer.main_ppo"]
    return {name.lstrip("+"): value for name, _, value in (one.partition("=") for one in call[3:])}


def write_seniors(out: Path, run: str, accuracies: dict[int, float], name: str) -> None:
    """What the recipe's run leaves: the validations of its log, and the seniors of their steps."""
    folder = out / "trainings" / run
    for step in accuracies:
        (folder / "seniors" / f"step_{step}").mkdir(parents=True)
    lines = [f"step:{s} - {name}/deepscaler/acc/mean@4:{a}\n" for s, a in accuracies.items()]
    (folder / "train.log").write_text("".join(lines))


def test_runs_differ_in_method_and_seed_alone(recorded: Any, tmp_path: Path):
    calls = recorded("train", SEEDS="1 2", GPUS="1")
    runs = {Path(o["trainer.default_local_dir"]).parent.name: o for o in map(overrides, calls)}
    assert sorted(runs) == ["GRPO-1", "GRPO-2", "KL-Reg-1", "KL-Reg-2", "TRL-1", "TRL-2"]
    tandem = "actor_rollout_ref.rollout.engine_kwargs.vllm.additional_config.tandem"
    for name, found in runs.items():
        method, _, seed = name.rpartition("-")
        assert found["data.seed"] == found["actor_rollout_ref.actor.data_loader_seed"] == seed
        assert (found.get(f"{tandem}.schedule") == "word") is (method == "TRL")
        assert (found["actor_rollout_ref.actor.use_kl_loss"] == "True") is (method == "KL-Reg")
        assert "hf_model" in found["actor_rollout_ref.actor.checkpoint.save_contents"]
        assert found["data.train_files"] == str(tmp_path / "out" / "data" / "train.parquet")
        assert found["trainer.test_freq"] == found["trainer.save_freq"]
    same = [
        {k: v for k, v in found.items() if k not in DIFFERING and tandem not in k}
        for found in runs.values()
    ]
    assert all(one == same[0] for one in same)


def write_runs(out: Path) -> None:
    write_seniors(out, "GRPO-1", {10: 0.25, 20: 0.5, 30: 0.5}, "val-core")
    write_seniors(out, "KL-Reg-1", {10: 0.5, 20: 0.25}, "val-core")
    write_seniors(out, "TRL-1", {10: 0.25, 20: 0.125, 30: 0.75}, "team/val-core")


def test_training_that_is_done_is_not_repeated(recorded: Any, tmp_path: Path):
    write_runs(tmp_path / "out")
    (tmp_path / "out/trainings/GRPO-1/done").write_text("250\n")
    names = [overrides(call)["trainer.experiment_name"] for call in recorded("train")]
    assert names == ["KL-Reg-1", "TRL-1"]
    assert recorded("train") == []
    longer = recorded("train", STEPS="300")
    assert [overrides(call)["trainer.total_training_steps"] for call in longer] == ["300"] * 3


def test_every_senior_is_evaluated_at_its_best_validation(recorded: Any, tmp_path: Path):
    out = tmp_path / "out"
    write_runs(out)
    recorded("train")
    calls = recorded("evaluate", AMC="amc.jsonl")
    assert [call[:3] for call in calls] == [
        ["tandem", "eval", "all"],
        *[["tandem", "eval", kind] for _ in range(2) for kind in ("handoff", "legibility")],
    ]
    whole = parsed(calls[0])
    chosen = dict(one.split("=") for one in whole["senior"])
    steps = {name: Path(path).resolve().name for name, path in chosen.items() if name != "base"}
    assert steps == {"GRPO-1": "step_20", "KL-Reg-1": "step_10", "TRL-1": "step_30"}
    assert whole["junior"] == ["base=Qwen/Qwen3-4B-Instruct-2507"]
    assert whole["benchmark"] == ["AMC=amc.jsonl", "AIME=aime24-26", "Minerva=minerva"]
    assert (whole["samples"], whole["team_samples"], whole["temperature"]) == (32, 8, 0.6)
    others = [parsed(call)["junior"] for call in calls[1:]]
    assert others == [[f"Qwen/Qwen3-{size}B"] for size in ("0.6", "0.6", "1.7", "1.7")]


def test_evaluation_stops_where_a_run_has_left_no_senior(recorded: Any):
    with pytest.raises(AssertionError, match=r"GRPO-1/senior is not there: train GRPO-1"):
        recorded("evaluate")


def test_tables_pool_seeds_where_there_are_several(recorded: Any, tmp_path: Path):
    compared, reported = [parsed(call) for call in recorded("tables", SEEDS="1 2")]
    pools = ["GRPO=GRPO-1,GRPO-2", "KL-Reg=KL-Reg-1,KL-Reg-2", "TRL=TRL-1,TRL-2"]
    assert compared["pool"] == reported["pool"] == pools
    assert [path.name for path in compared["results"]][-1] == "TRL-2"
    assert len(compared["results"]) == len(reported["order"]) == 7
    assert reported["log"][0] == f"GRPO-1={tmp_path}/out/trainings/GRPO-1/train.log"
    (single, _) = [parsed(call) for call in recorded("tables")]
    assert not single["pool"]


def test_problems_are_prepared_for_verl_with_some_held_out(recorded: Any):
    (prepared,) = [parsed(call) for call in recorded("prepare")]
    assert (prepared["source"], prepared["heldout"]) == ("deepscaler", 256)
