"""``tandem train``: what it says before it starts, and that it starts nothing that is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from made_runs import made_run
from refused import refused
from typer.testing import CliRunner

from tandem_plugin.cli import app
from tandem_plugin.lab.commands import train
from tandem_plugin.lab.recipes import verl
from tandem_plugin.lab.recipes.run import Command, Run
from tandem_plugin.patching import versions

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

TANDEM = "+actor_rollout_ref.rollout.engine_kwargs.vllm.additional_config.tandem"

LEAVES = """
import os, sys
from pathlib import Path
out = Path(sys.argv[1])
place = out / "seniors" / "step_2"
place.mkdir(parents=True, exist_ok=True)
(out / "rollouts").mkdir(exist_ok=True)
(out / "rollouts" / "1.jsonl").touch()
print("trained")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe's folder with problems and a model; verl is a program that leaves a senior."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    for name in (*train_variables(), "RAY_ADDRESS", "TANDEM_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    rows = [{"problem": f"What is {i} and 1?", "answer": str(i + 1)} for i in range(12)]
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "recipe.yaml").write_text(
        "trainer: verl\nmodel: model\nproblems: mine.jsonl\nheldout: 2\nsteps: 2\ndevice: cpu\n"
    )
    monkeypatch.setattr(versions, "installed_version", lambda name: "0.9.1")
    plays(monkeypatch, LEAVES)
    return tmp_path


def train_variables() -> list[str]:
    from tandem_plugin.lab.recipes.settings import _FORMER

    return list(_FORMER)


def plays(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    def command(run: Run) -> Command:
        return Command((sys.executable, "-c", program, str(run.out)))

    monkeypatch.setattr(verl, "command", command)


def invoke(*arguments: str, own: tuple[str, ...] = ()) -> Any:
    whole = ["train", *arguments, *(["--", *own] if own else [])]
    before = sys.argv
    sys.argv = ["tandem", *whole]
    try:
        return CliRunner().invoke(app, whole)
    finally:
        sys.argv = before


def test_run_is_described_prepared_started_and_ended(folder: Path) -> None:
    done = invoke()
    assert done.exit_code == 0, done.output
    said = done.stdout
    for part in (
        "verl 0.9.1, tandem-plugin",
        "tandem, protocol paper",
        f"{folder / 'model'} (",
        "the senior's own start",
        "mine: 10 rows, checksum",
        ", 2 held out",
        "2 x 16 prompts x 8 samples x 512 tokens",
        "CPU",
        f"{folder / 'runs' / 'verl' / 'tandem'}",
        "learning_rate 1.0e-06",  # not in the file
        "max_response 512 (3000)",  # not the paper's
    ):
        assert part in said, part
    assert said.splitlines()[-1].startswith("Done after 0 min ")
    assert "tandem view" in said
    out = folder / "runs" / "verl" / "tandem"
    assert (out / "done").read_text() == "2\n"
    assert (out / "senior").resolve() == out / "seniors" / "step_2"
    assert (out / "train.log").read_text() == "trained\n"


def test_same_command_again_says_that_it_is_done(folder: Path) -> None:
    assert invoke().exit_code == 0
    again = invoke()
    assert again.exit_code == 0
    assert "has all of its 2 steps" in again.stdout
    assert (folder / "runs" / "verl" / "tandem" / "train.log").read_text() == "trained\n"
    fewer = invoke("--set", "steps=1")
    assert (fewer.exit_code, "run-has-more-steps" in fewer.stderr) == (1, True)
    other = invoke("--set", "learning_rate=1e-5")
    assert other.exit_code == 1
    assert "learning_rate: 1e-06 there, 1e-05 here" in other.stderr


def test_last_line_of_a_failure_is_ours(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plays(
        monkeypatch,
        "import sys\nprint('ConfigError: it cannot be')\n"
        "print('subprocess.CalledProcessError: Command ' + 2000 * 'x')\nsys.exit(7)",
    )
    done = invoke()
    assert done.exit_code == 1
    log = folder / "runs" / "verl" / "tandem" / "train.log"
    last = done.stderr.splitlines()[-1]
    assert last.startswith("Error: verl ended with exit code 7 after 0 min ")
    assert last.endswith(f"ConfigError: it cannot be Log: {log}")
    assert "it cannot be" in log.read_text()


def test_error_that_a_trainer_only_logged_is_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As OpenRLHF does with a reward that raises."""
    reward = "mine.py:f returned None for the row 'two?'. Return a number. [reward-not-number]"
    for last, said in {
        "TypeError: no reward": f"TypeError: no reward Before it: INFO {reward} Log: ",
        f"GradingError: {reward}": f". GradingError: {reward} Log: ",
        "no words": f". Before it: INFO {reward} Log: ",
    }.items():
        plays(monkeypatch, f"print({f'INFO {reward}'!r}); print({last!r}); raise SystemExit(1)")
        assert said in invoke().stderr.splitlines()[-1]
    plays(monkeypatch, "print('a pool [default-pool]'); raise SystemExit(1)")
    assert "Before it" not in invoke().stderr


def test_trainer_that_ends_without_a_senior_is_no_success(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plays(monkeypatch, "pass")
    done = invoke()
    assert (done.exit_code, "run-without-seniors" in done.stderr) == (1, True)
    assert not (folder / "runs" / "verl" / "tandem" / "done").exists()


@pytest.mark.parametrize(
    ("arguments", "own", "code"),
    [
        (["--set", "model=./nowhere"], (), "model-missing"),
        (["--set", "model=~/nowhere"], (), "model-missing"),
        (["--set", "model=models/qwen/x"], (), "model-missing"),
        (["--set", "model=models/qwen"], (), "model-missing"),  # owner/name, but models is a folder
        (["--set", "junior=models/qwen"], (), "model-missing"),
        (["--set", "train=~/nowhere.parquet", "--set", "problems=null"], (), "recipe-file-missing"),
        (["--set", "map=~/nowhere.py:row"], (), "recipe-file-missing"),
        (["~/nowhere/recipe.yaml"], (), "recipe-missing"),
        (["--set", "tandem.pp=0.7"], (), "setting-unknown"),
        ([], (f"{TANDEM}.pp=0.7",), "recipe-argument-contradicts"),
        (["--set", "version=9.9.9"], (), "recipe-version-differs"),
        (["--set", "junior=./nowhere"], (), "model-missing"),
        (["--set", "problems=nowhere.jsonl"], (), "recipe-file-missing"),
        (["--set", "reward=nowhere.py:score"], (), "recipe-file-missing"),
        (["--set", "reward=score"], (), "recipe-reward-form"),
        (["--set", "step=20"], (), "recipe-setting-unknown"),
        (["other.yaml"], (), "recipe-missing"),
        (["recipe.yaml", "trainer.test_freq=2"], (), "recipe-arguments-misplaced"),
        ([], ("trainer.total_training_steps=9",), "recipe-argument-contradicts"),
        (["--set", "heldout=12"], (), "heldout-too-many"),
        (["--set", "out=mine.jsonl/run"], (), "file-unwritable"),
    ],
)
def test_nothing_starts_that_is_wrong(
    arguments: list[str], own: tuple[str, ...], code: str, folder: Path
) -> None:
    (folder / "models").mkdir()
    done = invoke(*arguments, own=own)
    assert done.exit_code == 1, done.output
    assert f"[{code}]" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (folder / "runs").exists() or not list((folder / "runs").rglob("train.log"))


def test_variable_that_a_recipe_does_not_read_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, setting in {"STEPS": "steps", "DATA": "problems", "RESPONSE": "max_response"}.items():
        monkeypatch.setenv(name, "20")
        for mode in ([], ["--print"], ["--prepare"], ["--dry-run"]):
            said = invoke(*mode).stderr
            assert f"Warning: {name}=20 is set in the environment" in said
            assert f"--set {setting}=" in said
    assert "2 x 16 prompts" in invoke("--prepare").stdout  # as the file has it
    monkeypatch.setenv("TANDEM_CONFIG", '{"p": 0.9}')
    for mode in ([], ["--print"], ["--dry-run"]):
        assert "[recipe-tandem-variable]" in invoke(*mode).stderr


def test_trainer_that_is_not_installed_is_said_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "installed_version", lambda name: None)
    done = invoke()
    assert done.exit_code == 1
    assert "[trainer-not-installed]" in done.stderr
    assert not (folder / "data").exists()


@pytest.mark.parametrize(
    ("shown", "gpus", "own", "environment", "starts"),
    [
        (0, 1, (), {}, False),
        (1, 2, (), {}, False),
        (1, 1, (), {}, True),
        (8, 2, (), {}, True),
        (None, 1, (), {}, True),
        (0, 1, (), {"RAY_ADDRESS": "auto"}, True),
        (0, 1, (), {"RAY_TMPDIR": "started"}, True),
        (1, 2, ("trainer.nnodes=2",), {}, True),
    ],
)
def test_missing_gpus_are_said_at_once(
    shown: int | None, gpus: int, own: tuple[str, ...], environment: dict[str, str], starts: bool,
    folder: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Ray would wait for them for ever."""
    monkeypatch.setattr(train, "visible_gpus", lambda: shown)
    cluster = folder / "started" / "ray" / "ray_current_cluster"  # as ``ray start`` writes it
    cluster.parent.mkdir(parents=True)
    cluster.touch()
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    done = invoke("--set", "device=gpu", "--set", f"gpus={gpus}", own=own)
    assert (done.exit_code == 0) is starts, done.output
    if not starts:
        assert f"This machine shows {shown} GPUs, and the run needs {gpus}." in done.stderr
        assert "--set device=cpu" in done.stderr
        assert "[recipe-gpus-missing]" in done.stderr


@pytest.mark.parametrize(
    ("vllm", "shown", "starts"),
    [("0.29.0", 0, False), ("0.29.0", 1, True), ("0.29.0+cpu", 0, True), (None, 0, True)],
)
def test_vllm_for_gpus_is_said_before_a_run_on_the_cpu(
    vllm: str | None, shown: int, starts: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(name: str) -> str:
        if name != "vllm" or vllm is None:
            raise versions.PackageNotFoundError(name)
        return vllm

    monkeypatch.undo()
    monkeypatch.setattr(versions, "version", version)
    monkeypatch.setattr(train, "visible_gpus", lambda: shown)
    run = made_run("verl", folder, device="cpu", gpus=1)
    with nullcontext() if starts else refused("recipe-vllm-for-gpus", version=vllm, trainer="verl"):
        train.check_gpus(run, {"RAY_TMPDIR": str(folder)})


def test_hidden_gpus_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert train.visible_gpus() == 0


def test_print_and_prepare_start_nothing(folder: Path) -> None:
    printed = invoke("--print", "--set", "steps=1", own=("an.argument=a b",))
    assert printed.exit_code == 0
    lines = printed.stdout.splitlines()
    assert lines[0] == f"cd {folder}"
    assert lines[1] == "tandem train recipe.yaml --prepare --set steps=1 -- 'an.argument=a b'"
    assert not (folder / "data").exists()
    assert not (folder / "runs").exists()
    assert invoke("--prepare").exit_code == 0
    assert list((folder / "data").glob("mine-*/train.parquet"))
    assert not (folder / "runs" / "verl" / "tandem" / "train.log").exists()


def test_dry_run_says_what_the_trainer_says(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plays(monkeypatch, "import sys; sys.exit('--cfg' not in sys.argv)")
    done = invoke("--dry-run")
    assert done.exit_code == 0, done.output
    assert "verl reads its command" in done.stdout
    plays(monkeypatch, "import sys; sys.exit('No such key')")
    wrong = invoke("--dry-run")
    assert wrong.exit_code == 1
    assert "verl does not accept its command: No such key. " in wrong.stderr
    assert "[recipe-dry-run-failed]" in wrong.stderr


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("", ""),
        ("Traceback (most recent call last):\n  File x\nValueError: no\n", "ValueError: no"),
        (
            "usage: a.py [-h]\n[--x X]\na.py: error: unrecognized arguments: --y 1\n",
            "a.py: error: unrecognized arguments: --y 1",
        ),
        ("WARNING:2026-11-29 Platform 'nvidia' is registered\nNo such key\n", "No such key"),
        (
            "Could not override 'a.b'.\nKey 'b' is not in struct\n\n"
            "Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.\n",
            "Could not override 'a.b'. Key 'b' is not in struct",
        ),
        ("Traceback (most recent call last):\nE: " + 999 * "x", "E: " + 297 * "x"),
    ],
)
def test_reason_of_a_dry_run_is_a_line(said: str, reason: str) -> None:
    assert train._reason(said) == reason


def test_relative_paths_are_from_the_recipes_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    assert invoke("../recipe.yaml").exit_code == 0
    assert (folder / "runs" / "verl" / "tandem" / "done").exists()
    assert invoke("..").exit_code == 0  # the folder of a recipe


def test_home_is_found_in_every_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder))
    (folder / "mine.py").write_text(
        "def score(response, problem):\n    return 1.0\n\n\ndef row(record):\n    return record\n"
    )
    settings = {
        "model": "~/model",
        "junior": "~/model",
        "problems": "~/mine.jsonl",
        "map": "~/mine.py:row",
        "reward": "~/mine.py:score",
        "out": "~/x/run",
    }
    sets = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    monkeypatch.chdir("/")
    done = invoke("~/recipe.yaml", *sets)
    assert done.exit_code == 0, done.output
    assert (folder / "x" / "run" / "done").exists()
    own = ["problems=null", "train=~/data.parquet", "validation=~/data.parquet", "out=~/y"]
    (folder / "data.parquet").touch()
    assert invoke("~/", *(p for text in own for p in ("--set", text))).exit_code == 0
    assert not (folder / "~").exists()


def test_model_of_a_removed_line_is_said_before_the_start(folder: Path) -> None:
    recipe = folder / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("steps: 2\n", ""))
    said = invoke("--prepare", "--set", "model=model").stdout
    (line,) = [line for line in said.splitlines() if line.startswith("not in the file")]
    assert "steps 100" in line
    assert "method tandem" in line


def test_folder_of_a_recipe_may_have_any_name(tmp_path: Path, folder: Path) -> None:
    odd = folder / "it's a [folder] =1"
    odd.mkdir()
    for name in ("recipe.yaml", "mine.jsonl"):
        (odd / name).write_bytes((folder / name).read_bytes().replace(b"\n", b"\r\n"))
    assert invoke(str(odd), "--set", "model=../model").exit_code == 0
    assert (odd / "runs" / "verl" / "tandem" / "done").exists()


def test_swapping_the_trainer_keeps_the_data(folder: Path) -> None:
    assert invoke("--prepare").exit_code == 0
    (prepared,) = (folder / "data").iterdir()
    assert invoke("--prepare", "--set", "trainer=skyrl").exit_code == 0
    assert list((folder / "data").iterdir()) == [prepared]


def test_second_start_is_rejected_while_the_first_runs(folder: Path) -> None:
    from tandem_plugin.lab.recipes.folder import RunFolder

    with RunFolder(folder / "runs" / "verl" / "tandem").locked():
        done = invoke()
    assert (done.exit_code, "[run-folder-locked]" in done.stderr) == (1, True)


def test_command_line_is_read_as_it_is_typed(folder: Path) -> None:
    """In a process of its own: what follows -- is the trainer's, whatever it looks like."""
    done = subprocess.run(
        [sys.executable, "-m", "tandem_plugin", "train", "--print", "--", "--help", "--set", "a=1"],
        cwd=folder, env=os.environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1].endswith("--prepare -- --help --set a=1")
    assert done.stdout.rstrip().endswith("--help \\\n  --set a=1")
