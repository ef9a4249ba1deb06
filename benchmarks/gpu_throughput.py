"""Throughput and memory of one pair: the senior alone, in lockstep, speculative, by batch size.

Each engine has the GPU to itself, with vLLM's own defaults but for the arguments under the table;
its batch sizes are measured in turn, in rounds after a warm-up.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from engine_process import PROMPT, EngineProcess, StartError
from gpu_pairs import MODES, Pair, arguments, left_out, sentence_of, start
from results import Results
from rounds import run_rounds
from table import Table, spread

__all__ = ["measure", "table"]

TOKENS = {1: 128, 16: 96, 64: 96, 256: 96}
"""Tokens of each response, by batch size."""
TOY_TOKENS = {1: 12, 4: 12}
DRAFTS: tuple[int | None, ...] = (None, 2, 4, 8)
"""Of the speculative engine; None follows the load."""
LEARNING = 600
"""Tokens of responses by which the engine learns what its steps take, before it is measured."""
ROUNDS = 3


def measure(pair: Pair, results: Results, toy: bool) -> None:
    """One case an engine, all its batch sizes in it."""
    for mode in MODES:
        if mode in results and results.cases[mode].get("passed") is not False:
            continue
        try:
            with start(pair, mode, toy) as engine:
                results.add(mode, _figures(pair, mode, engine, toy))
        except StartError as error:
            passed = None if left_out(error) else False
            results.add(mode, {"passed": passed, "found": sentence_of(error), "rows": []})


def _figures(pair: Pair, mode: str, engine: EngineProcess, toy: bool) -> dict[str, Any]:
    lengths = DRAFTS if mode == "speculative" else (None,)
    tokens, rounds = (TOY_TOKENS, 1) if toy else (TOKENS, ROUNDS)
    places = [(batch, drafts) for batch in tokens for drafts in lengths]
    counters: dict[tuple[int, int | None], dict[str, int]] = {place: {} for place in places}

    def speed(place: tuple[int, int | None]) -> float:
        batch, drafts = place
        stretch = engine.stretch(batch, tokens[batch], drafts)
        for key, count in stretch.drafted.items():
            counters[place][key] = counters[place].get(key, 0) + count
        return stretch.tokens / stretch.seconds

    if mode == "speculative" and not toy:
        for batch in tokens:
            engine.stretch(batch, LEARNING, None)
    samples = run_rounds({str(place): partial(speed, place) for place in places}, rounds)
    return {
        "runner": engine.runner(),
        "memory": engine.memory(),
        "engine_arguments": arguments(toy),
        "parameters": [pair.senior.parameters, pair.junior.parameters],
        "rows": [
            {
                "batch": place[0],
                "drafts": place[1],
                **samples[str(place)].as_json(),
                **_drafted(counters[place]),
            }
            for place in places
        ],
    }


def _drafted(counters: dict[str, int]) -> dict[str, Any]:
    if not counters:
        return {}
    from tandem_plugin.engine.speculative.draft_stats import DraftStats

    drafted = DraftStats(**counters)
    return {
        "counters": counters,
        "acceptance": drafted.acceptance,
        "tokens_per_round": drafted.tokens_per_round,
    }


def table(pair: Pair, content: Mapping[str, Any]) -> Table:
    """Tokens a second, the ratio to the senior alone, drafts, and memory."""
    cases = content["cases"]
    single = {row["batch"]: row["median"] for row in cases.get("single", {}).get("rows", [])}
    rows = [
        _row(mode, case, row, single)
        for mode, case in cases.items()
        for row in sorted(case["rows"], key=lambda row: (row["batch"], row["drafts"] or 0))
    ]
    notes = [
        f"{mode}: {_memory(case['memory'])}." for mode, case in cases.items() if "memory" in case
    ]
    notes += [f"{mode}: {case['found']}" for mode, case in cases.items() if "found" in case]
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
            "drafts a round",
            "decoded tokens a second",
            "ratio to the single model",
            "acceptance",
            "tokens a round",
        ],
        rows=rows,
        unit="median of rounds, with the lowest and the highest; each engine alone on the device",
        notes=notes,
    )


def _row(
    mode: str, case: Mapping[str, Any], row: Mapping[str, Any], single: Mapping[int, float]
) -> list[str]:
    drafts = "following" if row["drafts"] is None else str(row["drafts"])
    base = single.get(row["batch"])
    return [
        mode,
        case["runner"],
        str(row["batch"]),
        drafts if mode == "speculative" else "",
        spread(row),
        "" if base is None or mode == "single" else f"{row['median'] / base:.2f}",
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
