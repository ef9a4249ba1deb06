"""What tandem adds to each decoding step: taking tokens in, the schedule, and the rows' selection.

On one core. Responses of random tokens grow by one token per step. A step

- decides who writes next (authors): reads the sampled tokens and advances the schedule, which is
  the word schedule or, of token classes, that of the example plugin in which the text calls;
- hands each row to its author's head (selection): the composite model's own code, with heads that
  compute nothing.

Model Runner V1 decides on the host, V2 by tensor operations on the device, which is this core here:
the figure is the time of the operations, without launching them on a GPU.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from results import Results, Table, spread
from rounds import keep_to_one_core, run_rounds, summary

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "tandem-plugin-handoffs"
PARTS = ("authors", "authors by classes", "selection")
BATCHES = (1, 16, 64, 256, 1024)
VOCABULARY, HIDDEN = 151_936, 1024


class HostAuthors:
    """:class:`~tandem_plugin.engine.runners.v1.authors.BatchAuthors`, which V1 is bound to."""

    def __init__(self, rule: Any, rows: int, steps: int) -> None:
        from tandem_plugin.engine.record import AuthoredRequest
        from tandem_plugin.engine.runners.v1.authors import BatchAuthors

        self._rows = rows
        self._tokens = _tokens(steps, rows).tolist()
        self._outputs: list[list[int]] = [[] for _ in range(rows)]
        self._batch = BatchAuthors(rows, steps + 1)
        for row, output in enumerate(self._outputs):
            self._batch.add(row, AuthoredRequest(rule, row, output), steps)
        self._step = 0

    def sample(self) -> None:
        for output, token in zip(self._outputs, self._tokens[self._step], strict=True):
            output.append(token)
        self._step += 1

    def step(self) -> Any:
        return self._batch.next_authors(self._rows)


class DeviceTensors:
    """:class:`~tandem_plugin.engine.runners.v2.authors.DeviceAuthors`, which V2 is bound to."""

    def __init__(self, rule: Any, rows: int, steps: int) -> None:
        import torch

        from tandem_plugin.engine.runners.v2.authors import DeviceAuthors

        self._tokens = torch.from_numpy(_tokens(steps, rows))
        self._authors = DeviceAuthors(
            rows, VOCABULARY, torch.device("cpu"), _host_memory, record=False
        )
        for row in range(rows):
            self._authors.add(row, rule, row, [], steps)
        self._authors.write_staged()
        self._slots = torch.arange(rows)
        self._one_each = torch.ones(rows, dtype=torch.int32)
        self._step = 0

    def sample(self) -> None:
        self._step += 1

    def step(self) -> Any:
        if self._step:
            tokens = self._tokens[self._step - 1]
            self._authors.advance(self._slots, self._one_each, tokens)
        return self._authors.of(self._slots)


def _host_memory(places: int) -> tuple[NDArray[np.float64], Any]:
    import torch

    draws = np.zeros(places)
    return draws, torch.from_numpy(draws)


def _rule() -> Any:
    """The word schedule."""
    from tandem_plugin import BoundarySet, make_schedule
    from tandem_plugin.rules import Rule

    boundaries = BoundarySet("word", np.random.default_rng(0).random(VOCABULARY) < 0.35)
    return Rule(make_schedule("word", {}), boundaries, "")


def _rule_of_classes() -> Any:
    """The schedule ``call``, over random classes: most texts are the beginning of no command."""
    from tandem_plugin import BoundarySet
    from tandem_plugin.rules import Rule

    sys.path.append(str(EXAMPLE))
    from tandem_plugin_handoffs import CallSchedule

    random, classes = np.random.default_rng(0), CallSchedule.classes
    some = random.integers(0, len(classes), VOCABULARY)
    table = np.where(random.random(VOCABULARY) < 0.05, some, classes.index("b"))
    return Rule(CallSchedule(), BoundarySet("call", table, classes), "")


RULES: Mapping[str, Callable[[], Any]] = {
    "authors": _rule,
    "authors by classes": _rule_of_classes,
}


def _tokens(steps: int, rows: int) -> NDArray[np.int64]:
    return np.random.default_rng(1).integers(0, VOCABULARY, (steps, rows))


AUTHORS: Mapping[str, Callable[[Any, int, int], Any]] = {
    "V1": HostAuthors,
    "V2": DeviceTensors,
}
"""By model runner: given a rule, rows and steps. ``sample`` gives every row a token, unmeasured;
``step`` takes the tokens in and says who writes next."""


def measure(results: Results, toy: bool) -> None:
    """One case a batch size, all sizes in turn in every round."""
    keep_to_one_core()
    batches = (1, 16) if toy else BATCHES
    steps, rounds = (20, 2) if toy else (200, 9)
    cases: dict[str, Callable[[], float]] = {}
    for rows in batches:
        for runner in AUTHORS:
            for part, rule in RULES.items():
                cases[f"{part} {runner}/{rows}"] = _authors(runner, rule(), rows, steps)
            cases[f"selection {runner}/{rows}"] = _selection(runner, rows, steps)
    if all(case in results for case in cases):
        return
    samples = run_rounds(cases, rounds)
    for case, sample in samples.items():
        part, _, rows_text = case.partition("/")
        results.add(
            case,
            {"part": part, "rows": int(rows_text), "unit": "microseconds per step"}
            | summary(sample),
        )


def _authors(runner: str, rule: Any, rows: int, steps: int) -> Callable[[], float]:
    import torch

    @torch.inference_mode()  # as vLLM runs models
    def run() -> float:
        authors = AUTHORS[runner](rule, rows, steps)
        authors.step()
        times = []
        for _ in range(steps):
            authors.sample()
            start = time.perf_counter()
            authors.step()
            times.append(time.perf_counter() - start)
        return statistics.median(times) * 1e6

    return run


def _selection(runner: str, rows: int, steps: int) -> Callable[[], float]:
    """The composite's own selection between two heads that compute nothing, over one token id."""
    import torch

    from tandem_plugin.engine.heads import Heads

    def compute_logits(*arguments: Any) -> torch.Tensor:
        return prepared[: arguments[-1].shape[0]]

    prepared = torch.zeros((0, 1), dtype=torch.bfloat16)
    model_config = SimpleNamespace(get_hidden_size=lambda: HIDDEN, get_vocab_size=lambda: 1)
    config = SimpleNamespace(get_text_config=lambda: SimpleNamespace(vocab_size=1))
    model = SimpleNamespace(compute_logits=compute_logits, config=config)
    heads = Heads(
        model,
        model,
        cast(Any, SimpleNamespace(compute_logits=compute_logits)),
        SimpleNamespace(model_config=model_config),
    )

    @torch.inference_mode()
    def run() -> float:
        nonlocal prepared
        prepared = torch.zeros((rows, 1), dtype=torch.bfloat16)
        hidden = torch.zeros((rows, 2 * HIDDEN), dtype=torch.bfloat16)
        authors = np.random.default_rng(0).random((steps, rows)) < 0.5
        times = []
        for on_host in authors:
            chosen = on_host if runner == "V1" else torch.from_numpy(on_host)
            start = time.perf_counter()
            heads.logits(hidden, chosen)
            times.append(time.perf_counter() - start)
        return statistics.median(times) * 1e6

    return run


def table(content: Mapping[str, Any]) -> Table:
    """Microseconds a step by model runner and batch size."""
    cases = content["cases"]
    rows = []
    for runner in AUTHORS:
        for batch in sorted({case["rows"] for case in cases.values()}):
            measured = [cases[f"{part} {runner}/{batch}"] for part in PARTS]
            authors, by_classes, selection = (case["median"] for case in measured)
            totals = [f"{of + selection:.0f}" for of in (authors, by_classes)]
            rows.append([runner, str(batch), *map(spread, measured), *totals])
    return Table(
        title="Schedule and author selection, per step",
        columns=["runner", "rows", *PARTS, "both", "both, by classes"],
        rows=rows,
        unit="microseconds, on one core",
        notes=(
            f"Hidden size {HIDDEN} each, bfloat16. Selection is measured with a vocabulary of 1. "
            "On V1 a head runs for its author's rows alone; on V2 both run for all rows, which is "
            "not in these figures.",
        ),
    )
