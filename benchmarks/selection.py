"""What tandem adds to each decoding step: taking tokens in, the schedule, and the rows' selection.

``python benchmarks/selection.py``: on one core. Responses of random tokens grow by one token a
step under the word schedule; a step then

- says who writes next (authors): reads what the engine sampled, advances the schedule;
- hands each row to its author's head (selection): the composite model's own code, with heads that
  compute nothing. How long it takes to put the two heads' logits back in order depends on the size
  of the vocabulary, since it moves them in memory: measured apart, with Qwen's vocabulary.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np
from command import progress_bar, run_benchmark
from machine import keep_to_one_core
from results import Results
from rounds import run_rounds
from table import Table, spread

__all__ = ["AUTHORS", "NAME", "Authors", "measure", "table"]

NAME = "selection"

BATCHES = (1, 16, 64, 256, 1024)
VOCABULARY, HIDDEN = 151_936, 1024
LARGEST_LOGITS = 256
"""Rows up to which logits over the whole vocabulary are moved: memory."""
RULES = {"one schedule": 1, "four schedules": 4}


class Authors(Protocol):
    """A way of keeping the authors of a batch, as a model runner's binding has it."""

    def sample(self) -> None:
        """Every row gets one more token, as from the sampler; not measured."""
        ...

    def step(self) -> Any:
        """Take the tokens in and say who writes next; measured."""
        ...


class HostAuthors:
    """:class:`tandem_plugin.engine.authors.BatchAuthors`, which Model Runner V1 is bound to."""

    def __init__(self, rows: int, steps: int, rules: int) -> None:
        from tandem_plugin import BoundarySet, make_schedule
        from tandem_plugin.engine.authors import BatchAuthors, Passage
        from tandem_plugin.rules import Rule

        random = np.random.default_rng(0)
        boundaries = BoundarySet("word", random.random(VOCABULARY) < 0.35)
        choices = [
            Rule(make_schedule("word", {"cap": 32 + i}), boundaries, str(i)) for i in range(rules)
        ]
        self._rows = rows
        self._tokens = random.integers(0, VOCABULARY, (steps, rows)).tolist()
        self._outputs: list[list[int]] = [[] for _ in range(rows)]
        self._batch = BatchAuthors(rows, steps + 1)
        for row, output in enumerate(self._outputs):
            self._batch.add(row, Passage(choices[row % rules], row, output), steps)
        self._step = 0

    def sample(self) -> None:
        for output, token in zip(self._outputs, self._tokens[self._step], strict=True):
            output.append(token)
        self._step += 1

    def step(self) -> Any:
        return self._batch.next_authors(self._rows)


AUTHORS: Mapping[str, Callable[[int, int, int], Authors]] = {"V1": HostAuthors}
"""By model runner: given rows, steps and how many different schedules are in the batch."""


def measure(results: Results, quick: bool) -> None:
    """One case a batch size, all sizes in turn in every round."""
    keep_to_one_core()
    batches = (1, 16) if quick else BATCHES
    steps, rounds = (20, 2) if quick else (200, 9)
    cases: dict[str, Callable[[], float]] = {}
    for rows in batches:
        for runner in AUTHORS:
            for label, rules in RULES.items():
                cases[f"authors {runner} {label}/{rows}"] = _authors(runner, rows, steps, rules)
        cases[f"selection/{rows}"] = _selection(rows, 1, steps)
        if rows <= LARGEST_LOGITS:
            cases[f"logits/{rows}"] = _selection(rows, VOCABULARY, 3 if quick else 5)
    if all(case in results for case in cases):
        return
    with progress_bar() as progress:
        task = progress.add_task("steps", total=len(cases) * (rounds + 1))
        samples = run_rounds(cases, rounds, lambda: progress.advance(task))
    for case, sample in samples.items():
        part, _, rows_text = case.partition("/")
        results.add(
            case,
            {"part": part, "rows": int(rows_text), "unit": "microseconds a step"}
            | sample.as_json(),
        )


def _authors(runner: str, rows: int, steps: int, rules: int) -> Callable[[], float]:
    def run() -> float:
        authors = AUTHORS[runner](rows, steps, rules)
        authors.step()
        times = []
        for _ in range(steps):
            authors.sample()
            start = time.perf_counter()
            authors.step()
            times.append(time.perf_counter() - start)
        return statistics.median(times) * 1e6

    return run


def _selection(rows: int, vocabulary: int, steps: int) -> Callable[[], float]:
    """The composite's ``compute_logits`` between two heads that return what they have."""
    import torch

    from tandem_plugin.engine import composite
    from tandem_plugin.engine.board import AuthorBoard

    def head(logits: torch.Tensor) -> Any:
        return lambda *arguments: logits[: arguments[-1].shape[0]]

    @torch.inference_mode()  # as vLLM runs models
    def run() -> float:
        board = AuthorBoard()
        board.bind()
        prepared = torch.zeros((rows, vocabulary))
        model = SimpleNamespace(
            tandem_hidden_size=HIDDEN,
            tandem_board=board,
            _senior=SimpleNamespace(compute_logits=head(prepared)),
            junior=SimpleNamespace(compute_logits=head(prepared)),
        )
        hidden = torch.zeros((rows, 2 * HIDDEN))
        authors = np.random.default_rng(0).random((steps, rows)) < 0.5
        times = []
        for chosen in authors:
            board.post(chosen)
            start = time.perf_counter()
            composite._compute_logits(model, hidden)
            times.append(time.perf_counter() - start)
        return statistics.median(times) * 1e6

    return run


def table(content: Mapping[str, Any]) -> Table:
    """Microseconds a step by batch size."""
    cases = content["cases"]
    columns = {
        **{
            f"authors, {label}, {runner}": f"authors {runner} {label}"
            for runner in AUTHORS
            for label in RULES
        },
        "selection": "selection",
    }
    rows = []
    for batch in sorted({case["rows"] for case in cases.values()}):
        found = [cases[f"{part}/{batch}"] for part in columns.values()]
        total = sum(cases[f"{part}/{batch}"]["median"] for part in _default_parts())
        logits = cases.get(f"logits/{batch}")
        moved = "" if logits is None else spread(logits)
        rows.append([str(batch), *map(spread, found), f"{total:.0f}", moved])
    return Table(
        title="Schedule and author selection, a step",
        columns=["rows", *columns, "authors (one schedule) + selection", "selection with logits"],
        rows=rows,
        unit="microseconds, on one core",
        notes=(
            f"Hidden size {HIDDEN} each, float32. Selection is measured with a vocabulary of 1; "
            f"with logits, with {VOCABULARY:,} ids: what is more is the time to copy each head's "
            "logits to their rows, as long as the memory takes.",
        ),
    )


def _default_parts() -> tuple[str, str]:
    return "authors V1 one schedule", "selection"


if __name__ == "__main__":
    run_benchmark(NAME, "The cost of schedule and author selection a step.", measure)
