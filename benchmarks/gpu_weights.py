"""Weight syncs, sleep and waking up of one pair, by mode: seconds, and memory given back."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from functools import partial
from typing import Any

from checkpoints import BYTES, TINY_SENIOR
from engine_process import EngineProcess
from gpu_pairs import Pair, measure_engines, notes_of
from results import Results
from table import Table

DROPPED = (
    "vLLM's CPU build packed this model's weights and dropped what it packed them from: nothing "
    "can be loaded into it again."
)
SYNCS, SLEEPS = 5, 2
"""Rounds; of the sleeps of each level the first takes memory of the host, and is told apart."""


def measure(pair: Pair, results: Results, toy: bool) -> None:
    """One case an engine. A CPU has no sleep: a toy is synced only."""
    # The trainer's copy of the weights lies beside the engine.
    more = {} if toy else {"enable_sleep_mode": True, "gpu_memory_utilization": 0.6}
    engines = dict.fromkeys(("single", "lockstep", "speculative"))
    measure_engines(pair, engines, partial(_figures, pair, toy=toy), results, toy, **more)


def _figures(pair: Pair, engine: EngineProcess, *, toy: bool) -> dict[str, Any]:
    if toy and engine.ask("memory")["senior_bytes"] < TINY_SENIOR.parameters * BYTES:
        return {"passed": None, "found": DROPPED, "runner": engine.ask("runner"), "rows": []}
    senior, _ = pair.checkpoints(toy)
    syncs = engine.ask("sync", str(senior), SYNCS)
    rows = [{"what": "weight sync", "seconds": statistics.median(syncs), "rounds": syncs}]
    for level in () if toy else (1, 2):
        for number in range(SLEEPS):
            found = engine.ask("sleep", level, str(senior))
            which = "first" if number == 0 else "later"
            given = found["gib_given_back"]
            rows.append(
                {"what": f"sleep, level {level}, {which}", "seconds": found["sleep"], "gib": given}
            )
            rows.append({"what": f"wake up, level {level}, {which}", "seconds": found["wake"]})
    return {"runner": engine.ask("runner"), "rows": rows}


def table(pair: Pair, content: Mapping[str, Any]) -> Table:
    """Seconds by engine."""
    cases = content["cases"]
    rows = [
        [
            mode,
            case["runner"],
            row["what"],
            f"{row['seconds']:.3f}",
            f"{row['gib']:.1f}" if "gib" in row else "",
        ]
        for mode, case in cases.items()
        for row in case["rows"]
    ]
    return Table(
        title=f"Weights and sleep: {pair.title}",
        columns=["engine", "runner", "what", "seconds", "GiB given back"],
        rows=rows,
        unit="seconds; each engine alone on the device",
        notes=[
            "A sync is `load_weights` of the senior's tensors by their plain names, in one bucket, "
            "from tensors that lie on the device: the median of rounds. Waking up at level 2 does "
            "not count the sync that follows it.",
            *notes_of(cases),
        ],
    )
