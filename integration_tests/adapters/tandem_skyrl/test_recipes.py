"""A recipe's run by SkyRL, with only sizes overridden."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("skyrl", reason="SkyRL is not installed: make test-skyrl")

from support.recipes import (
    assert_bad_reward_names_its_row,
    assert_reads_its_command,
    assert_replays,
    assert_trains_by_rewards_of_ones_own,
    follow,
    train,
)

from tandem_plugin.training.checkpoint_note import NOTE

pytestmark = [pytest.mark.timeout(1800), pytest.mark.long]


@pytest.mark.parametrize("method", ["tandem", "kl-reg"])
def test_recipe_trains_to_its_end_and_its_next_commands_run(
    method: str, tmp_path: Path, checkpoints: dict[str, Path]
) -> None:
    model = checkpoints["senior"]
    trained = train(tmp_path, "skyrl", model, method=method, save_every=1)
    assert trained.exit_code == 0, trained.log[-5000:]
    out = trained.folder / "runs" / "skyrl" / method
    assert (out / "done").read_text() == "2\n"
    assert ("tandem is on: schedule=word" in trained.log) is (method == "tandem")
    # Nothing was solved: of equally good seniors it is the last.
    assert (out / "senior").resolve() == out / "export" / "global_step_2" / "policy"
    assert [path.name for path in (out / "checkpoints").glob("global_step_*")] == ["global_step_2"]
    if method == "tandem":
        assert (out / "senior" / NOTE).exists()
        assert_replays(out, model)
    follow(trained, out, method)


def test_trainer_reads_its_command(tmp_path: Path, checkpoints: dict[str, Path]) -> None:
    assert_reads_its_command(tmp_path, "skyrl", checkpoints["senior"], ["trainer.no_such_thing=1"])


def test_printed_command_trains_by_rewards_of_ones_own(
    tmp_path: Path, checkpoints: dict[str, Path]
) -> None:
    assert_trains_by_rewards_of_ones_own(tmp_path, "skyrl", checkpoints["senior"])


def test_bad_reward_names_its_row(tmp_path: Path, checkpoints: dict[str, Path]) -> None:
    assert_bad_reward_names_its_row(tmp_path, "skyrl", checkpoints["senior"])
