"""Decoding in the speculative mode against vLLM with the senior alone, and against lockstep.

``python benchmarks/speculative.py``, vLLM from 0.29: by batch size and number of drafts.
Without a GPU the models run compiled, as in any engine on a CPU, and Model Runner V2's own kernels
in Triton's interpreter, in all engines but the one of vLLM's Model Runner V1; the vocabulary is
small, since the interpreter's time grows with it. The ratio that would be left without that time is
computed from passes, and named so.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from checkpoints import LARGE_JUNIOR, TINY_JUNIOR, TINY_SENIOR, Shape, make
from engine_process import ENGINE_ARGUMENTS, PROMPT, EngineProcess, Stretch, environment
from parts import Part, main
from results import Results
from rounds import Sample, ratio, run_rounds
from table import Table, spread

__all__ = ["PARTS", "measure", "table"]

LOGITS = 0.07
"""The standard deviation of the logits, at which two such models share 0.96 of a distribution."""
SENIOR = LARGE_JUNIOR
SMALL_JUNIOR = Shape(512, 1536, layers=5, heads=4, kv_heads=2, head_dim=128, vocabulary=512)
DRAFTS = (2, 4, 8)
SOLO_DRAFTS = 4


@dataclass(frozen=True, slots=True)
class Size:
    """What is measured of a batch size: the interpreter's time grows with it."""

    tokens: int
    """Of each response."""
    rounds: int
    drafts: tuple[int, ...]
    """Numbers of them."""
    small_junior: bool
    """Whether beside a small junior as well."""
    solo: bool = True
    """Whether the schedule of plain GRPO as well."""

    @property
    def places(self) -> tuple[tuple[str | None, int], ...]:
        """A schedule in place of the speculative engine's own, and drafts."""
        found = tuple((None, length) for length in self.drafts)
        return (*found, ("solo", SOLO_DRAFTS)) if self.solo else found


SIZES = {
    1: Size(96, 3, DRAFTS, small_junior=True),
    16: Size(32, 3, (4,), small_junior=False),
    64: Size(16, 3, (4,), small_junior=False),
    256: Size(12, 2, (), small_junior=False, solo=False),
}
TOY = {batch: Size(12, 1, DRAFTS, small_junior=True) for batch in (1, 4)}
ARGUMENTS = {
    "kv_cache_memory_bytes": 5 * 2**29,
    "max_num_seqs": max(SIZES),
    "max_num_batched_tokens": max(SIZES) * (max(DRAFTS) + 2),
}
"""With room in a step for the longest drafts of the largest batch: vLLM counts two tokens more for
each request."""
TOY_ARGUMENTS = {"max_num_seqs": 64, "max_num_batched_tokens": 1024}
SINGLES = {"single model, V1": "v1", "single model, V2": "v2"}


def ratio_to_single(tokens_per_round: float, drafts: int, junior: float) -> float:
    """Computed throughput over a single model's, where a pass costs the same for few tokens as one.

    junior: the cost of the junior's forward pass in the senior's. Decoding is so where reading the
    weights takes the time; what is launched beside the two models is not counted.
    """
    return tokens_per_round / (1 + drafts * junior)


def measure(results: Results, toy: bool) -> None:
    """One case a junior and batch size: single models, lockstep and all numbers of drafts."""
    shapes = (TINY_SENIOR, TINY_JUNIOR) if toy else (SENIOR, SMALL_JUNIOR)
    sizes, arguments = (TOY, TOY_ARGUMENTS) if toy else (SIZES, ARGUMENTS)
    folder = results.path.parent / "checkpoints"
    senior = make(folder, shapes[0], 0, LOGITS)
    with ExitStack() as stack:
        singles: dict[str, EngineProcess] = {}
        for name, shape in {"equal": shapes[0], "small junior": shapes[1]}.items():
            missing = {
                batch: size
                for batch, size in sizes.items()
                if f"{name}, batch {batch}" not in results
                and (size.small_junior or name == "equal")
            }
            if not missing:
                continue
            if not singles:
                for single, runner in SINGLES.items():
                    engine = EngineProcess(senior, runner=runner, **arguments)
                    singles[single] = stack.enter_context(engine)
            junior = make(folder, shape, 1, LOGITS)
            cost = shape.read_parameters / shapes[0].read_parameters
            with ExitStack() as both:
                engines = {
                    mode: both.enter_context(
                        EngineProcess(
                            senior, junior, runner="v2", tandem=_settings(mode), **arguments
                        )
                    )
                    for mode in ("lockstep", "speculative")
                }
                for batch, size in missing.items():
                    case = Case(name, batch, size, cost, arguments)
                    _measure(results, singles, engines, case)


def _settings(mode: str) -> dict[str, Any]:
    if mode == "lockstep":
        return {}
    # Each of them is in the table, of which the benchmark takes one at a time.
    return {"mode": mode, "drafts": dict(enumerate(reversed(DRAFTS), start=1))}


@dataclass(frozen=True, slots=True)
class Case:
    """A kind of junior and a batch size."""

    junior: str
    batch: int
    size: Size
    cost: float
    """A pass of the junior over one of the senior."""
    arguments: dict[str, int]
    """The engines', in place of :data:`engine_process.ENGINE_ARGUMENTS`."""


def _measure(
    results: Results,
    singles: Mapping[str, EngineProcess],
    engines: Mapping[str, EngineProcess],
    case: Case,
) -> None:
    """Every engine at one batch size; the counters of drafts are summed over rounds."""
    batch, tokens, places = case.batch, case.size.tokens, case.size.places
    counters: dict[tuple[str | None, int], dict[str, int]] = {p: {} for p in places}

    walls: dict[str, list[float]] = {}

    def speed(name: str, stretch: Stretch) -> float:
        walls.setdefault(name, []).append(stretch.tokens / stretch.wall_seconds)
        return stretch.tokens / stretch.seconds

    def plain(name: str, one: EngineProcess) -> float:
        return speed(name, one.stretch(batch, tokens))

    def drafting(place: tuple[str | None, int]) -> float:
        schedule, drafts = place
        stretch = engines["speculative"].stretch(batch, tokens, drafts, schedule)
        for key, count in stretch.drafted.items():
            counters[place][key] = counters[place].get(key, 0) + count
        return speed(str(place), stretch)

    cases = {single: partial(plain, single, process) for single, process in singles.items()}
    cases |= {"lockstep": partial(plain, "lockstep", engines["lockstep"])}
    cases |= {str(place): partial(drafting, place) for place in places}
    rounds = case.size.rounds
    samples = run_rounds(cases, rounds)
    wall = {name: Sample(tuple(found[1:])).as_json() for name, found in walls.items()}
    rows = [_compared("lockstep", samples) | {"mode": "lockstep", "drafts": None}]
    rows[0]["computed_ratio"] = 1 / (1 + case.cost)
    rows += [
        _compared(str(place), samples) | _drafted(*place, counters[place], case.cost)
        for place in places
    ]
    for row, name in zip(rows, ("lockstep", *map(str, places)), strict=True):
        row["wall"] = wall[name]
    figures = {
        "junior": case.junior,
        "batch": batch,
        "cost_of_the_junior": case.cost,
        "rounds": rounds,
        "rows": rows,
    }
    figures |= {single: samples[single].as_json() | {"wall": wall[single]} for single in SINGLES}
    results.add(
        f"{case.junior}, batch {batch}",
        figures | {"engine_arguments": {**ENGINE_ARGUMENTS, **case.arguments}} | _machine(),
    )


def _compared(case: str, samples: Mapping[str, Sample]) -> dict[str, Any]:
    """Tokens a second of a tandem engine, and in those of the engines beside it."""
    sample = samples[case]
    found: dict[str, Any] = sample.as_json()
    for single, runner in SINGLES.items():
        found[f"ratio_to_single_{runner}"] = ratio(sample, samples[single]).as_json()
    return found | {"ratio_to_lockstep": ratio(sample, samples["lockstep"]).as_json()}


def _drafted(
    schedule: str | None, drafts: int, counters: dict[str, int], cost: float
) -> dict[str, Any]:
    """What became of drafts, and what that makes of passes."""
    from tandem_plugin.engine.speculative.draft_stats import DraftStats

    drafted = DraftStats(**counters)
    return {
        "mode": "speculative" if schedule is None else f"speculative, {schedule}",
        "drafts": drafts,
        "counters": counters,
        "acceptance": drafted.acceptance,
        "tokens_per_round": drafted.tokens_per_round,
        "computed_ratio": ratio_to_single(drafted.tokens_per_round, drafts, cost),
    }


def _machine() -> dict[str, Any]:
    import torch

    return {
        "threads": int(environment()["OMP_NUM_THREADS"]),
        "kernels": "compiled" if torch.cuda.is_available() else "interpreted",
    }


def _median(sample: Mapping[str, float]) -> str:
    return f"{sample['median']:,.{0 if sample['median'] >= 100 else 1}f}"


def table(content: Mapping[str, Any]) -> Table:
    """Tokens a second and the ratios to single models and lockstep, by batch size and drafts."""
    cases = sorted(content["cases"].values(), key=lambda case: (case["batch"], case["junior"]))
    rows, seen = [], set()
    for case in cases:
        batch = str(case["batch"])
        if batch not in seen:
            rows += [
                [batch, one, "", spread(case[one]), *[""] * 5, _median(case[one]["wall"])]
                for one in SINGLES
            ]
        seen.add(batch)
        for row in case["rows"]:
            drafted = row["mode"] != "lockstep"
            rows.append(
                [
                    batch,
                    f"{case['junior']}, {row['mode']}",
                    str(row["drafts"]) if drafted else "",
                    spread(row),
                    spread(row["ratio_to_single_v2"]),
                    spread(row["ratio_to_lockstep"]) if drafted else "",
                    f"{row['acceptance']:.3f}" if drafted else "",
                    f"{row['tokens_per_round']:.2f}" if drafted else "",
                    f"{row['computed_ratio']:.2f}",
                    _median(row["wall"]),
                ]
            )
    some = cases[0]
    arguments = ", ".join(f"{key}={value}" for key, value in some["engine_arguments"].items())
    rounds = ", ".join(
        f"{count} at batch {batch}"
        for batch, count in sorted({(case["batch"], case["rounds"]) for case in cases})
    )
    millions = [f"{shape.read_parameters / 1e6:,.0f}" for shape in (SENIOR, SMALL_JUNIOR)]
    return Table(
        title="Speculative",
        columns=[
            "batch",
            "engine",
            "drafts per round",
            "decoded tokens per second",
            "ratio to the single model on V2",
            "ratio to lockstep",
            "acceptance",
            "tokens per round",
            "computed from passes",
            "tokens per second, wall clock",
        ],
        rows=rows,
        unit=f"median of rounds ({rounds}), with the lowest and the highest",
        notes=(
            f"The senior, and a junior of its size, read {millions[0]} million parameters a pass, "
            f"the small junior {millions[1]}; their output layers are scaled so that their "
            "distributions overlap by about 0.96. Schedule word, p = 0.5, temperature 1. The two "
            "single models are those beside the first tandem engines of a batch size; every ratio "
            "is to those beside its own.",
            "Solo: the senior writes every token, as the single model does.",
            f"Model Runner V2's kernels are {some['kernels']}. Speeds and ratios exclude the time "
            "spent in the interpreter, since compiled kernels take microseconds; the last column "
            "includes it.",
            '"Computed from passes" applies the cost model to the measured tokens per round; it '
            "holds only at batch 1.",
            f"Every engine: prompts of {PROMPT} tokens, {some['threads']} threads, {arguments}.",
        ),
    )


PARTS = [Part("speculative", "speculative decoding, beside lockstep", measure, table)]

if __name__ == "__main__":
    script = Path(__file__).resolve()
    sys.exit(main(script, str(__doc__).splitlines()[0], PARTS, gpu=False))
