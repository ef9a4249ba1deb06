"""Reward and accuracy by step from a trainer's log: verl's and OpenRLHF's."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tandem_plugin.errors import EvaluationError
from tandem_plugin.files import open_file, system_reason
from tandem_plugin.files.strict_json import is_number, parse_json

__all__ = ["QUANTITIES", "TrainingLog", "read_training_log"]

QUANTITIES = ("reward", "accuracy", "team_accuracy")

_REWARD = ("critic/score/mean", "critic/rewards/mean", "rollout/reward_mean", "reward")
_ACCURACY = tuple(
    re.compile(p)
    for p in (r"val-core/.+/acc/mean@\d+", r"val-core/.+/reward/mean@\d+", r"eval_.+_pass1")
)
_TEAM = "team/"
"""How the names begin where the team answered; without, it is whoever the run's settings say."""

_NUMBER = r"(?:np\.\w+\()?(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\)?"
_VERL_STEP = re.compile(r"(?:^|\s)step:(\d+) - (.*)")
_VERL_PAIR = re.compile(rf"([^\s:]+):{_NUMBER}$")
_OPENRLHF_STEP = re.compile(r"Global step (\d+): \{(.*)\}")
_OPENRLHF_EVALUATION = re.compile(r"global_step (\d+), eval_metrics: \{(.*)\}|"
                                  r"Eval at step (\d+): \{(.*)\}")  # fmt: skip
_OPENRLHF_PAIR = re.compile(rf"'([^']+)': {_NUMBER}")


@dataclass(frozen=True, slots=True)
class TrainingLog:
    """One run's curves: (step, value) in order of steps, by quantity."""

    name: str
    curves: Mapping[str, tuple[tuple[int, float], ...]]
    """``reward``, ``accuracy`` and ``team_accuracy`` (from 0 to 1); those that the log has."""
    path: Path
    """Where it was read from."""


def read_training_log(name: str, path: Path) -> TrainingLog:
    """A run's log: verl's metrics file (``{"step": ..., "data": {...}}`` a line), or what verl or
    OpenRLHF print.

    Nothing of the log is evaluated: numbers are found by their form. Raises
    :class:`EvaluationError` for a file without any of them. Source: section 5.1 of the paper.
    """
    steps: dict[int, dict[str, float]] = {}
    try:
        with io.TextIOWrapper(open_file(path), encoding="utf-8", errors="replace") as lines:
            for line in lines:
                for reader in _READERS:
                    found = reader(line)
                    if found is not None:
                        steps.setdefault(found[0], {}).update(found[1])
                        break
    except OSError as error:
        raise EvaluationError("TP885", path=path, reason=system_reason(error)) from error
    curves = {
        quantity: tuple(
            (step, value)
            for step in sorted(steps)
            if (value := _quantity(quantity, steps[step])) is not None
        )
        for quantity in QUANTITIES
    }
    if not any(curves.values()):
        raise EvaluationError("TP915", path=path)
    shown = {quantity: points for quantity, points in curves.items() if points}
    return TrainingLog(name, shown, path)


def _quantity(quantity: str, metrics: Mapping[str, float]) -> float | None:
    if quantity == "accuracy":
        return _accuracy(metrics)
    if quantity == "team_accuracy":
        named = {k.removeprefix(_TEAM): v for k, v in metrics.items() if k.startswith(_TEAM)}
        return _accuracy(named)
    return next((metrics[key] for key in _REWARD if key in metrics), None)


def _accuracy(metrics: Mapping[str, float]) -> float | None:
    """The mean over the data sources, by the first pattern that any name fits."""
    for pattern in _ACCURACY:
        found = [value for key, value in metrics.items() if pattern.fullmatch(key)]
        if found:
            return sum(found) / len(found)
    return None


def _verl_file(line: str) -> tuple[int, dict[str, float]] | None:
    if not line.lstrip().startswith("{"):
        return None
    try:
        row = parse_json(line)
        step, data = int(row["step"]), row["data"].items()
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError):
        return None
    return step, {str(key): float(value) for key, value in data if is_number(value)}


def _verl_printed(line: str) -> tuple[int, dict[str, float]] | None:
    found = _VERL_STEP.search(line)
    if found is None:
        return None
    pairs = (_VERL_PAIR.search(part.strip()) for part in found[2].split(" - "))
    return int(found[1]), {pair[1]: float(pair[2]) for pair in pairs if pair}


def _openrlhf(line: str) -> tuple[int, dict[str, float]] | None:
    found = _OPENRLHF_STEP.search(line) or _OPENRLHF_EVALUATION.search(line)
    if found is None:
        return None
    step, body = [part for part in found.groups() if part is not None]
    return int(step), {key: float(value) for key, value in _OPENRLHF_PAIR.findall(body)}


_READERS: tuple[Callable[[str], tuple[int, dict[str, float]] | None], ...] = (
    _verl_file,
    _verl_printed,
    _openrlhf,
)
