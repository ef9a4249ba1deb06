"""Who solves the validation problems of a run of TRL's, and what it says of a senior that falls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl.scripts", reason="TRL is not installed")

from support.trl_run import EVALUATED, TRLBench, TRLRun
from typer.testing import CliRunner

from tandem_plugin.cli import app
from tandem_plugin.training.validation_log import CHANGE, JUNIOR_ALONE, read_validations

pytestmark = pytest.mark.timeout(900)
BENCH, STEPS, EVERY = TRLBench, 8, 4


@pytest.fixture(scope="module")
def fallen(bench: TRLBench, checkpoints: dict[str, Path]) -> TRLRun:
    """Trained to write what the validation does not reward."""
    tandem = {"schedule": "word", "cap": 6, "seed": 7, "validation": "all"}
    run = bench.run(
        {**tandem, "junior": str(checkpoints["junior"])},
        name="fallen",
        reward="contrary",
        learning_rate=2e-2,
        max_steps=STEPS,
        eval_strategy="steps",
        eval_steps=EVERY,
        eval_on_start=True,
        per_device_train_batch_size=16,
    )
    assert run.exit_code == 0, run.log[-3000:]
    return run


def evaluations(run: TRLRun, name: str) -> list[tuple[int, Any]]:
    """(step, value) of a metric of evaluations."""
    return [(logs["step"], logs[name]) for logs in run.metrics if name in logs]


def test_senior_team_and_once_the_junior_answer(fallen: TRLRun) -> None:
    steps = [*range(0, STEPS + 1, EVERY)]
    alone, team = (evaluations(fallen, f"eval_{name}reward") for name in ("", "team/"))
    assert [step for step, _ in alone] == [step for step, _ in team] == steps
    ((step, junior),) = evaluations(fallen, "eval_junior/reward")
    assert step == 0
    known = evaluations(fallen, f"eval_{JUNIOR_ALONE}")
    assert {value for _, value in known} == {junior}
    assert {step for step, _ in known} == {*steps}
    noted = read_validations(fallen.folder / "rollouts")
    assert {row.problems for row in noted} == {EVALUATED["contrary"]}
    by_answerer = {"senior": alone, "team": team, "junior": [(0, junior)]}
    for answerer, logged in by_answerer.items():
        rows = [(row.step, row.accuracy) for row in noted if row.answerer == answerer]
        assert rows == [(step, pytest.approx(value)) for step, value in logged]


def test_fall_is_said_in_the_log_and_on_the_page(fallen: TRLRun, tmp_path: Path) -> None:
    alone = [value for _, value in evaluations(fallen, "eval_reward")]
    changes = [value for _, value in evaluations(fallen, f"eval_{CHANGE}")]
    assert changes == [pytest.approx(value - alone[0]) for value in alone]
    assert alone[-1] < alone[0] - 0.4
    assert "WARNING: the senior alone solves" in fallen.log
    page = tmp_path / "page.html"
    rollouts, model = str(fallen.folder / "rollouts"), str(fallen.folder / "senior")
    arguments = ["view", rollouts, "--tokenizer", model, "--out", str(page)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "less than at this run" in page.read_text()
    replayed = CliRunner().invoke(app, ["replay", rollouts, "--tokenizer", model])
    assert replayed.exit_code == 0, replayed.output
