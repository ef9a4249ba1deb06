"""examples/two_players with OpenRLHF: both players in one engine, the senior's moves trained."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("openrlhf", reason="OpenRLHF is not installed: make test-openrlhf")

from support.two_players import Example

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Example:
    return Example.play("openrlhf", tmp_path_factory.mktemp("game"))


@pytest.fixture
def rollouts(example: Example) -> Path:
    return example.folder / "openrlhf" / "rollouts"


def test_junior_is_trained_on_in_no_turn_and_its_moves_decide_the_reward(
    example: Example, rollouts: Path
) -> None:
    example.assert_turns_are_whose_they_were(rollouts)


def test_tandem_replay_agrees_with_every_game(example: Example, rollouts: Path) -> None:
    example.assert_replayed(rollouts)


def test_log_counts_the_calls_of_each_schedule(example: Example, rollouts: Path) -> None:
    from with_openrlhf import steps_of

    steps = [metrics for _, metrics in steps_of((example.folder / "train.log").read_text())]
    example.assert_metrics(steps, rollouts)


def test_result_is_what_the_dumps_hold(example: Example, rollouts: Path) -> None:
    example.assert_result(rollouts)
