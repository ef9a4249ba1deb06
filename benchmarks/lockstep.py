"""Decoding in lockstep against vLLM with the senior alone: tokens a second, and the ratio.

Random models in float32, the senior of 0.24 billion parameters;
one junior of the same size and one that reads about a sixth of the weights a step. The engines have
the same arguments and the same prompts, ignore the end of text, and are alive together: in every
round each takes a few decoding steps in turn. A ratio is taken within a round.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

from checkpoints import SENIOR, SMALL_JUNIOR, TINY_JUNIOR, TINY_SENIOR, make
from engine_process import ENGINE_ARGUMENTS, PROMPT, EngineProcess, environment
from results import Results, Table, spread
from rounds import ratio, run_rounds, summary

STEPS, ROUNDS = {1: 8, 16: 8, 64: 4}, 11
"""Decoding steps an engine takes in a round, by batch size: few in many rounds, so that what else
the machine does meets all engines alike."""


def measure(results: Results, toy: bool) -> None:
    """One case a batch size and engine."""
    senior_shape, small_shape = (TINY_SENIOR, TINY_JUNIOR) if toy else (SENIOR, SMALL_JUNIOR)
    steps_at, rounds = ({1: 3, 16: 3}, 1) if toy else (STEPS, ROUNDS)
    missing = [batch for batch in steps_at if f"single model/{batch}" not in results]
    if not missing:
        return
    folder = results.path.parent / "checkpoints"
    senior, small = make(folder, senior_shape), make(folder, small_shape)
    juniors = {"single model": None, "with an equal junior": senior, "with a small junior": small}
    with ExitStack() as stack:
        engines = {
            name: stack.enter_context(EngineProcess(senior, junior))
            for name, junior in juniors.items()
        }
        for batch in missing:
            steps = steps_at[batch]
            cases = {name: partial(_speed, one, batch, steps) for name, one in engines.items()}
            samples = run_rounds(cases, rounds)
            # The single model last: with it the batch size is complete.
            for name, sample in reversed(samples.items()):
                figures = {"engine": name, "batch": batch, "steps_a_round": steps}
                figures |= {"unit": "decoded tokens per second", **summary(sample)}
                single = samples["single model"]
                figures["ratio_to_single"] = summary(ratio(sample, single))
                chosen = environment()
                figures["preloaded"] = chosen.get("LD_PRELOAD", "").rpartition("/")[2]
                figures["threads"] = int(chosen["OMP_NUM_THREADS"])
                results.add(f"{name}/{batch}", figures | {"engine_arguments": ENGINE_ARGUMENTS})


def _speed(engine: EngineProcess, batch: int, steps: int) -> float:
    """Decoded tokens per second, without the first step, which reads the prompts, and the last."""
    stretch = engine.stretch(batch, steps + 2)
    return stretch.tokens / stretch.seconds


def table(content: Mapping[str, Any]) -> Table:
    """Tokens a second and the ratio to the single model, by engine and batch size."""
    cases = sorted(
        content["cases"].values(), key=lambda one: (one["batch"], one["engine"] != "single model")
    )
    rows = [
        [
            str(case["batch"]),
            case["engine"],
            spread(case),
            "" if case["engine"] == "single model" else spread(case["ratio_to_single"]),
        ]
        for case in cases
    ]
    some = cases[0]
    preloaded = some["preloaded"] or "no OpenMP library"
    arguments = ", ".join(f"{key}={value}" for key, value in some["engine_arguments"].items())
    return Table(
        title="Lockstep",
        columns=[
            "batch",
            "engine",
            "decoded tokens per second",
            "ratio to the single model",
        ],
        rows=rows,
        unit="median of rounds, with the lowest and the highest",
        notes=(
            f"Every engine: prompts of {PROMPT} tokens, {preloaded} preloaded, on "
            f"{some['threads']} of the cores, {arguments}.",
            "In a tandem engine both models run for every token, whoever writes it.",
        ),
    )
