"""A team's speed relative to its senior alone, computed from sizes before an engine exists.

A decoding step of one model takes the time of its layers, of reading its weights and its cache, and
of the arithmetic of its rows. Meanwhile the host takes time for every token of the step: the slower
of the two decides. Compared with one H100 and one H200 (``tests/lab/test_costs.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tandem_plugin.engine.speculative.draft_choice import tokens_per_round
from tandem_plugin.lab.planning import PlannedModel


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU, as the cost of a pass sees it."""

    memory: float
    """GiB, as nvidia-smi shows them."""
    bandwidth: float
    """Bytes per second that a pass reads."""
    arithmetic: float
    """Operations per second in bfloat16."""


LAYER = 46e-6
"""Seconds that a layer takes in addition to reading its weights, on an H100 and an H200."""
HOST = 45e-6
"""Seconds that vLLM's host takes for a token: what 128 requests on an H200 and 256 on an H100 show,
where the senior alone is no longer bound by its card."""

ERROR = 0.07
"""The largest error of a speed, relative to what one H100 and one H200 measured at short lengths;
but drafts at 128 requests are computed as 1.6 times as fast as measured."""


def _by_data_sheet(memory: float, terabytes: float, teraflops: float) -> Card:
    """A card that nobody measured: it reaches what an H100 reached of its data sheet's figures.

    Those are 2.8 of 3.35 TB/s and 840 of 989 TFLOPS in bfloat16 (dense).
    """
    return Card(memory, 2.8 / 3.35 * terabytes * 1e12, 840 / 989 * teraflops * 1e12)


CARDS = {
    "h200": Card(139.8, 4.7e12, 840e12),
    "h100": Card(79.6, 2.8e12, 840e12),
    "a100-80": _by_data_sheet(79.3, 2.04, 312),
    "a100-40": _by_data_sheet(39.5, 1.56, 312),
    "l40s": _by_data_sheet(44.5, 0.86, 362),
    "a6000": _by_data_sheet(47.5, 0.77, 155),
    "4090": _by_data_sheet(23.6, 1.01, 165),
    "a10": _by_data_sheet(22.5, 0.60, 125),
    "l4": _by_data_sheet(22.5, 0.30, 121),
}


@dataclass(frozen=True, slots=True)
class Load:
    """A batch that decodes."""

    requests: int
    tokens: int
    """Of a request in the cache, on average: its prompt and half of its response."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Speed of a batch: tokens per second of the senior alone, and each mode's ratio to it."""

    requests: int
    single: float
    lockstep: float
    speculative: float
    drafts: int
    """With which the speculative mode is fastest; 0 if it is never faster than lockstep."""


def step_seconds(
    card: Card, model: PlannedModel, load: Load, rows: int = 1, *, width: int = 2
) -> float:
    """Seconds of one pass of a model. rows: tokens of each request; width: bytes of a value."""
    cache = load.requests * (load.tokens * model.cached_bytes(width) + model.state_bytes(width))
    read = model.weights(width) + cache
    operations = 2 * model.parameters * rows * load.requests
    depth = model.layers + (model.states.layers if model.states else 0)
    return depth * LAYER + read / card.bandwidth + operations / card.arithmetic


def expected(
    card: Card, senior: PlannedModel, junior: PlannedModel, load: Load, drafts: Sequence[int]
) -> Expected:
    """The speed of each mode relative to the senior alone. drafts: numbers to choose from."""
    step_times = [step_seconds(card, model, load) for model in (senior, junior)]
    host = HOST * load.requests
    single, lockstep = (1 / max(seconds, host) for seconds in (step_times[0], sum(step_times)))
    rounds = {}
    for count in drafts:
        tokens = tokens_per_round(count)
        seconds = step_seconds(card, senior, load, count + 1) + count * step_times[1]
        rounds[count] = tokens / max(seconds, host * tokens)
    best = max(rounds, key=rounds.__getitem__)
    return Expected(
        load.requests,
        load.requests * single,
        lockstep / single,
        rounds[best] / single,
        best if rounds[best] > lockstep else 0,
    )
