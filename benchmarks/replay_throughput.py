"""How fast replay is: tokens per second on one core, from token ids to authorship.

The word schedule over 1,024 responses of 3,000 random tokens, in one call, seeds included. The
vocabulary has Qwen's size, and a third of it are word boundaries.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from results import Results, Table, spread
from rounds import keep_to_one_core, run_rounds, summary

RESPONSES, LENGTH, VOCABULARY = 1024, 3000, 151_936


def measure(results: Results, toy: bool) -> None:
    """Token ids as NumPy arrays and as Python lists, in turn in every round."""
    from tandem_plugin import BoundarySet, make_schedule
    from tandem_plugin._replay import replay_batch

    keep_to_one_core()
    responses, length, rounds = (8, 100, 2) if toy else (RESPONSES, LENGTH, 15)
    random = np.random.default_rng(0)
    boundaries = BoundarySet("word", random.random(VOCABULARY) < 0.35)
    schedule = make_schedule("word", {})
    seeds = random.integers(0, 2**62, responses).tolist()
    arrays = list(random.integers(0, VOCABULARY, (responses, length), dtype=np.int32))

    def speed(token_ids: Any) -> float:
        start = time.perf_counter()
        replay_batch(token_ids, seeds, schedule, boundaries)
        return responses * length / (time.perf_counter() - start)

    kinds = {"NumPy arrays, int32": arrays, "Python lists": [array.tolist() for array in arrays]}
    cases: dict[str, Callable[[], float]] = {
        kind: partial(speed, token_ids) for kind, token_ids in kinds.items()
    }
    if all(name in results for name in cases):
        return
    for kind, sample in run_rounds(cases, rounds).items():
        figures = {"token_ids": kind, "responses": responses, "length": length}
        results.add(kind, figures | {"unit": "tokens per second"} | summary(sample))


def table(content: Mapping[str, Any]) -> Table:
    """Million tokens per second by kind of token ids."""
    rows = []
    for case in content["cases"].values():
        millions = {key: case[key] / 1e6 for key in ("median", "low", "high")}
        shape = f"{case['responses']:,} of {case['length']:,} tokens"
        rows.append([case["token_ids"], shape, spread(millions)])
    return Table(
        title="Replay",
        columns=["token ids as", "responses", "million tokens per second"],
        rows=rows,
        unit="word schedule, on one core",
    )
