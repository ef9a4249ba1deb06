"""The paper's evaluation as one call: its parts in their order, over what they have in common.

What is evaluated is an :class:`Evaluation`; :func:`evaluate` checks and runs its parts. ``tandem
eval`` does nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Literal, TypeAlias

from tandem_plugin.errors import EvaluationError
from tandem_plugin.lab.evaluation.generation import TEXT, Sampling
from tandem_plugin.lab.evaluation.graders import FileGrader
from tandem_plugin.lab.evaluation.inputs import Benchmark, Checkpoint

Part: TypeAlias = Literal["solo", "handoff", "legibility", "drift"]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What is evaluated, and with which settings."""

    out: Path
    """The results folder to write or resume."""
    senior_names: Sequence[str]
    """Of all seniors; for ``drift`` names are enough."""
    junior_names: Sequence[str]
    """All juniors; the first is the base."""
    seniors: Sequence[Checkpoint] = ()
    juniors: Sequence[Checkpoint] = ()
    benchmarks: Sequence[Benchmark] = ()
    schedules: Sequence[Mapping[str, Any]] = ()
    """Of teams: see :func:`~tandem_plugin.lab.evaluation.generation.team_schedule`."""
    alone: Sampling = field(default_factory=lambda: Sampling(32))
    team: Sampling = field(default_factory=lambda: Sampling(8))
    engine: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of vLLM's engine."""
    read: int | None = None
    """How many responses to each problem legibility reads, from the first; None reads all."""
    dtype: str = "auto"
    """Of the reading models."""
    frequent: int = 10
    """How often the junior must have written a token for it to count as frequent."""
    graders: Sequence[FileGrader] = ()
    """Graders in addition to this package's."""
    protocol: Mapping[str, Any] | None = None
    """The results' record of the protocol."""


def evaluate(evaluation: Evaluation, parts: Sequence[Part]) -> list[Path]:
    """Evaluate these parts, in order; returns the paths of their summaries.

    What the parts need is checked before the first one runs. Run again with the same settings to
    resume; raises what its parts raise.
    """
    for part in parts:
        if part in _CHECKS:
            _CHECKS[part](evaluation)
    return [summary for part in parts for summary in PARTS[part](evaluation)]


def _check_solo(evaluation: Evaluation) -> None:
    from tandem_plugin.lab.evaluation.solo_handoff import check_tokenizers

    check_tokenizers([*evaluation.juniors[:1], *evaluation.seniors])


def _solo(evaluation: Evaluation) -> Iterator[Path]:
    """Each senior alone, and the first junior before them."""
    from tandem_plugin.lab.evaluation.solo_handoff import run_solo

    base = evaluation.juniors[:1]
    names = {junior.name for junior in base}
    seniors = [senior for senior in evaluation.seniors if senior.name not in names]
    for model in [*base, *seniors]:
        yield run_solo(
            evaluation.out,
            model,
            evaluation.benchmarks,
            evaluation.alone,
            evaluation.engine,
            evaluation.protocol,
            evaluation.graders,
        )


def _check_handoff(evaluation: Evaluation) -> None:
    from tandem_plugin.lab.evaluation.solo_handoff import check_handoffs

    passes_text = any(schedule["schedule"] == TEXT for schedule in evaluation.schedules)
    if passes_text and (name := _seen(evaluation)):
        raise EvaluationError("text-handoff-with-images", name=name)
    check_handoffs(evaluation.seniors, evaluation.schedules, evaluation.engine)


def _handoff(evaluation: Evaluation) -> Iterator[Path]:
    """Each senior with each junior."""
    from tandem_plugin.lab.evaluation.solo_handoff import run_handoff

    for pair in product(evaluation.seniors, evaluation.juniors):
        yield from run_handoff(
            evaluation.out,
            *pair,
            evaluation.schedules,
            evaluation.benchmarks,
            evaluation.team,
            evaluation.engine,
            evaluation.protocol,
            evaluation.graders,
        )


def _check_legibility(evaluation: Evaluation) -> None:
    if name := _seen(evaluation):
        raise EvaluationError("legibility-with-images", name=name)


def _seen(evaluation: Evaluation) -> str | None:
    """The name of the first benchmark with images; None without any."""
    names = (benchmark.name for benchmark in evaluation.benchmarks if benchmark.images)
    return next(names, None)


def _legibility(evaluation: Evaluation) -> Iterator[Path]:
    """Each senior's solo responses, read by each junior; then the places of its handovers."""
    from tandem_plugin.lab.evaluation.handover_kl import run_handover_kl
    from tandem_plugin.lab.evaluation.legibility import run_legibility

    for senior in evaluation.seniors:
        yield from run_legibility(
            evaluation.out,
            senior,
            evaluation.juniors,
            evaluation.read,
            evaluation.dtype,
            evaluation.protocol,
        )
    for pair in product(evaluation.seniors, evaluation.juniors):
        yield from run_handover_kl(evaluation.out, *pair, evaluation.dtype, evaluation.protocol)


def _drift(evaluation: Evaluation) -> Iterator[Path]:
    """Each senior's solo responses relative to the first junior's."""
    from tandem_plugin.lab.evaluation.drift import run_drift

    for name in evaluation.senior_names:
        yield run_drift(evaluation.out, name, evaluation.junior_names[0], evaluation.frequent)


_CHECKS: Mapping[Part, Callable[[Evaluation], None]] = {
    "solo": _check_solo,
    "handoff": _check_handoff,
    "legibility": _check_legibility,
}
PARTS: Mapping[Part, Callable[[Evaluation], Iterator[Path]]] = {
    "solo": _solo,
    "handoff": _handoff,
    "legibility": _legibility,
    "drift": _drift,
}
"""In the order in which ``all`` runs them: the last two read the first one's responses."""
