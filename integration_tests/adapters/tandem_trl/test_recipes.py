"""A recipe's run by TRL, with only sizes overridden."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("trl.scripts", reason="TRL is not installed")

from support.recipes import (
    assert_bad_reward_names_its_row,
    assert_reads_its_command,
    assert_replays,
    assert_trains_by_rewards_of_ones_own,
    follow,
    train,
)

pytestmark = [pytest.mark.timeout(1800), pytest.mark.long]


@pytest.mark.parametrize("method", ["tandem", "kl-reg"])
def test_recipe_trains_to_its_end_and_its_next_commands_run(
    method: str, tmp_path: Path, checkpoints: dict[str, Path]
) -> None:
    model = checkpoints["senior"]
    trained = train(tmp_path, "trl", model, method=method)
    assert trained.exit_code == 0, trained.log[-5000:]
    out = trained.folder / "runs" / "trl" / method
    assert (out / "done").read_text() == "2\n"
    assert ("tandem is on: schedule=word" in trained.log) is (method == "tandem")
    assert (out / "senior").resolve() == out / "checkpoints"
    if method == "tandem":
        assert_replays(out, model)
    follow(trained, out, method)


def test_trainer_reads_its_command(tmp_path: Path, checkpoints: dict[str, Path]) -> None:
    assert_reads_its_command(tmp_path, "trl", checkpoints["senior"], ["--no_such_thing", "1"])


def test_printed_command_trains_by_rewards_of_ones_own(
    tmp_path: Path, checkpoints: dict[str, Path]
) -> None:
    assert_trains_by_rewards_of_ones_own(tmp_path, "trl", checkpoints["senior"])


def test_bad_reward_names_its_row(tmp_path: Path, checkpoints: dict[str, Path]) -> None:
    assert_bad_reward_names_its_row(tmp_path, "trl", checkpoints["senior"])
