"""Requests that enter a batch together, new or resumed: their draws and schedule states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tandem_plugin._draws import draw_into
from tandem_plugin._replay import Walk
from tandem_plugin.rules import Rule


@dataclass(frozen=True, slots=True)
class Resumed:
    """A request that enters: new, preempted before, or continuing a truncated response."""

    rule: Rule
    seed: int
    output: Sequence[int]
    """The tokens it has written so far."""
    prefix: Sequence[int] = ()
    """The beginning of its response, from an earlier request; not in ``output``."""


def fill_draws(rows: Sequence[NDArray[np.float64]], requests: Sequence[Resumed]) -> None:
    """Fill a row of draws for each request: those of the positions from its ``output`` on.

    rows: float64, contiguous, each as long as the request may need.
    """
    draws = [
        np.empty(len(request.prefix) + len(row)) if request.prefix else row
        for row, request in zip(rows, requests, strict=True)
    ]
    draw_into(draws, [request.seed for request in requests])
    for row, drawn, request in zip(rows, draws, requests, strict=True):
        if request.prefix:
            row[:] = drawn[len(request.prefix) :]


def walk_all(requests: Sequence[Resumed]) -> list[Walk]:
    """Replay each request's whole response so far, in one batch per rule."""
    by_rule: dict[Rule, list[int]] = {}
    for place, request in enumerate(requests):
        by_rule.setdefault(request.rule, []).append(place)
    walks: dict[int, Walk] = {}
    for rule, places in by_rule.items():
        responses = [_response(requests[place]) for place in places]
        seeds = [requests[place].seed for place in places]
        walks.update(zip(places, rule.walk_batch(responses, seeds), strict=True))
    return [walks[place] for place in range(len(requests))]


def _response(request: Resumed) -> Sequence[int]:
    return [*request.prefix, *request.output] if request.prefix else request.output
