"""``make study`` in its smallest size, to the end: both parts, once, and judged."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.commands import run

pytestmark = pytest.mark.timeout(3600)

VERDICTS = ("agrees", "does not", "cannot tell")

FOLDER = Path(__file__).parents[1] / "examples" / "study"
STUDY = FOLDER / "run.py"
METHODS = ("GRPO", "KL-Reg 0.05", "TRL")
SENIORS = {name: name.replace(" ", "-") for name in METHODS}
STAGES = (
    "light",
    "light at the real budget",
    "problems",
    *(f"train {name}" for name in METHODS),
    "evaluate",
    "compare",
    "report",
)
PROBLEMS, SAMPLES = 8, 2


COMPOSE = """#!/bin/sh
# verl says its whole configuration, and trains nothing
exec {python} "$@" --cfg job
"""


def started(out: Path) -> str:
    return run([sys.executable, str(STUDY), "--quick", "--out", str(out)], 3000).stdout


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("study") / "study"
    started(out)
    return out


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def test_each_method_was_trained_in_its_own_way(study: Path):
    logged = {}
    for name, folder in SENIORS.items():
        (step,) = lines(study / "real" / "trainings" / folder / "metrics.jsonl")
        logged[name] = step["data"]
        checkpoint = study / "real" / "trainings" / folder / "checkpoint"
        assert weights(checkpoint) != weights(study / "models" / "pair-1" / "senior")
    assert "tandem/senior_share" not in logged["GRPO"]
    assert "tandem/senior_share" not in logged["KL-Reg 0.05"]
    assert 0 < logged["TRL"]["tandem/senior_share"] < 1


def test_kl_loss_is_towards_the_junior_and_not_the_start(study: Path):
    """The loss of the first step, of the actor's start, is 0 but for its first update."""
    (step,) = lines(study / "real" / "trainings" / "KL-Reg-0.05" / "metrics.jsonl")
    (plain,) = lines(study / "real" / "trainings" / "GRPO" / "metrics.jsonl")
    assert step["data"]["actor/kl_loss"] > 0.05
    assert "actor/kl_loss" not in plain["data"]


def test_junior_of_the_team_is_the_other_model(study: Path):
    said = (study / "real" / "trainings" / "TRL" / "train.log").read_text()
    junior = study / "models" / "pair-1" / "1-percent"
    assert weights(junior) != weights(study / "models" / "pair-1" / "senior")
    assert str(junior) in said


def test_held_out_problems_are_in_no_training(study: Path):
    import pandas

    asked = {
        turn["content"]
        for split in ("train", "validation")
        for prompt in pandas.read_parquet(study / "real" / "problems" / f"{split}.parquet")[
            "prompt"
        ]
        for turn in prompt
    }
    held_out = {row["problem"] for row in lines(study / "real" / "problems" / "chains.jsonl")}
    assert len(held_out) == PROBLEMS
    assert not held_out & asked


def test_page_holds_both_parts_and_a_verdict_on_every_claim(study: Path):
    text = (study / "study.md").read_text()
    pictures = re.findall(r"!\[[^]]*\]\(([^)]+)\)", text)
    assert pictures
    assert all((study / picture).is_file() for picture in pictures)
    assert "Declared beforehand" in text
    for name in METHODS:
        assert f"| {name}, verl |" in text
        assert f"| {name}, light |" in text
    claims = [
        line
        for line in text.splitlines()
        if line.startswith("| TRL is the better team (`step`) | TRL |") and " ± " in line
    ]
    # two juniors, one of them with all coefficients of KL-Reg, at three choices of checkpoints
    assert len(claims) == 3 * ((1 + 3) + (1 + 1))
    assert all(line.split(" | ")[-1].strip(" |") in VERDICTS for line in claims)
    assert (study / "light" / "figures" / "self.svg").exists()


def test_numbers_beside_each_other_are_those_of_the_responses(study: Path):
    text = (study / "study.md").read_text()
    for name, folder in SENIORS.items():
        (row,) = [line for line in text.splitlines() if line.startswith(f"| {name}, verl |")]
        numbers = [float(cell) for cell in row.strip("| ").split(" | ")[1:]]
        for value, place in zip(
            numbers, ("solo", "handoff/step/junior", "handoff/step-bernoulli/junior"), strict=False
        ):
            grades = lines(study / "real" / "results" / folder / place / "chains.grades.jsonl")
            assert len(grades) == PROBLEMS * SAMPLES
            right = sum(grade["outcome"] == "correct" for grade in grades)
            assert value == pytest.approx(right / len(grades), abs=5e-4)


def test_second_start_repeats_nothing(study: Path):
    before = {path: path.stat().st_mtime_ns for path in study.rglob("*") if path.is_file()}
    said = started(study)
    assert [line for line in said.splitlines() if line.endswith("done before.")] == [
        f"{stage}: done before." for stage in STAGES
    ]
    after = {path: path.stat().st_mtime_ns for path in study.rglob("*") if path.is_file()}
    changed = {path.name for path in after if after[path] != before.get(path)}
    assert changed <= {"study.md"}
    assert after.keys() == before.keys()


def test_light_part_that_was_cut_short_goes_on(study: Path, tmp_path: Path):
    """A training without its note is done again, and comes out the same."""
    copy = tmp_path / "study"
    shutil.copytree(study / "light", copy / "light")
    shutil.copytree(study / "models", copy / "models")
    notes = sorted((copy / "light" / "trainings").glob("pair-1-TRL-1-percent*.json"))
    kept = {note: note.read_text() for note in notes}
    notes[0].unlink()
    command = [sys.executable, str(FOLDER / "light" / "run.py"), "--quick"]
    run([*command, "--out", str(copy / "light")], 1200)
    assert {note: note.read_text() for note in notes} == kept


def test_folder_of_another_study_is_refused(study: Path):
    done = subprocess.run(
        [sys.executable, str(STUDY), "--out", str(study)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1
    assert "holds a study with other settings" in " ".join(done.stdout.split())


def test_full_scale_study_is_a_configuration_that_verl_takes(tmp_path: Path):
    from omegaconf import OmegaConf

    (tmp_path / "python").write_text(COMPOSE.format(python=sys.executable))
    (tmp_path / "python").chmod(0o755)
    path = os.pathsep.join([str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        [str(FOLDER / "full_scale.sh"), "train"],
        env=os.environ | {"PATH": path, "OUT": str(tmp_path / "out"), "SEEDS": "3", "GPUS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for name in ("GRPO-3", "KL-Reg-3", "TRL-3"):
        said = (tmp_path / "out" / "trainings" / name / "train.log").read_text()
        config = OmegaConf.create(said[said.index("actor_rollout_ref:") :])
        assert config.actor_rollout_ref.model.path == "Qwen/Qwen3-4B-Instruct-2507"
        assert config.data.seed == config.actor_rollout_ref.actor.data_loader_seed == 3
        assert "hf_model" in config.actor_rollout_ref.actor.checkpoint.save_contents
        assert config.trainer.experiment_name == name
        assert config.trainer.default_local_dir == str(
            tmp_path / "out" / "trainings" / name / "checkpoints"
        )
        assert config.trainer.resume_mode == "auto"
        assert config.trainer.logger == ["console"]
