"""How a training went, from the responses of its steps: reward, length and wall clock by step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tandem_plugin.errors import EvaluationError
from tandem_plugin.files import parse_json
from tandem_plugin.lab.rollouts.rollout_file import file_step, rollout_files

_REWARDS = ("score", "reward")


@dataclass(frozen=True, slots=True)
class TrainingCurve:
    """One training, by its steps in order."""

    steps: tuple[int, ...]
    rewards: tuple[float, ...]
    """The mean of each step's responses."""
    lengths: tuple[float, ...]
    """Tokens per response; NaN for dumps without token ids, as plain verl writes them."""
    hours: tuple[float, ...]
    """Since the first step's file was written, by the files' times: a copied folder has none of
    the training's own."""


def read_training(folder: Path) -> TrainingCurve:
    """The curve of a trainer's folder of rollouts, one file per step.

    Raises :class:`RolloutError` for a folder without rollouts, and :class:`EvaluationError` for
    files that are not a trainer's steps, or have no rewards.
    """
    points = []
    for file in rollout_files(folder):
        step, rows = file_step(file), _rows(file)
        rewards = [reward for row in rows if (reward := _reward(row)) is not None]
        if step is None or not rows or len(rewards) < len(rows):
            raise EvaluationError("training-steps-unreadable", path=file)
        lengths = [len(row["response_ids"]) for row in rows if "response_ids" in row]
        length = float(np.mean(lengths)) if len(lengths) == len(rows) else float("nan")
        points.append((step, float(np.mean(rewards)), length, file.stat().st_mtime))
    steps, rewards_of, lengths_of, times = zip(*sorted(points), strict=True)
    return TrainingCurve(
        steps, rewards_of, lengths_of, tuple((time - min(times)) / 3600 for time in times)
    )


def _rows(file: Path) -> list[Mapping[str, Any]]:
    try:
        rows = [parse_json(line) for line in file.read_bytes().splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise EvaluationError("training-steps-unreadable", path=file) from error
    return [row if isinstance(row, Mapping) else {} for row in rows]


def _reward(row: Mapping[str, Any]) -> float | None:
    values = (row.get(name) for name in _REWARDS)
    return next((float(value) for value in values if isinstance(value, int | float)), None)
