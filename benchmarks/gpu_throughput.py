"""Throughput and memory of one pair: the senior alone, in lockstep, speculative, by batch size.

Each engine has the GPU to itself, with vLLM's own defaults but for the arguments under the table;
its batch sizes are measured in turn, in rounds after a warm-up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any

from engine_process import PROMPT, EngineProcess, draft_figures
from gpu_pairs import Pair, arguments, measure_engines, notes_of
from results import Results
from rounds import run_rounds
from table import Table, spread

TOKENS = {1: 128, 16: 96, 64: 96, 256: 96}
"""Tokens of each response, by batch size."""
TOY_TOKENS = {1: 12, 4: 12}
ROUNDS = 3


def measure(pair: Pair, results: Results, toy: bool) -> None:
    """All batch sizes of the senior alone, in lockstep, and with four drafts."""
    engines = {"single": None, "lockstep": None, "speculative": 4}
    measure_engines(pair, engines, partial(_figures, pair, toy=toy), results, toy)


def _figures(pair: Pair, engine: EngineProcess, *, toy: bool) -> dict[str, Any]:
    tokens, rounds = (TOY_TOKENS, 1) if toy else (TOKENS, ROUNDS)
    counters: dict[int, Counter[str]] = {batch: Counter() for batch in tokens}

    def speed(batch: int) -> float:
        stretch = engine.stretch(batch, tokens[batch])
        counters[batch].update(stretch.drafted)
        return stretch.tokens / stretch.seconds

    samples = run_rounds({str(batch): partial(speed, batch) for batch in tokens}, rounds)
    return {
        "runner": engine.ask("runner"),
        "memory": engine.ask("memory"),
        "engine_arguments": arguments(toy),
        "parameters": [pair.senior.parameters, pair.junior.parameters],
        "rows": [
            {"batch": batch, **samples[str(batch)].as_json(), **draft_figures(counters[batch])}
            for batch in tokens
        ],
    }


def table(pair: Pair, content: Mapping[str, Any]) -> Table:
    """Tokens a second, the ratio to the senior alone, drafts, and memory."""
    cases = content["cases"]
    single = {row["batch"]: row["median"] for row in cases.get("single", {}).get("rows", [])}
    rows = [
        _row(name, case, row, single)
        for name, case in cases.items()
        for row in sorted(case["rows"], key=lambda row: row["batch"])
    ]
    notes = [
        f"{name}: {_memory(case['memory'])}." for name, case in cases.items() if "memory" in case
    ]
    notes += notes_of(cases)
    some = next((case for case in cases.values() if "engine_arguments" in case), None)
    if some:
        given = ", ".join(f"{key}={value}" for key, value in some["engine_arguments"].items())
        notes.append(f"Prompts of {PROMPT} tokens; temperature 1; schedule word, p = 0.5. {given}.")
    return Table(
        title=f"Throughput: {pair.title}",
        columns=[
            "engine",
            "runner",
            "batch",
            "decoded tokens per second",
            "ratio to the single model",
            "acceptance",
            "tokens per round",
        ],
        rows=rows,
        unit="median of rounds, with the lowest and the highest; each engine alone on the device",
        notes=notes,
    )


def _row(
    name: str, case: Mapping[str, Any], row: Mapping[str, Any], single: Mapping[int, float]
) -> list[str]:
    base = single.get(row["batch"])
    return [
        name,
        case["runner"],
        str(row["batch"]),
        spread(row),
        "" if base is None or name == "single" else f"{row['median'] / base:.2f}",
        f"{row['acceptance']:.3f}" if "acceptance" in row else "",
        f"{row['tokens_per_round']:.2f}" if "tokens_per_round" in row else "",
    ]


def _memory(found: Mapping[str, int]) -> str:
    gib = 2**30
    said = (
        f"weights {found['senior_bytes'] / gib:.2f} GiB (senior) and "
        f"{found['junior_bytes'] / gib:.2f} GiB (junior), room for "
        f"{found['blocks'] * found['block_size']:,} tokens in {found['blocks']:,} KV blocks"
    )
    if "device_bytes" not in found:
        return said
    return (
        f"{said}, {found['device_bytes'] / gib:.1f} of the device's "
        f"{found['device_total_bytes'] / gib:.1f} GiB in use"
    )
