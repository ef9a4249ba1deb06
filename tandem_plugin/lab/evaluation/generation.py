"""Generations: sampling settings, schedules, and the files of responses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tandem_plugin._version import __version__
from tandem_plugin.errors import EvaluationError
from tandem_plugin.lab.evaluation.inputs import Benchmark, Checkpoint
from tandem_plugin.lab.rollouts.engine import deciding
from tandem_plugin.lab.rollouts.generate import sampling_parameters
from tandem_plugin.lab.rollouts.rollout import MAX_TOKEN_ID
from tandem_plugin.lab.rollouts.rollout_file import (
    RolloutFile,
    RowCheck,
    placed_rows,
)
from tandem_plugin.patching.versions import library_versions
from tandem_plugin.plugins.selection import make_schedule
from tandem_plugin.schedules import schedule_parameters
from tandem_plugin.schedules.parameters import check_count
from tandem_plugin.seeds import derive_seed


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling settings.

    The defaults are those of the paper's validation during training, and its training's response
    length (appendix A.3, table of hyperparameters): its text states none for its evaluation.
    """

    samples: int
    """Responses to each problem."""
    temperature: float = 0.6
    top_p: float = 0.95
    max_tokens: int = 3000
    seed: int = 0
    top_k: int | None = None
    """None samples from all tokens."""
    context: int | None = None
    """The most tokens of a prompt with its response; None lets ``max_tokens`` alone decide."""

    def settings(self) -> dict[str, Any]:
        """All settings, for a result; ``top_k`` and ``context`` only if they are set."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def of_response(self) -> dict[str, Any]:
        """The settings that a response depends on: all but the number of samples."""
        return {name: value for name, value in self.settings().items() if name != "samples"}

    def budget(self, prompt: int) -> int:
        """The most tokens of a response to a prompt of so many; below one if it has no room."""
        if self.context is None:
            return self.max_tokens
        return min(self.max_tokens, self.context - prompt)

    def seeds(self, benchmark: str, problem: int, sample: int) -> tuple[int, int]:
        """(sampling seed, tandem seed) of one response: the same for every model."""
        place = (benchmark, problem, sample)
        return (
            derive_seed(self.seed, "evaluation sampling", *place),
            derive_seed(self.seed, "evaluation draws", *place),
        )

    def parameters(self, seed: int, max_tokens: int, **stops: Any) -> Any:
        """vLLM's ``SamplingParams`` of one request."""
        return sampling_parameters(
            seed,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k or 0,
            max_tokens=max_tokens,
            **stops,
        )


TEXT = "step-text"
"""Strict alternation of texts up to a blank line, for a number of rounds: a schedule of calls, not
of tokens (:mod:`tandem_plugin.lab.evaluation.text_handoff`)."""


def team_schedule(name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """A schedule's name and all of its parameters, as settings of :class:`TandemConfig`.

    Raises :class:`ConfigError` for an unknown schedule or parameter.
    """
    if name == TEXT:
        if unknown := sorted(parameters.keys() - {"rounds"}):
            raise EvaluationError("text-handoff-parameter", name=unknown[0])
        settings = {"schedule": TEXT, "rounds": 150, **parameters}
        check_count("rounds", settings["rounds"])
        return settings
    schedule = make_schedule(name, parameters)
    return {"schedule": schedule.name, **schedule_parameters(schedule)}


def handovers(places: Iterable[int]) -> list[dict[str, Any]]:
    """The schedules of one handover after each of these numbers of tokens, in both directions.

    Raises :class:`ConfigError` for a number out of range.
    """
    return [
        team_schedule("handover", {"first": first, "after": place})
        for place in dict.fromkeys(places)
        for first in ("senior", "junior")
    ]


def engine_settings(team: Mapping[str, Any]) -> dict[str, Any]:
    """The tandem settings of an engine with this schedule, and further settings."""
    return {"schedule": "solo"} if team["schedule"] == TEXT else dict(team)


def schedule_label(settings: Mapping[str, Any]) -> str:
    """The name with non-default parameters, as in ``handover,first=senior,after=32``."""
    name = settings["schedule"]
    default = team_schedule(name, {})
    changed = [f"{key}={value}" for key, value in settings.items() if default.get(key) != value]
    return ",".join([name, *changed])


# Files of responses.


@dataclass(frozen=True, slots=True)
class GenerationFile:
    """The responses to one benchmark, by the senior alone or with a junior under one schedule."""

    folder: Path
    benchmark: Benchmark
    senior: Checkpoint
    junior: Checkpoint | None
    schedule: Mapping[str, Any] | None
    """The schedule and its parameters; None for the senior alone."""
    rule: Mapping[str, Any] | None = None
    """The record of the schedule's rule; None for the senior alone."""

    @property
    def path(self) -> Path:
        """The file of responses, one JSON object per line, as ``tandem view`` reads them."""
        return self.folder / f"{self.benchmark.name}.jsonl"

    def responses(self, samples: int) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """All responses: see :func:`read_generations`."""
        return read_generations(self.path, len(self.benchmark.problems), samples)

    def settings(self, sampling: Sampling, engine: Mapping[str, Any]) -> dict[str, Any]:
        """Everything that a response depends on: recorded with the file, and checked on resuming.

        ``senior`` is the path, from which ``tandem view`` finds the tokenizer.
        """
        return {
            "tandem_plugin": __version__,
            **library_versions(),
            "senior": self.senior.path,
            "senior_fingerprint": self.senior.fingerprint,
            "junior_fingerprint": None if self.junior is None else self.junior.fingerprint,
            "schedule": None if self.schedule is None else dict(self.schedule),
            "rule": None if self.rule is None else dict(self.rule),
            "benchmark": {"name": self.benchmark.name, **self.benchmark.settings()},
            **sampling.of_response(),
            "engine": deciding(engine),
        }


def check_response(row: Mapping[str, Any]) -> None:
    """Raise ValueError for a row that is not a response, or whose authorship does not match."""
    for name in ("prompt_ids", "response_ids"):
        if not _are_integers(row.get(name), MAX_TOKEN_ID):
            raise ValueError(f"its {name} are not token ids")
    if not row["prompt_ids"]:
        raise ValueError("its prompt is empty")
    authors = row.get("authorship", [0] * len(row["response_ids"]))
    if not _are_integers(authors, 1) or len(authors) != len(row["response_ids"]):
        raise ValueError("its authorship is not a zero or a one for each token")
    if not isinstance(row.get("response"), str) or "answer" not in row:
        raise ValueError("it has no response and answer")


def is_complete(
    path: Path,
    settings: Mapping[str, Any],
    problems: int,
    samples: int,
    check: RowCheck = check_response,
) -> bool:
    """Whether a file has a row for each of a problem's samples; raises as :class:`RolloutFile`."""
    with RolloutFile(path, settings, check) as file:
        done = sum(problem < problems and sample < samples for problem, sample in file.done)
    return done == problems * samples


def _are_integers(values: object, largest: int) -> bool:
    return isinstance(values, list) and all(
        type(value) is int and 0 <= value <= largest for value in values
    )


def read_generations(
    path: Path,
    problems: int,
    samples: int,
    check: RowCheck = check_response,
) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """(problem, sample, row) of the first ``samples`` responses to each problem, in file order.

    check: raises ValueError for an invalid row, if the file is not one of responses. Raises
    :class:`EvaluationError` if some are missing, or a row is invalid.
    """
    seen: set[tuple[int, int]] = set()
    try:
        for problem, sample, row in placed_rows(path):
            if problem >= problems or sample >= samples or (problem, sample) in seen:
                continue
            check(row)
            seen.add((problem, sample))
            yield problem, sample, row
    except (OSError, ValueError) as error:
        raise EvaluationError("responses-unreadable", path=path, error=error) from error
    expected = problems * samples
    if len(seen) != expected:
        raise EvaluationError(
            "responses-incomplete", path=path, responses=len(seen), expected=expected
        )
