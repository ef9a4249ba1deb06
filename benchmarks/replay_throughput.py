"""How fast replay is: tokens a second on one core.

The word schedule over responses of 3,000 random tokens
of a vocabulary of Qwen's size, of which a third are word boundaries; all of them from token ids to
authorship, seeds included. 1,024 responses in one call, and 16 of them one by one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from machine import keep_to_one_core
from results import Results
from rounds import run_rounds
from table import Table, spread

__all__ = ["measure", "table"]

RESPONSES, LENGTH, VOCABULARY = 1024, 3000, 151_936
ONE_BY_ONE = 16


def measure(results: Results, toy: bool) -> None:
    """Token ids as NumPy arrays and as Python lists, in turn in every round."""
    from tandem_plugin import BoundarySet, make_schedule
    from tandem_plugin.replay import replay, replay_batch

    keep_to_one_core()
    responses, length, rounds = (8, 100, 2) if toy else (RESPONSES, LENGTH, 15)
    random = np.random.default_rng(0)
    boundaries = BoundarySet("word", random.random(VOCABULARY) < 0.35)
    schedule = make_schedule("word", {})
    seeds = random.integers(0, 2**62, responses).tolist()
    arrays = list(random.integers(0, VOCABULARY, (responses, length), dtype=np.int32))
    kinds = {"NumPy arrays, int32": arrays, "Python lists": [array.tolist() for array in arrays]}

    cases: dict[str, Callable[[], float]] = {}
    sizes: dict[str, tuple[str, str, int]] = {}
    for kind, given in kinds.items():

        def at_once(given: Any = given) -> float:
            start = time.perf_counter()
            replay_batch(given, seeds, schedule, boundaries)
            return responses * length / (time.perf_counter() - start)

        def one_by_one(given: Any = given) -> float:
            start = time.perf_counter()
            for response, seed in zip(given[:ONE_BY_ONE], seeds, strict=False):
                replay(response, seed, schedule, boundaries)
            return min(ONE_BY_ONE, responses) * length / (time.perf_counter() - start)

        for manner, case in (("in one call", at_once), ("one by one", one_by_one)):
            cases[f"{kind}, {manner}"] = case
            count = responses if case is at_once else min(ONE_BY_ONE, responses)
            sizes[f"{kind}, {manner}"] = (kind, manner, count)
    if all(name in results for name in cases):
        return
    samples = run_rounds(cases, rounds)
    for name, sample in samples.items():
        kind, manner, count = sizes[name]
        figures = {"token_ids": kind, "manner": manner, "responses": count, "length": length}
        results.add(name, figures | {"unit": "tokens a second"} | sample.as_json())


def table(content: Mapping[str, Any]) -> Table:
    """Million tokens a second by kind of token ids."""
    rows = []
    for case in content["cases"].values():
        millions = {key: case[key] / 1e6 for key in ("median", "low", "high")}
        shape = f"{case['responses']:,} of {case['length']:,} tokens, {case['manner']}"
        rows.append([case["token_ids"], shape, spread(millions)])
    return Table(
        title="Replay",
        columns=["token ids as", "responses", "million tokens a second"],
        rows=rows,
        unit="word schedule, on one core",
    )
