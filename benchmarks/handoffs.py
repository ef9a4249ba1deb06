"""What a decoding step costs under handoffs that the text decides, relative to the word schedule.

One engine in lockstep answers requests of both schedules in turn: ``call`` of the example plugin,
and ``word`` with p = 1, so that the senior writes every token of either and the rows cost the same.
A model of 0.1 million parameters shows the schedule's share at its largest, one of 0.24 billion at
an ordinary size.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

from checkpoints import SENIOR, TINY_SENIOR, make
from engine_process import ENGINE_ARGUMENTS, PROMPT, EngineProcess
from results import Results, Table, spread
from rounds import ratio, run_rounds, summary

MODELS = {"tiny": TINY_SENIOR, "0.24 billion": SENIOR}
SCHEDULES: dict[str, Mapping[str, Any]] = {"word": {"p": 1.0}, "call": {"schedule": "call"}}
STEPS = {"V1": {1: 100, 64: 40}, "V2": {1: 12, 16: 6}}
"""Decoding steps of a round, by model runner and batch size; for the larger model a quarter."""
ROUNDS = 15


def measure(results: Results, toy: bool) -> None:
    """One case per model, model runner and batch size."""
    for name, shape in MODELS.items():
        if toy and name != "tiny":
            continue
        model = make(results.path.parent / "checkpoints", shape)
        for runner, steps_at in STEPS.items():
            cases = {f"{name}, {runner}, batch {batch}": batch for batch in steps_at}
            if all(case in results for case in cases):
                continue
            with (
                tempfile.TemporaryDirectory() as folder,
                _installed(Path(folder)),
                EngineProcess(model, model, runner=runner.lower()) as engine,
            ):
                for case, batch in cases.items():
                    steps = 3 if toy else steps_at[batch] // (1 if name == "tiny" else 4)
                    figures = _measure(engine, batch, steps, 1 if toy else ROUNDS)
                    named = {"model": name, "runner": runner, "batch": batch, "steps": steps}
                    results.add(case, named | figures)


def _installed(folder: Path) -> AbstractContextManager[None]:
    """Within, the engines' processes find the example plugin."""
    from support.calling_models import installed_handoffs

    return installed_handoffs(folder)


def _measure(engine: EngineProcess, batch: int, steps: int, rounds: int) -> dict[str, Any]:
    """Seconds of a step under each schedule, and their ratio round by round."""

    def seconds(own: Mapping[str, Any]) -> float:
        stretch = engine.stretch(batch, steps + 2, own)
        return stretch.seconds / (stretch.tokens / batch)

    cases = {name: partial(seconds, own) for name, own in SCHEDULES.items()}
    samples = run_rounds(cases, rounds)
    return {
        "unit": "seconds per step",
        **summary(samples["call"]),
        "word": summary(samples["word"]),
        "ratio_to_word": summary(ratio(samples["call"], samples["word"])),
        "ratio_of_best": min(samples["call"]) / min(samples["word"]),
    }


def table(content: Mapping[str, Any]) -> Table:
    """Milliseconds per step of both schedules, and their ratio."""
    rows = []
    for case in content["cases"].values():
        milliseconds = [
            {key: 1e3 * of[key] for key in ("median", "low", "high")} for of in (case["word"], case)
        ]
        rows.append(
            [
                case["model"],
                case["runner"],
                str(case["batch"]),
                *map(spread, milliseconds),
                spread(case["ratio_to_word"]),
                f"{case['ratio_of_best']:.2f}",
            ]
        )
    arguments = ", ".join(f"{key}={value}" for key, value in ENGINE_ARGUMENTS.items())
    return Table(
        title="Steps under handoffs that the text decides",
        columns=["model", "runner", "batch", "word", "call", "ratio", "ratio of the best rounds"],
        rows=rows,
        unit="milliseconds per step; the median of rounds, with the lowest and the highest",
        notes=(
            "The model twice, in lockstep; `word` with p = 1. Without the time in which Model "
            f"Runner V2's kernels are interpreted. Prompts of {PROMPT} tokens, {arguments}.",
        ),
    )
