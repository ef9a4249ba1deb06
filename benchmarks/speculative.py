"""Decoding in the speculative mode against vLLM with the senior alone, and against lockstep.

``python benchmarks/speculative.py``, vLLM from 0.32: models of which a forward pass reads so much
that it takes the time, one request at a time. Without a GPU the models run compiled, as in any
engine on a CPU, and Model Runner V2's own kernels in Triton's interpreter, in all engines but the
one of vLLM's Model Runner V1; the vocabulary is small, since the interpreter's time grows with it.
The ratio that would be left without that time is computed from passes, and named so.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

from checkpoints import LARGE_JUNIOR, LARGE_SENIOR, TINY_JUNIOR, TINY_SENIOR, Shape, make
from command import progress_bar, run_benchmark
from cost_model import ratio_to_single, tokens_per_round
from engine_process import ENGINE_ARGUMENTS, PROMPT, EngineProcess, environment
from results import Results
from rounds import Sample, ratio, run_rounds
from table import Table, spread

__all__ = ["NAME", "measure", "table"]

NAME = "speculative"

LOGITS = 0.07
"""The standard deviation of the logits, at which two such models share 0.96 of a distribution."""
DRAFTS, TOKENS, ROUNDS = (2, 4, 6, 8), 32, 5
ARGUMENTS = {"kv_cache_memory_bytes": 2**28, "max_num_seqs": 4, "max_num_batched_tokens": 512}
SINGLES = {"single model, V1": "v1", "single model, V2": "v2"}


def measure(results: Results, quick: bool) -> None:
    """One case an engine and draft length."""
    shapes = (TINY_SENIOR, TINY_JUNIOR) if quick else (LARGE_SENIOR, LARGE_JUNIOR)
    folder = results.path.parent / "checkpoints"
    senior = make(folder, shapes[0], 0, LOGITS)
    juniors = {"equal": shapes[0], "small junior": shapes[1]}
    engines = [(name, mode) for name in juniors for mode in ("lockstep", "speculative")]
    with ExitStack() as stack, progress_bar() as progress:
        singles: dict[str, EngineProcess] = {}
        for name, mode in engines:
            if f"{name}, {mode}" in results:
                continue
            if not singles:
                for single, runner in SINGLES.items():
                    engine = EngineProcess(senior, runner=runner, **ARGUMENTS)
                    singles[single] = stack.enter_context(engine)
            junior = make(folder, juniors[name], 1, LOGITS)
            with EngineProcess(
                senior, junior, runner="v2", tandem=_settings(mode), **ARGUMENTS
            ) as (engine):
                cost = juniors[name].read_parameters / shapes[0].read_parameters
                _measure(results, singles, engine, f"{name}, {mode}", cost, quick, progress)


def _settings(mode: str) -> dict[str, Any]:
    if mode == "lockstep":
        return {}
    return {"mode": mode, "num_draft_tokens": max(DRAFTS), "adaptive_drafts": True}


def _measure(
    results: Results,
    singles: Mapping[str, EngineProcess],
    engine: EngineProcess,
    name: str,
    cost: float,
    quick: bool,
    progress: Any,
) -> None:
    """One engine beside the single models; the counters of its drafts are summed over rounds."""
    lengths: tuple[int | None, ...] = DRAFTS if name.endswith("speculative") else (None,)
    counters: dict[int | None, dict[str, int]] = {length: {} for length in lengths}

    def speed(one: EngineProcess, drafts: int | None, tokens: int = TOKENS) -> float:
        stretch = one.stretch(1, 12 if quick else tokens, drafts)
        for key, count in stretch.drafted.items():
            counters[drafts][key] = counters[drafts].get(key, 0) + count
        return stretch.tokens / stretch.seconds

    cases = {single: partial(speed, process, None) for single, process in singles.items()}
    cases |= {f"{name}, {length}": partial(speed, engine, length) for length in lengths}
    rounds = 1 if quick else ROUNDS
    task = progress.add_task(name, total=len(cases) * (rounds + 1))
    samples = run_rounds(cases, rounds, partial(progress.advance, task))
    rows = [
        _row(samples[f"{name}, {length}"], samples, length, counters[length], cost)
        for length in lengths
    ]
    figures = {"engine": name, "cost_of_the_junior": cost, "rows": rows}
    figures |= {single: samples[single].as_json() for single in SINGLES}
    results.add(
        name, figures | {"engine_arguments": {**ENGINE_ARGUMENTS, **ARGUMENTS}} | _machine()
    )


def _row(
    sample: Sample,
    samples: Mapping[str, Sample],
    drafts: int | None,
    counters: dict[str, int],
    cost: float,
) -> dict[str, Any]:
    """The figures of one draft length, or of lockstep."""
    found: dict[str, Any] = {"drafts": drafts, **sample.as_json()}
    for single, runner in SINGLES.items():
        found[f"ratio_to_single_{runner}"] = ratio(sample, samples[single]).as_json()
    if drafts is None:
        return {**found, "computed_ratio": 1 / (1 + cost)}
    from tandem_plugin.engine.speculative.draft_stats import DraftStats

    drafted = DraftStats(**counters)
    return {
        **found,
        "counters": counters,
        "acceptance": drafted.acceptance,
        "tokens_per_round": drafted.tokens_per_round,
        "tokens_per_round_of_the_cost_model": tokens_per_round(drafted.acceptance, drafts),
        "forwards_per_token": drafted.forwards_per_token,
        "computed_ratio": ratio_to_single(drafted.tokens_per_round, drafts, cost),
    }


def _machine() -> dict[str, Any]:
    import torch

    return {
        "threads": int(environment()["OMP_NUM_THREADS"]),
        "kernels": "compiled" if torch.cuda.is_available() else "interpreted",
    }


def table(content: Mapping[str, Any]) -> Table:
    """Tokens a second and the ratios to the single model, by engine and draft length."""
    cases = list(content["cases"].values())
    rows = [[single, "", spread(cases[0][single]), "", "", "", "", ""] for single in SINGLES]
    for case in cases:
        for row in case["rows"]:
            drafted = row["drafts"] is not None
            rows.append(
                [
                    case["engine"],
                    str(row["drafts"]) if drafted else "",
                    spread(row),
                    spread(row["ratio_to_single_v1"]),
                    spread(row["ratio_to_single_v2"]),
                    f"{row['acceptance']:.3f}" if drafted else "",
                    f"{row['tokens_per_round']:.2f}" if drafted else "",
                    f"{row['computed_ratio']:.2f}",
                ]
            )
    some = cases[0]
    arguments = ", ".join(f"{key}={value}" for key, value in some["engine_arguments"].items())
    shapes: tuple[Shape, ...] = (LARGE_SENIOR, LARGE_JUNIOR)
    millions = [f"{shape.read_parameters / 1e6:,.0f}" for shape in shapes]
    return Table(
        title="Speculative",
        columns=[
            "engine",
            "drafts a round",
            "decoded tokens a second",
            "ratio to the single model on V1",
            "ratio to the single model on V2",
            "acceptance",
            "tokens a round",
            "computed from passes",
        ],
        rows=rows,
        unit="one request at a time; median of rounds, with the lowest and the highest",
        notes=(
            f"The senior, and a junior of its size, read {millions[0]} million parameters a pass, "
            f"the small junior {millions[1]}; their output layers are scaled so that their "
            "distributions overlap by about 0.96. Schedule word, p = 0.5, temperature 1. The two "
            "single models are those beside the first tandem engine; every ratio is to those "
            "beside its own.",
            f"Model Runner V2's kernels are {some['kernels']}: the engines on V2 carry that, the "
            "one on V1, vLLM's choice on a CPU, does not. The last column is what the measured "
            "tokens a round make of it where the models' passes alone take time.",
            f"Every engine: prompts of {PROMPT} tokens, {some['threads']} threads, {arguments}.",
        ),
    )


if __name__ == "__main__":
    run_benchmark(NAME, "Speculative decoding against the senior alone and lockstep.", measure)
