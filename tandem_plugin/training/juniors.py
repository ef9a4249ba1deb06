"""A pool of juniors: which one a prompt is written with, and what the log says of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Protocol

from tandem_plugin.seeds import derive_seed
from tandem_plugin.training.engines import JUNIOR
from tandem_plugin.training.metrics import batch_metrics
from tandem_plugin.training.rows import Row

__all__ = ["OfJuniors", "junior_of_prompt", "labels", "metrics_of_juniors"]


def junior_of_prompt(
    juniors: Sequence[str], step: int, place: int | None, said: object
) -> str | None:
    """The junior that all responses to a prompt are written with; None where none is named.

    So a group compares what the senior wrote, not with whom. Prompts take the juniors in turns by
    their place in the step, from another one each step; one without a place (None) by a digest of
    the step and of what is said of it.
    """
    if not juniors:
        return None
    number = derive_seed(0, step, repr(said)) if place is None else step + int(place)
    return juniors[number % len(juniors)]


def labels(juniors: Sequence[str]) -> dict[str, str]:
    """What metrics call each junior: its path's last part, and its number where some share one."""
    parts = [PurePosixPath(one).name for one in juniors]
    if len(set(parts)) < len(parts):
        parts = [f"{part}-{number}" for number, part in enumerate(parts, 1)]
    return dict(zip(juniors, parts, strict=True))


def metrics_of_juniors(rows: Sequence[Row], juniors: Sequence[str]) -> dict[str, float]:
    """The metrics of a training batch for each junior of a pool; nothing where there is one.

    ``tandem/juniors/JUNIOR/responses``: how many were written with it; beside it every metric of
    the batch over these alone, such as ``tandem/juniors/JUNIOR/senior_share``.
    """
    if len(juniors) < 2:
        return {}
    metrics: dict[str, float] = {}
    for junior, label in labels(juniors).items():
        own = [row for row in rows if row.junior == junior]
        metrics |= _named(label, {"responses": float(len(own)), **batch_metrics(own)})
    return metrics


class _Log(Protocol):
    def step(self, engines: Sequence[Mapping[str, Any]]) -> dict[str, float]: ...


class OfJuniors:
    """What engines count and measure since the last step: of all, and of each junior of a pool.

    make: a log, which turns the counters of some engines into metrics.
    """

    def __init__(self, juniors: Sequence[str], make: Callable[[], _Log]) -> None:
        self._all = make()
        self._each = {one: make() for one in juniors} if len(juniors) > 1 else {}
        self._labels = labels(juniors)

    def step(self, engines: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        """The metrics of all engines, and of those of each junior.

        engines: what each told (:func:`~tandem_plugin.training.engines.told_by`), always in the
        same order.
        """
        told = [{name: v for name, v in one.items() if name != JUNIOR} for one in engines]
        metrics = self._all.step(told)
        for junior, log in self._each.items():
            own = [one for one, of in zip(told, engines, strict=True) if of.get(JUNIOR) == junior]
            metrics |= _named(self._labels[junior], log.step(own))
        return metrics


def _named(label: str, metrics: Mapping[str, float]) -> dict[str, float]:
    return {f"tandem/juniors/{label}/{k.removeprefix('tandem/')}": v for k, v in metrics.items()}
