"""A recipe's run by TRL, with only sizes overridden."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("trl.scripts", reason="TRL is not installed")

from support.recipes import assert_replays, follow, train

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


def test_several_rewards_are_weighted_and_logged_by_their_names(
    tmp_path: Path, checkpoints: dict[str, Path]
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "def letters(response, problem):\n    return response.count('e') / 10\n\n"
        "def brief(responses, problems):\n    return [-len(text) / 100 for text in responses]\n"
    )
    rewards = [f"{file}:letters", f"{file}:brief"]
    trained = train(
        tmp_path, "trl", checkpoints["senior"], reward=rewards, reward_weights=[1, 0.5], steps=1
    )
    assert trained.exit_code == 0, trained.log[-5000:]
    assert "rewards/letters/mean" in trained.log
    assert "rewards/brief/mean" in trained.log
    dump = trained.folder / "runs" / "trl" / "tandem" / "rollouts" / "1.jsonl"
    for row in map(json.loads, dump.read_text().splitlines()):
        text = row["output"].replace("<|im_end|>", "").replace("<|endoftext|>", "")
        assert row["score"] == pytest.approx(text.count("e") / 10 - len(text) / 200)
