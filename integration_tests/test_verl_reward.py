"""verl trains on this package's reward, named by its path, and logs what grading came to."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("verl", reason="verl is not installed")
pytest.importorskip("math_verify", reason="Math-Verify is not installed")

from support.verl_run import TANDEM, VerlBench, VerlRun

from tandem_plugin.grading import OUTCOMES
from tandem_plugin.grading.rewards import reward_file

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, checkpoints: dict[str, Path]) -> VerlRun:
    bench = VerlBench.make(tmp_path_factory.mktemp("verl"), checkpoints["senior"])
    done = bench.run(
        f"{TANDEM}.schedule=word",
        f"{TANDEM}.junior={checkpoints['junior']}",
        f"reward.custom_reward_function.path={reward_file('verl')}",
        "reward.custom_reward_function.name=compute_score",
        "trainer.total_training_steps=1",
        "trainer.test_freq=1",
        name="reward",
    )
    assert done.exit_code == 0, done.log[-3000:]
    return done


def test_training_metrics_count_every_outcome(run: VerlRun):
    (step,) = run.steps
    counts = {name: step[f"grading/{name}"] for name in OUTCOMES}
    assert sum(counts.values()) == len(run.rollouts(1))
    assert counts["no_answer"] > 0  # a model of random weights boxes nothing
    assert counts["error"] == counts["timeout"] == 0


def test_validation_metrics_have_the_share_of_every_outcome(run: VerlRun):
    metrics = {name: value for step in run.metrics for name, value in step.items()}
    shares = [
        value
        for name, value in metrics.items()
        for outcome in OUTCOMES
        if name.startswith(f"val-aux/tiny/outcome_{outcome}/mean@")
    ]
    assert len(shares) == len(OUTCOMES)
    assert sum(shares) == pytest.approx(1.0)
