"""examples/two_players with verl: both players in one engine, the senior's moves alone trained."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("verl", reason="verl is not installed")

from support.two_players import Example

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Example:
    return Example.play("verl", tmp_path_factory.mktemp("game"))


@pytest.fixture
def rollouts(example: Example) -> Path:
    return example.folder / "verl" / "training"


def test_junior_is_trained_on_in_no_turn_and_its_moves_decide_the_reward(
    example: Example, rollouts: Path
) -> None:
    example.assert_turns_are_whose_they_were(rollouts)


def test_tandem_replay_agrees_with_every_game(example: Example, rollouts: Path) -> None:
    example.assert_replayed(rollouts)


def test_log_counts_the_calls_of_each_schedule(example: Example, rollouts: Path) -> None:
    lines = (example.folder / "metrics.jsonl").read_text().splitlines()
    logged = [json.loads(line)["data"] for line in lines]
    steps = [metrics for metrics in logged if "training/global_step" in metrics]
    example.assert_metrics(steps, rollouts)
    # In float32 engine and trainer give each trained token the same probability.
    assert max(step["training/rollout_probs_diff_max"] for step in steps) < 1e-5


def test_result_is_what_the_dumps_hold(example: Example, rollouts: Path) -> None:
    example.assert_result(rollouts)
