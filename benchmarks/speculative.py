"""Decoding in the speculative mode against vLLM with the senior alone, and against lockstep.

``python benchmarks/speculative.py``, vLLM from 0.29: by batch size, with four drafts a round; on
models of one's own ``tandem drafts`` compares numbers of drafts. Without a GPU the models run
compiled, as in any engine on a CPU, and Model Runner V2's own kernels in Triton's interpreter; the
vocabulary is small, since the interpreter's time grows with it.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from checkpoints import LARGE_JUNIOR, LOGITS, TINY_JUNIOR, TINY_SENIOR, Shape, make
from engine_process import (
    ENGINE_ARGUMENTS,
    PROMPT,
    EngineProcess,
    Own,
    Prompts,
    draft_figures,
    environment,
)
from parts import Part, main
from results import Results, Table, spread
from rounds import ratio, run_rounds, summary

SENIOR = LARGE_JUNIOR
SMALL_JUNIOR = Shape(512, 1536, layers=5, heads=4, kv_heads=2, head_dim=128, vocabulary=512)
DRAFTS = 4
SOLO = {"schedule": "solo"}
"""A schedule under which the senior writes every token, as the single model does."""


@dataclass(frozen=True, slots=True)
class Size:
    """What is measured of a batch size: the interpreter's time grows with it."""

    tokens: int
    """Of each response."""
    rounds: int
    drafting: bool = True
    """Whether in the speculative mode as well."""


SIZES = {1: Size(96, 3), 16: Size(32, 3), 64: Size(16, 3), 256: Size(12, 2, drafting=False)}
REAL_SIZES = {1: Size(10, 3)}
"""Of SmolLM2, whose vocabulary of 49,152 takes the interpreter seconds a step."""
REAL = Path("runs/study-real")
"""Where ``make study-real`` leaves its seniors and the models they were trained from."""
TOY = {batch: Size(12, 1) for batch in (1, 4)}
SMALL_JUNIOR_AT = 1
"""The batch size that is measured beside a small junior as well."""
ARGUMENTS = {
    "kv_cache_memory_bytes": 5 * 2**29,
    "max_num_seqs": max(SIZES),
    "max_num_batched_tokens": max(SIZES) * (DRAFTS + 2),
}
"""With room in a step for the drafts of the largest batch: vLLM counts two tokens more for each
request."""
TOY_ARGUMENTS = {"max_num_seqs": 64, "max_num_batched_tokens": 1024}
SINGLE = "single model"
MODELS = (
    f"The senior, and a junior of its size, read {SENIOR.read_parameters / 1e6:,.0f} million "
    f"parameters a pass, the small junior {SMALL_JUNIOR.read_parameters / 1e6:,.0f}; their output "
    f"layers are scaled so that their distributions overlap by about 0.96. Prompts of {PROMPT} "
    "tokens."
)
REAL_MODELS = (
    "SmolLM2-135M-Instruct as `make study-real` trained it, with GRPO or in tandem, beside "
    "its frozen start. Prompts are sums that were in no training."
)
MODES: dict[str, dict[str, Any]] = {
    "lockstep": {},
    "speculative": {"mode": "speculative", "drafts": DRAFTS},
}


def measure(results: Results, toy: bool) -> None:
    """One case a junior and batch size: single models, lockstep and all numbers of drafts."""
    shapes = (TINY_SENIOR, TINY_JUNIOR) if toy else (SENIOR, SMALL_JUNIOR)
    sizes, arguments = (TOY, TOY_ARGUMENTS) if toy else (SIZES, ARGUMENTS)
    folder = results.path.parent / "checkpoints"
    senior = make(folder, shapes[0], 0, LOGITS)
    juniors = {"equal": (shapes[0], [*sizes]), "small junior": (shapes[1], [SMALL_JUNIOR_AT])}
    for name, (shape, chosen) in juniors.items():
        models = (senior, make(folder, shape, 1, LOGITS))
        named = {"junior": name, "models": MODELS}
        _add_cases(results, {batch: sizes[batch] for batch in chosen}, models, named, **arguments)


def measure_real(results: Results, toy: bool) -> None:
    """SmolLM2 after GRPO and after tandem, each beside its frozen start, on sums."""
    junior, seniors = REAL / "models" / "seed-1", REAL / "seniors"
    if not seniors.exists():
        sys.exit(f"There is no {seniors}: `make study-real` makes it.")
    prompts = _sums(junior)
    sizes = dict.fromkeys(REAL_SIZES, Size(4, 1)) if toy else REAL_SIZES
    for method in ("GRPO", "tandem"):
        named = {"junior": method, "models": REAL_MODELS}
        _add_cases(results, sizes, (seniors / method, junior), named, prompts)


def _add_cases(
    results: Results,
    sizes: Mapping[int, Size],
    models: tuple[Path, Path],
    named: Mapping[str, str],
    prompts: Prompts = None,
    **arguments: Any,
) -> None:
    """One case a batch size that has none yet: the senior alone, and both models in every mode."""
    cases = {f"{named['junior']}, batch {batch}": batch for batch in sizes}
    missing = {name: batch for name, batch in cases.items() if name not in results}
    if not missing:
        return
    senior, junior = models
    with ExitStack() as stack:
        engines = {SINGLE: stack.enter_context(EngineProcess(senior, runner="v2", **arguments))}
        for mode, tandem in MODES.items():
            engine = EngineProcess(senior, junior, runner="v2", tandem=tandem, **arguments)
            engines[mode] = stack.enter_context(engine)
        for name, batch in missing.items():
            figures = {**_measure(engines, batch, sizes[batch], prompts), **named}
            results.add(name, figures | {"engine_arguments": ENGINE_ARGUMENTS | arguments})


def _sums(folder: Path) -> list[list[int]]:
    """The prompts of sums that were in no training."""
    sys.path.append(str(Path(__file__).resolve().parents[1] / "examples"))
    from real_model import TAUGHT
    from transformers import AutoTokenizer

    from tandem_plugin.lab.data import read_problems
    from tandem_plugin.lab.data.problem import prompt_ids

    tokenizer = AutoTokenizer.from_pretrained(folder)
    problems = read_problems(f"{TAUGHT},count={max(REAL_SIZES)},seed=99").problems
    return [prompt_ids(one.messages, tokenizer) for one in problems]


def _measure(
    engines: Mapping[str, EngineProcess], batch: int, size: Size, prompts: Prompts = None
) -> dict[str, Any]:
    """Every engine at one batch size; the counters of drafts are summed over rounds."""
    counters: dict[str, Counter[str]] = {}
    walls: dict[str, list[float]] = {}

    def speed(name: str, engine: str, own: Own) -> float:
        stretch = engines[engine].stretch(batch, size.tokens, own, prompts)
        walls.setdefault(name, []).append(stretch.tokens / stretch.wall_seconds)
        counters.setdefault(name, Counter()).update(stretch.drafted)
        return stretch.tokens / stretch.seconds

    cases = {name: partial(speed, name, name, None) for name in (SINGLE, "lockstep")}
    if size.drafting:
        cases["speculative"] = partial(speed, "speculative", "speculative", None)
        cases["speculative, solo"] = partial(speed, "speculative, solo", "speculative", SOLO)
    samples = run_rounds(cases, size.rounds)
    rows = []
    for name, sample in samples.items():
        # The first is of the warm-up.
        row = {"engine": name, "wall": summary(walls[name][1:]), **summary(sample)}
        row["ratio_to_single"] = summary(ratio(sample, samples[SINGLE]))
        row["ratio_to_lockstep"] = summary(ratio(sample, samples["lockstep"]))
        rows.append(row | draft_figures(counters[name]))
    return {
        "batch": batch,
        "rounds": size.rounds,
        "rows": rows,
        "threads": int(environment()["OMP_NUM_THREADS"]),
        "kernels": "compiled" if torch.cuda.is_available() else "interpreted",
    }


def table(content: Mapping[str, Any]) -> Table:
    """Tokens a second and the ratios to single models and lockstep, by batch size."""
    cases = sorted(content["cases"].values(), key=lambda case: (case["batch"], case["junior"]))
    rows = [
        [
            str(case["batch"]),
            row["engine"] if row["engine"] == SINGLE else f"{case['junior']}, {row['engine']}",
            spread(row),
            spread(row["ratio_to_single"]) if row["engine"] != SINGLE else "",
            spread(row["ratio_to_lockstep"]) if "counters" in row else "",
            f"{row['acceptance']:.3f}" if "counters" in row else "",
            f"{row['tokens_per_round']:.2f}" if "counters" in row else "",
            f"{row['wall']['median']:,.1f}",
        ]
        for case in cases
        for row in case["rows"]
    ]
    some = cases[0]
    arguments = ", ".join(f"{key}={value}" for key, value in some["engine_arguments"].items())
    rounds = ", ".join(
        f"{count} at batch {batch}"
        for batch, count in sorted({(case["batch"], case["rounds"]) for case in cases})
    )
    return Table(
        title="Speculative",
        columns=[
            "batch",
            "engine",
            "decoded tokens per second",
            "ratio to the single model",
            "ratio to lockstep",
            "acceptance",
            "tokens per round",
            "tokens per second, wall clock",
        ],
        rows=rows,
        unit=f"median of rounds ({rounds}), with the lowest and the highest",
        notes=(
            f"{DRAFTS} drafts; schedule word, p = 0.5; temperature 1. Every ratio is to the single "
            "model that was measured beside.",
            "Solo: the senior writes every token, as the single model does.",
            f"Model Runner V2's kernels are {some['kernels']}. Speeds and ratios exclude the time "
            "spent in the interpreter, since compiled kernels take microseconds; the last column "
            "includes it.",
            some["models"],
            f"Every engine: {some['threads']} threads, {arguments}.",
        ),
    )


PARTS = [
    Part("speculative", "speculative decoding, beside lockstep", measure, table),
    Part("real", "the same with trained seniors, after `make study-real`", measure_real, table),
]

if __name__ == "__main__":
    script = Path(__file__).resolve()
    sys.exit(main(script, str(__doc__).splitlines()[0], PARTS, gpu=False))
