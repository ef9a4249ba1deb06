"""A share of the responses by the senior alone: the parameter ``alone``, which every schedule has.

Whether a response is the senior's from beginning to end is decided by a draw from a separate seed,
which decides no position. A schedule with such a share is of a subclass with an additional
parameter; with a share of 0 it keeps its class, and nothing about it differs from the paper.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import make_dataclass
from typing import Any

from tandem_plugin.schedules.parameters import check_probability, schedule_parameters
from tandem_plugin.schedules.schedule import Schedule, Tensor

ALONE = "alone"
"""The parameter: the share of the responses, from 0 to 1; 0, as in the paper, is the default."""

RUN_ALONE = -(2**63)
"""The run of a response that the senior writes alone, from beginning to end. It is no schedule's
own, and is all that tells an engine of such a response."""


def share_alone(schedule: Schedule) -> float:
    """The share of the responses that the senior writes alone."""
    return float(getattr(schedule, ALONE, 0.0))


def plain_class(kind: type[Any]) -> type[Any]:
    """The class that a schedule's class extends by its share; itself if it has none."""
    return kind.__bases__[-1] if issubclass(kind, _PartlyAlone) else kind


@functools.cache
def class_with_share(kind: Any) -> type[Any]:
    """A schedule's class with the parameter ``alone``: a frozen dataclass of the same name."""
    extended = make_dataclass(
        kind.__name__,
        [(ALONE, float, 0.0)],
        bases=(_PartlyAlone, kind),
        namespace={"__doc__": kind.__doc__},
        frozen=True,
        slots=True,
    )
    extended.__module__, extended.__qualname__ = kind.__module__, kind.__qualname__
    return extended


def _made_again(kind: Any, parameters: Mapping[str, Any]) -> Any:
    return class_with_share(kind)(**parameters)


class _PartlyAlone:
    """The mixin of every such class: it precedes the schedule's own class in the bases."""

    __slots__ = ()

    def __post_init__(self) -> None:
        share = check_probability(ALONE, getattr(self, ALONE))
        object.__setattr__(self, ALONE, share)
        checked: Any = super()
        if hasattr(checked, "__post_init__"):
            checked.__post_init__()

    def __reduce__(self) -> tuple[Any, ...]:
        """The class is made in each process, so it is not found by its name."""
        schedule: Any = self
        return _made_again, (plain_class(type(self)), schedule_parameters(schedule))

    def advance(
        self, author: Tensor, run: Tensor, is_boundary: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The schedule's own step, except in responses that the senior writes alone."""
        alone = run == RUN_ALONE
        schedule: Any = super()
        author, next_run = schedule.advance(author, run * ~alone, is_boundary, u)
        return author | alone, next_run * ~alone + run * alone
