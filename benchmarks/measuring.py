"""What measuring costs: the time of a measured step of decoding in that of one that is not.

``python benchmarks/measuring.py``: the models of ``lockstep.py``. Two engines of the same models,
one of which measures every step and one none, are alive together and take a few steps in turn. An
engine measures one step of so many, so the cost is what a measured step takes more, divided by
that.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

from checkpoints import SENIOR, SMALL_JUNIOR, TINY_JUNIOR, TINY_SENIOR, make
from command import progress_bar, run_benchmark
from engine_process import PROMPT, EngineProcess
from results import Results
from rounds import ratio, run_rounds
from table import Table, spread

from tandem_plugin.config import TandemConfig

__all__ = ["NAME", "measure", "table"]

NAME = "measuring"

STEPS, ROUNDS = {1: 8, 16: 8, 64: 4}, 11
EVERY = TandemConfig().measure_every


def measure(results: Results, quick: bool) -> None:
    """One case a batch size."""
    senior_shape, junior_shape = (TINY_SENIOR, TINY_JUNIOR) if quick else (SENIOR, SMALL_JUNIOR)
    steps_at, rounds = ({1: 3, 16: 3}, 1) if quick else (STEPS, ROUNDS)
    missing = [batch for batch in steps_at if str(batch) not in results]
    if not missing:
        return
    folder = results.path.parent / "checkpoints"
    senior, junior = make(folder, senior_shape), make(folder, junior_shape)
    with ExitStack() as stack, progress_bar() as progress:
        task = progress.add_task("engines start", total=2)
        engines = {}
        for name, every in (("none", 0), ("every", 1)):
            tandem = {"measure_every": every}
            engines[name] = stack.enter_context(EngineProcess(senior, junior, tandem=tandem))
            progress.advance(task)
        runner = engines["none"].runner()
        for batch in missing:
            steps = steps_at[batch]
            cases = {
                name: partial(engine.decode_speed, "lockstep", batch, steps)
                for name, engine in engines.items()
            }
            task = progress.add_task(f"batch {batch}", total=len(cases) * (rounds + 1))
            samples = run_rounds(cases, rounds, partial(progress.advance, task))
            # Speeds: the one that measures nothing over the other is the other's time over its.
            times = ratio(samples["none"], samples["every"])
            results.add(
                str(batch),
                {
                    "batch": batch,
                    "runner": runner,
                    "steps_a_round": steps,
                    "unit": "decoded tokens a second where nothing is measured",
                    **samples["none"].as_json(),
                    "measured_to_plain": times.as_json(),
                    "every": EVERY,
                    "cost": (times.median - 1) / EVERY,
                },
            )


def table(content: Mapping[str, Any]) -> Table:
    """A measured step's time in a plain one's, and the cost at the default, by batch size."""
    cases = sorted(content["cases"].values(), key=lambda case: case["batch"])
    rows = [
        [
            str(case["batch"]),
            spread(case),
            spread(case["measured_to_plain"]),
            f"{100 * case['cost']:.2f} %",
        ]
        for case in cases
    ]
    some = cases[0]
    return Table(
        title="Measuring",
        columns=[
            "batch",
            "tokens a second, none measured",
            "a measured step's time in a plain one's",
            f"cost of one step in {some['every']}",
        ],
        rows=rows,
        unit="median of rounds, with the lowest and the highest",
        notes=(
            f"Lockstep on Model Runner {some['runner']}, with the small junior of the table of "
            f"lockstep and prompts of {PROMPT} tokens. Of a measured step both models' heads run "
            "once more, over all rows.",
        ),
    )


if __name__ == "__main__":
    run_benchmark(NAME, "What measuring costs, in lockstep.", measure)
