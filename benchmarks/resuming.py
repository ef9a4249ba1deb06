"""How long requests that resume keep a step waiting: their authors so far, derived anew.

``python benchmarks/resuming.py``: on one core. 256 requests of 8,000 random tokens enter a batch in
one step, as after preemption, a weight sync that pauses, or a turn of a conversation; timed is all
that tandem does until it can say who writes the next token of each, draws for the whole length of
the model included. Once more with a schedule that has no ``walk``, as a plugin's may have none, and
is stepped through; and with as many requests that begin. Seconds are those that the core worked on
it: the step's, where it does nothing else beside.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from command import progress_bar, run_benchmark
from machine import keep_to_one_core
from results import Results
from rounds import run_rounds
from table import Table, spread

__all__ = ["NAME", "measure", "table"]

NAME = "resuming"

REQUESTS, LENGTH, POSITIONS, VOCABULARY = 256, 8000, 16_384, 151_936


def measure(results: Results, quick: bool, device: str = "cpu") -> None:
    """Every case on both runners' bindings, in turn in every round.

    device: where Model Runner V2 keeps authors. On a GPU seconds are those that pass until the
    device has what it needs.
    """
    keep_to_one_core()
    requests, length, positions, rounds = (4, 50, 100, 2) if quick else (
        REQUESTS, LENGTH, POSITIONS, 9,
    )  # fmt: skip
    walking, stepped = _rules()
    responses = np.random.default_rng(1).integers(0, VOCABULARY, (requests, length)).tolist()
    begins: list[list[int]] = [[] for _ in responses]
    given = {
        "word": (walking, responses),
        "word, without walk": (stepped, responses),
        "word, requests that begin": (walking, begins),
    }
    cases: dict[str, Callable[[], float]] = {}
    sizes: dict[str, tuple[str, str, int]] = {}
    for what, (rule, outputs) in given.items():
        on_device = partial(_on_device, device=device)
        for runner, readmission in (("V1", _on_host), ("V2", on_device)):
            name = f"{runner} {what}"
            cases[name] = readmission(rule, outputs, positions)
            sizes[name] = (runner, what, len(outputs[0]))
    if all(name in results for name in cases):
        return
    with progress_bar() as progress:
        task = progress.add_task("re-admissions", total=len(cases) * (rounds + 1))
        samples = run_rounds(cases, rounds, lambda: progress.advance(task))
    for name, sample in samples.items():
        runner, what, tokens = sizes[name]
        figures = {"runner": runner, "what": what, "requests": requests, "length": tokens}
        results.add(name, figures | {"unit": "seconds", "device": device} | sample.as_json())


def _rules() -> tuple[Any, Any]:
    """The word schedule, and one with the same steps that has no walk of its own."""
    from tandem_plugin import BoundarySet
    from tandem_plugin.rules import Rule
    from tandem_plugin.schedules import WordSchedule

    @dataclass(frozen=True, slots=True)
    class Stepped(WordSchedule):
        name: ClassVar[str] = "stepped"

        def advance(self, author: Any, run: Any, is_boundary: Any, u: Any) -> tuple[Any, Any]:
            return WordSchedule.advance(self, author, run, is_boundary, u)

    boundaries = BoundarySet("word", np.random.default_rng(0).random(VOCABULARY) < 0.35)
    return Rule(WordSchedule(), boundaries, "w"), Rule(Stepped(), boundaries, "s")


def _on_host(rule: Any, outputs: list[list[int]], positions: int) -> Callable[[], float]:
    from tandem_plugin.engine.record import AuthoredRequest
    from tandem_plugin.engine.runners.v1.authors import BatchAuthors

    batch = BatchAuthors(len(outputs), positions + 1)

    def run() -> float:
        start = time.process_time()
        for row, output in enumerate(outputs):
            batch.add(row, AuthoredRequest(rule, row, output), positions)
        batch.next_authors(len(outputs))
        spent = time.process_time() - start
        for row in range(len(outputs)):
            batch.remove(row)
        return spent

    return run


def _on_device(
    rule: Any, outputs: list[list[int]], positions: int, device: str
) -> Callable[[], float]:
    import torch

    from tandem_plugin.engine.runners.v2.authors import DeviceAuthors

    size = (len(outputs), positions + 1)
    if device == "cpu":
        draws = np.zeros(size)
        view = torch.from_numpy(draws)
    else:
        from tandem_plugin.engine.runners.v2.state import shared_memory

        draws, view = shared_memory(size, torch.float64)
    authors = DeviceAuthors(draws, view, VOCABULARY, torch.device(device), record=False)

    def now() -> float:
        if device == "cpu":
            return time.process_time()
        torch.cuda.synchronize()
        return time.perf_counter()

    def run() -> float:
        start = now()
        slot_requests = [
            authors.add(slot, rule, slot, output, positions) for slot, output in enumerate(outputs)
        ]
        authors.write_staged()
        spent = now() - start
        for slot_request in slot_requests:
            authors.remove(slot_request)
        return spent

    return run


def table(content: Mapping[str, Any]) -> Table:
    """Seconds by schedule and model runner."""
    rows = [
        [
            case["what"],
            case["runner"],
            f"{case['requests']:,} of {case['length']:,} tokens",
            spread(case),
        ]
        for case in content["cases"].values()
    ]
    return Table(
        title="Resuming",
        columns=["schedule", "runner", "requests", "seconds"],
        rows=rows,
        unit=_UNITS[next(iter(content["cases"].values())).get("device", "cpu")],
        notes=(
            f"Draws are generated for the whole length of the model, {POSITIONS:,} positions. "
            "Without walk: the same schedule, as a plugin may bring it, by one step a position "
            "for all requests together.",
        ),
    )


_UNITS = {
    "cpu": "seconds of one core's time",
    "cuda": "seconds; V1's of one core's time, V2's until the GPU has what it needs",
}


if __name__ == "__main__":
    run_benchmark(NAME, "How long requests that resume keep a step waiting.", measure)
