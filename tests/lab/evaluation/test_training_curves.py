"""A training by its steps, from what the trainer wrote of each."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from refused import refused

from tandem_plugin.lab.evaluation.training_curves import read_training


def write(folder: Path, name: str, rows: list[dict[str, Any]], time: float = 0.0) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    os.utime(file, (time, time))
    return file


def test_steps_are_in_order_with_means_over_their_responses(tmp_path: Path) -> None:
    rows = [{"response_ids": [1, 2, 3], "score": 1.0}, {"response_ids": [4], "score": False}]
    write(tmp_path, "10.jsonl", rows, 3600 * 7)
    write(tmp_path, "2.jsonl", [{"response_ids": [], "reward": 0.25}], 3600 * 4)
    curve = read_training(tmp_path)
    assert (curve.steps, curve.rewards, curve.lengths) == ((2, 10), (0.25, 0.5), (0, 2))
    assert curve.hours == (0, 3)


def test_dumps_without_token_ids_have_no_length(tmp_path: Path) -> None:
    """Plain verl's, of text alone."""
    write(tmp_path, "1.jsonl", [{"input": "a", "output": "b", "score": 1}])
    curve = read_training(tmp_path)
    assert curve.rewards == (1.0,)
    assert math.isnan(curve.lengths[0])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("1.jsonl", ""),
        ("1.jsonl", '{"output": "b"}\n'),
        ("1.jsonl", "no JSON\n"),
        ("sums.jsonl", '{"score": 1}\n'),
    ],
)
def test_what_is_not_a_step_with_rewards_is_refused(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with refused("training-steps-unreadable", path=str(tmp_path / name)):
        read_training(tmp_path)
