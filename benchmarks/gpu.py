"""What tandem costs on a GPU: ``make bench-gpu``, or ``python benchmarks/gpu.py --part 1.7b``.

Throughput of the senior alone, in lockstep and speculative at batch 1, 16, 64 and 256, memory,
weight syncs and sleep, with random models at the widths of Qwen3 made on the spot. Each engine has
the GPU to itself, with vLLM's own defaults but for the arguments under the table; its batch sizes
are measured in turn, in rounds after a warm-up. Each figure is printed when it is there.
Each part is ended within four minutes and can be run alone; started again, it goes on where it
stopped. ``--list`` says what the parts are. ``--prompt 512 --decoded 3000`` measures throughput at
these lengths instead of short ones; give them an ``--out`` and a ``--limit`` of their own.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from checkpoints import BYTES, TINY_SENIOR
from engine_process import EngineProcess, draft_figures
from gpu_pairs import (
    PAIRS,
    Lengths,
    Pair,
    arguments,
    lengths_of,
    measure_engines,
    notes_of,
)
from parts import Part, main
from results import Results, Table, spread
from rounds import run_rounds, summary

DROPPED = (
    "vLLM's CPU build packed this model's weights and dropped what it packed them from: nothing "
    "can be loaded into it again."
)
SYNCS, SLEEPS = 5, 2
"""Rounds; of the sleeps of each level the first takes memory of the host, and is told apart."""


def measure_throughput(
    pair: Pair, prompt: int | None, decoded: int | None, results: Results, toy: bool
) -> None:
    """All batch sizes of the senior alone, in lockstep, and with four drafts."""
    engines = {"single": None, "lockstep": None, "speculative": 4}
    lengths = lengths_of(toy, prompt, decoded)
    figures = partial(_speeds, pair, lengths, toy=toy)
    measure_engines(pair, engines, figures, results, toy, lengths.longest)


def _speeds(
    pair: Pair,
    lengths: Lengths,
    engine: EngineProcess,
    keep: Callable[[dict[str, Any]], None],
    *,
    toy: bool,
) -> dict[str, Any]:
    tokens = lengths.decoded
    counters: dict[int, Counter[str]] = {batch: Counter() for batch in tokens}
    about = {
        "lengths": str(lengths),
        "runner": engine.ask("runner"),
        "memory": engine.ask("memory"),
        "engine_arguments": arguments(toy, lengths.longest),
        "parameters": [pair.senior.parameters, pair.junior.parameters],
    }

    def speed(batch: int) -> float:
        stretch = engine.stretch(batch, tokens[batch], prompts=lengths.prompts(batch))
        counters[batch].update(stretch.drafted)
        return stretch.tokens / stretch.seconds

    def found(samples: Mapping[str, list[float]]) -> dict[str, Any]:
        rows = [
            {"batch": batch, **summary(samples[str(batch)]), **draft_figures(counters[batch])}
            for batch in tokens
            if samples[str(batch)]
        ]
        return {**about, "rows": rows}

    def measured(batch: str, samples: Mapping[str, list[float]]) -> None:
        last = f"batch {batch}, {samples[batch][-1]:,.1f} decoded tokens per second"
        keep(found(samples) | {"last": last})

    each = {str(batch): partial(speed, batch) for batch in tokens}
    return found(run_rounds(each, lengths.rounds, measured))


def throughput_table(pair: Pair, content: Mapping[str, Any]) -> Table:
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
        notes.append(f"{some['lengths']}; temperature 1; schedule word, p = 0.5. {given}.")
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


def measure_weights(pair: Pair, results: Results, toy: bool) -> None:
    """One case an engine. A CPU has no sleep: a toy is synced only."""
    # The trainer's copy of the weights lies beside the engine.
    more = {} if toy else {"enable_sleep_mode": True, "gpu_memory_utilization": 0.6}
    engines = dict.fromkeys(("single", "lockstep", "speculative"))
    measure_engines(pair, engines, partial(_seconds, pair, toy=toy), results, toy, **more)


def _seconds(
    pair: Pair, engine: EngineProcess, keep: Callable[[dict[str, Any]], None], *, toy: bool
) -> dict[str, Any]:
    runner = engine.ask("runner")
    if toy and engine.ask("memory")["senior_bytes"] < TINY_SENIOR.parameters * BYTES:
        return {"passed": None, "found": DROPPED, "runner": runner, "rows": []}
    senior, _ = pair.checkpoints(toy)
    rows: list[dict[str, Any]] = []

    def add(what: str, seconds: float, **more: Any) -> None:
        rows.append({"what": what, "seconds": seconds, **more})
        keep({"runner": runner, "rows": rows, "last": f"{what}, {seconds:.3f} s"})

    syncs = engine.ask("sync", str(senior), SYNCS)
    add("weight sync", statistics.median(syncs), rounds=syncs)
    for level in () if toy else (1, 2):
        for number in range(SLEEPS):
            found = engine.ask("sleep", level, str(senior))
            which = "first" if number == 0 else "later"
            add(f"sleep, level {level}, {which}", found["sleep"], gib=found["gib_given_back"])
            add(f"wake up, level {level}, {which}", found["wake"])
    return {"runner": runner, "rows": rows}


def weights_table(pair: Pair, content: Mapping[str, Any]) -> Table:
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


def _prepared(measure: Callable[..., None], *arguments: Any) -> Callable[[Results, bool], None]:
    """What a part does, in the environment of all engines."""

    def run(results: Results, toy: bool) -> None:
        chosen = {"VLLM_ALLOW_INSECURE_SERIALIZATION": "1", "VLLM_WORKER_MULTIPROC_METHOD": "spawn"}
        if toy:
            chosen["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
        for name, value in chosen.items():
            os.environ.setdefault(name, value)
        measure(*arguments, results, toy)

    return run


def parts_at(prompt: int | None, decoded: int | None) -> list[Part]:
    """The parts; throughput at these lengths, or at the usual ones."""
    parts = []
    for name, pair in PAIRS.items():
        measure = _prepared(measure_throughput, pair, prompt, decoded)
        table: Any = partial(throughput_table, pair)
        parts.append(Part(name, f"{pair.title}: throughput and memory", measure, table))
    for name in ("1.7b", "4b"):
        pair, table = PAIRS[name], partial(weights_table, PAIRS[name])
        measure = _prepared(measure_weights, pair)
        parts.append(
            Part(f"weights-{name}", f"{pair.title}: weight syncs and sleep", measure, table)
        )
    return parts


def _lengths() -> tuple[argparse.Namespace, list[str]]:
    """The options of lengths, and the other arguments."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--prompt", type=int, help="tokens of a prompt")
    parser.add_argument("--decoded", type=int, help="tokens of a response")
    return parser.parse_known_args()


if __name__ == "__main__":
    chosen, others = _lengths()
    options = [f"--{name}={n}" for name, n in vars(chosen).items() if n is not None]
    parts = parts_at(chosen.prompt, chosen.decoded)
    purpose = f"{str(__doc__).splitlines()[0]} Also: --prompt TOKENS, --decoded TOKENS."
    sys.exit(main(Path(__file__).resolve(), purpose, parts, others, options=options))
