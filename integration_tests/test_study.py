"""``make study`` in its smallest size, to the end: trained, evaluated, compared, reported, once."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from support.commands import run

pytestmark = pytest.mark.timeout(3600)

FOLDER = Path(__file__).parents[1] / "examples" / "study"
STUDY = FOLDER / "run.py"
SENIORS = ("base", "GRPO-1", "TRL-1")
KINDS = ("buying", "breaking", "sharing")
STAGES = ("teach", "train GRPO-1", "train TRL-1", "evaluate", "compare", "report")
PROBLEMS = SAMPLES = 2


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


def test_each_method_was_trained_in_its_own_way(study: Path):
    logged = {}
    for name in SENIORS[1:]:
        (step,) = lines(study / "trainings" / name / "metrics.jsonl")
        logged[name] = step["data"]
    assert "tandem/senior_share" not in logged["GRPO-1"]
    assert 0 < logged["TRL-1"]["tandem/senior_share"] < 1
    taught = (study / "model" / "model.safetensors").read_bytes()
    for name in SENIORS[1:]:
        trained = study / "trainings" / name / "checkpoint" / "model.safetensors"
        assert trained.read_bytes() != taught


def test_held_out_problems_are_in_no_training(study: Path):
    import pandas

    asked = {
        turn["content"].split("\n")[0]
        for split in ("train", "validation")
        for prompt in pandas.read_parquet(study / "problems" / f"{split}.parquet")["prompt"]
        for turn in prompt
    }
    held_out = {row["problem"] for k in KINDS for row in lines(study / "problems" / f"{k}.jsonl")}
    assert len(held_out) == PROBLEMS * len(KINDS)
    assert not held_out & asked


def test_numbers_of_the_report_are_those_of_the_responses(study: Path):
    for label, place in {
        "solo": "solo",
        "handoff-step-base": "handoff/step/base",
        "handoff-step-bernoulli-base": "handoff/step-bernoulli/base",
    }.items():
        with (study / "report" / "data" / f"pass-at-k-{label}.csv").open() as file:
            found = {(r["benchmark"], r["senior"], int(r["k"])): r for r in csv.DictReader(file)}
        assert {senior for _, senior, _ in found} == set(SENIORS)
        for senior in SENIORS:
            for kind in KINDS:
                right = defaultdict(int)
                for grade in lines(study / "results" / senior / place / f"{kind}.grades.jsonl"):
                    right[grade["problem"]] += grade["outcome"] == "correct"
                assert len(right) == PROBLEMS
                for k, value in (
                    (1, sum(right.values()) / PROBLEMS / SAMPLES),
                    (2, sum(one > 0 for one in right.values()) / PROBLEMS),
                ):
                    assert float(found[kind, senior, k]["pass_at_k"]) == pytest.approx(value)
    figures = {path.stem for path in (study / "report" / "figures").glob("*.png")}
    assert figures == {path.stem for path in (study / "report" / "data").glob("*.csv")}
    assert {"legibility-base", "survival-drift-base", "training-dynamics"} <= figures


def test_tables_hold_every_method_on_every_axis(study: Path):
    text = (study / "tables" / "seed-1" / "tables.md").read_text()
    assert text in (study / "study.md").read_text()
    (macro,) = [part for part in text.split("### ") if part.startswith("Macro averages on every")]
    rows = {line.split(" | ")[0].strip("| "): line for line in macro.splitlines()[4:] if line}
    assert list(rows) == list(SENIORS)
    assert all("–" not in row for row in rows.values())
    assert "0.0000" in rows["base"]  # the base has drifted by nothing from itself
    assert (study / "tables" / "seed-1" / "tables.tex").exists()
    assert "<span class=junior>" in (study / "report" / "index.html").read_text()


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
