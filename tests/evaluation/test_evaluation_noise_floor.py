"""`tandem eval drift`: the noise floor from a second seed, and the tables of several seniors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_results import found_tables, texts, write_solo, write_tokenizer
from typer.testing import CliRunner

from tandem_plugin.cli import app
from tandem_plugin.lab.evaluation import kl_divergence
from tandem_plugin.lab.evaluation.drift_counts import read_folds
from tandem_plugin.lab.evaluation.results import read_summary

BASE = [[[0, 0, 1], [0, 1, 2]], [[0, 3], [1, 1]]]
AGAIN = [[[0, 1, 1], [0, 2, 2]], [[0, 3], [0, 1]]]
GRPO = [[[3, 3, 3], [0, 3, 3]], [[1, 3], [3, 3]]]
TRL = [[[0, 0, 3], [0, 1, 3]], [[0, 3], [1, 3]]]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Solo runs of a base, two seniors, and under ``second`` the base with another seed."""
    model = write_tokenizer(tmp_path / "model")
    for senior, responses in {"base": BASE, "GRPO": GRPO, "TRL": TRL}.items():
        write_solo(tmp_path / "results", senior, model, responses)
    write_solo(tmp_path / "second", "base", model, AGAIN, seed=1)
    return tmp_path


def drift(out: Path, *arguments: object) -> Any:
    command = ["eval", "drift", "--junior", "base", "--out", out / "results", "--frequent", 1]
    return CliRunner().invoke(app, [*map(str, command), *map(str, arguments)])


def ids(responses: list[list[list[int]]]) -> np.ndarray:
    return np.bincount([t for found in responses for one in found for t in one], minlength=4)


def test_noise_floor_is_the_drift_of_the_base_from_itself(out: Path):
    done = drift(out, "--senior", "GRPO", "--floor", out / "second/base", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    floor = kl_divergence(ids(AGAIN), ids(BASE))
    assert found["runs"][0]["kl"] == pytest.approx(kl_divergence(ids(GRPO), ids(BASE)))
    assert found["runs"][0]["noise_floor"] == pytest.approx(floor)
    summary = read_summary(out / "results/GRPO/drift/base/summary.json")
    assert summary.content["metrics"]["floor"]["seed"] == 1
    senior, junior = read_folds(summary)
    np.testing.assert_array_equal(senior.sum(0), ids(GRPO))
    np.testing.assert_array_equal(junior[:3], [[2, 1, 0, 0], [2, 1, 1, 1], [0, 2, 0, 0]])
    (table,) = found["tables"]
    assert [row[0]["text"] for row in table["rows"]] == ["GRPO", "noise floor: base, seed 1"]
    assert table["rows"][1][1]["text"] == f"{floor:.4f}"


def test_noise_floor_stands_in_the_tables_of_the_comparison_once(out: Path):
    seniors = ("--senior", "GRPO", "--senior", "TRL")
    assert drift(out, *seniors, "--floor", out / "second/base").exit_code == 0
    rows = texts(found_tables(out / "results/GRPO", out / "results/TRL")["drift-base"])
    assert [row[0] for row in rows] == ["GRPO", "TRL", "noise floor: base, seed 1"]


def test_several_seniors_are_told_what_they_recover_beside_its_nulls(out: Path):
    done = drift(out, "--senior", "GRPO", "--senior", "TRL", "--top", 4)
    assert done.exit_code == 0, done.output
    shown = " ".join(done.stdout.split())
    assert "Recovery of GRPO's drift from base" in shown
    assert "no drift" in shown
    assert "independent drift" in shown
    assert "top 4 moved back (%)" in shown


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"seed": 0}, "give `tandem eval solo` another --seed"),
        ({"seed": 1, "fingerprint": "ff"}, "of a model with the fingerprint ff"),
        ({"seed": 1, "temperature": 1.0}, "sampling.temperature"),
        ({"seed": None}, "does not say its sampling.seed"),
    ],
)
def test_what_is_no_second_seed_of_the_base_is_refused(
    out: Path, changed: dict[str, Any], said: str
):
    write_solo(out / "second", "base", out / "model", AGAIN, **changed)
    done = drift(out, "--senior", "GRPO", "--floor", out / "second/base")
    assert done.exit_code == 1
    assert said in done.stderr
    assert not (out / "results/GRPO/drift").exists()


def test_floor_of_another_model_is_refused_before_hours_of_evaluation(
    out: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(
        "tandem_plugin.lab.evaluation.generated_runs.check_handoffs", lambda *given: None
    )
    started: list[object] = []
    monkeypatch.setattr(
        "tandem_plugin.lab.evaluation.generated_runs.run_solo", lambda *given: started.append(given)
    )
    (out / "model/config.json").write_text("{}")
    (out / "model/model.safetensors").write_bytes(b"")
    (out / "sums.jsonl").write_text('{"problem": "1 + 1", "answer": "2"}\n')
    models = [f"--senior=GRPO={out / 'model'}", f"--junior=base={out / 'model'}"]
    command = ["eval", "all", *models, f"--benchmark=sums={out / 'sums.jsonl'}"]
    floor = ["--out", str(out / "new"), "--floor", str(out / "second/base")]
    done = CliRunner().invoke(app, [*command, *floor])
    assert done.exit_code == 1
    assert "of a model with the fingerprint base" in done.stderr
    assert not started


def test_missing_floor_is_refused(out: Path):
    done = drift(out, "--senior", "GRPO", "--floor", out / "third/base")
    assert done.exit_code == 1
    assert "no finished solo run of 'base'" in done.stderr
