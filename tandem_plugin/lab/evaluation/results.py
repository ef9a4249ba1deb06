"""The layout of results, and the summaries that comparisons read.

OUT/SENIOR/solo/                         BENCHMARK.jsonl, BENCHMARK.grades.jsonl, summary.json
OUT/SENIOR/handoff/SCHEDULE/JUNIOR/      the same
OUT/SENIOR/legibility/JUNIOR/            BENCHMARK.scores.jsonl, summary.json
OUT/SENIOR/handover-kl/SCHEDULE/JUNIOR/  BENCHMARK.scores.jsonl, summary.json
OUT/SENIOR/drift/JUNIOR/                 counts.json, summary.json
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    ValidationError,
    model_validator,
)

from tandem_plugin._version import __version__
from tandem_plugin.errors import EvaluationError, shown
from tandem_plugin.files import read_json, write_file
from tandem_plugin.patching.versions import installed_version

_SUMMARY = "summary.json"
KINDS = ("solo", "handoff", "legibility", "handover-kl", "drift")
"""In the order of tables."""

FORMAT = 1
"""The format of a summary; all others are rejected."""


@dataclass(frozen=True, slots=True, eq=False)
class Summary:
    """The results of one run: per-problem numbers of each benchmark, and its settings.

    Equal to itself alone, so that :func:`measured` can cache what it computes.
    """

    folder: Path
    kind: str
    senior: str
    junior: str | None
    settings: Mapping[str, Any]
    """Everything that must be equal in two comparable results; excludes the senior."""
    problems: Mapping[str, Sequence[Mapping[str, Any]]]
    """Per-problem numbers by benchmark, in the order of problems."""
    content: Mapping[str, Any]
    """The whole summary."""
    repeats: tuple[Summary, ...] = ()
    """The pooled runs that it represents, one per seed; empty for a single run."""

    @property
    def each(self) -> tuple[Summary, ...]:
        """The runs that its numbers are averaged over: its repeats, or itself."""
        return self.repeats or (self,)

    @property
    def label(self) -> str:
        """The key for comparing runs of several seniors: kind, schedule and junior."""
        schedule = self.settings.get("schedule") or {}
        # There is a label if parameters are not the defaults.
        schedule_name = schedule.get("label") or schedule.get("schedule")
        return " ".join(part for part in (self.kind, schedule_name, self.junior) if part)


def run_folder(out: Path, kind: str, senior: str, junior: str = "", schedule: str = "") -> Path:
    """The folder of a run."""
    return Path(out, *(part for part in (senior, kind, schedule, junior) if part))


def versions() -> dict[str, str | None]:
    """The versions that a result was made with; null if not installed."""
    names = ("vllm", "torch", "transformers", "sympy", "scipy", "numpy")
    environment = {"tandem-plugin": __version__, "python": platform.python_version()}
    return environment | {name: installed_version(name) for name in names}


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically."""
    write_file(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def write_summary(folder: Path, kind: str, content: Mapping[str, Any]) -> Path:
    """Write a run's summary; ``content`` is what :func:`read_summary` checks."""
    path = folder / _SUMMARY
    write_json(path, {"format": FORMAT, "kind": kind, **content, "versions": versions()})
    return path


def read_summary(path: Path) -> Summary:
    """A run's summary; raises :class:`EvaluationError` with the field for an invalid file."""
    try:
        content = read_json(path)
        # An escaped lone surrogate is legal JSON, but cannot be printed.
        json.dumps(content, ensure_ascii=False).encode("utf-8")
    except (OSError, ValueError) as error:
        raise EvaluationError("result-unreadable", path=path, error=error) from error
    kind = content.get("kind") if isinstance(content, dict) else None
    if kind not in KINDS:
        raise EvaluationError("result-not-summary", path=path)
    try:
        _SCHEMAS[kind].model_validate(content)
    except ValidationError as error:
        field = ".".join(str(part)[:60] for part in error.errors()[0]["loc"])
        raise EvaluationError("summary-field-invalid", path=path, field=field) from error
    return Summary(
        path.parent,
        kind,
        content["senior"]["name"],
        (content.get("junior") or {}).get("name"),
        content["settings"],
        content["benchmarks"],
        content,
    )


def find_summaries(folder: Path) -> Iterator[Summary]:
    """The summaries of a folder and its subfolders, sorted by path."""
    if not os.path.isdir(folder):
        raise EvaluationError("results-folder-missing", folder=folder)
    for path in sorted(folder.rglob(_SUMMARY)):
        yield read_summary(path)


def solo_summary(out: Path, name: str, fingerprint: str | None = None) -> Summary:
    """The finished solo run of a model.

    fingerprint: the model's; None accepts any. Raises :class:`EvaluationError` if there is no run,
    or one with other weights.
    """
    path = run_folder(out, "solo", name) / _SUMMARY
    if not os.path.exists(path):
        raise EvaluationError("solo-run-missing", name=name, out=out)
    summary = read_summary(path)
    noted = summary.content["senior"].get("fingerprint")
    if fingerprint not in (None, noted):
        raise EvaluationError(
            "solo-run-other-model", name=name, noted=noted, fingerprint=fingerprint
        )
    return summary


def check_comparable(summaries: Sequence[Summary], despite: Sequence[str] = ()) -> None:
    """Raise :class:`EvaluationError` unless all have equal settings and the same problems.

    despite: settings by their dotted names, such as ``sampling.seed``, that may differ.
    """
    first, *remaining = summaries
    first_settings = dict(_flat(first.settings))
    for summary in remaining:
        settings = dict(_flat(summary.settings))
        for name in sorted({*first_settings, *settings}):
            allowed = any(name == setting or name.startswith(f"{setting}.") for setting in despite)
            if first_settings.get(name) != settings.get(name) and not allowed:
                raise EvaluationError(
                    "compare-settings-differ",
                    folder=first.folder,
                    other=summary.folder,
                    name=name,
                    short_name=shown(first_settings.get(name)),
                    found_name=shown(settings.get(name)),
                )
        if _places(first) != _places(summary):
            raise EvaluationError(
                "compare-problems-differ",
                folder=first.folder,
                other=summary.folder,
                label=first.label,
            )


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _flat(part, f"{name}.{key}" if name else str(key))
    else:
        yield name, value


def _places(summary: Summary) -> dict[str, list[int]]:
    """The problems of each benchmark by their numbers."""
    return {name: [row["problem"] for row in rows] for name, rows in summary.problems.items()}


# The schema of a summary.

_Count = Annotated[int, Field(ge=0, lt=2**63)]
_Number = Annotated[FiniteFloat, Field(ge=-1e300, le=1e300)]
_Name = Annotated[str, Field(pattern=r"^[^./\\\x00-\x1f][^/\\\x00-\x1f]{0,199}$")]
"""Names are used as parts of paths."""


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")


class _Problem(_Part):
    problem: _Count


class _Generated(_Problem):
    samples: Annotated[int, Field(ge=1, le=10**6)]
    correct: _Count
    correct_by: dict[_Name, _Count] = {}

    @model_validator(mode="after")
    def _no_more_correct_than_sampled(self) -> _Generated:
        most = max(self.correct, *self.correct_by.values(), 0)
        if most > self.samples:
            raise ValueError(f"{most} of {self.samples} samples cannot be correct")
        return self


class _Read(_Problem):
    tokens: Annotated[_Count, Field(ge=1)]
    cross_entropy: _Number
    overlap: _Number
    responses: Annotated[_Count, Field(ge=1)]
    response_cross_entropy: _Number
    response_overlap: _Number
    # Results of earlier versions, and the release's, lack these.
    entropy: _Number | None = None
    kl: _Number | None = None
    response_entropy: _Number | None = None
    response_kl: _Number | None = None


class _HandedOver(_Problem):
    kl: list[_Number]
    continued: list[Annotated[int, Field(ge=0, le=1)]]

    @model_validator(mode="after")
    def _one_of_each(self) -> _HandedOver:
        if len(self.kl) != len(self.continued):
            raise ValueError("each handover has a KL and an outcome")
        return self


def _in_order(rows: list[Any]) -> list[Any]:
    problems = [row.problem for row in rows]
    if not rows or problems != sorted(set(problems)):
        raise ValueError("the problems are missing, repeated or out of order")
    return rows


class _Model(_Part):
    name: _Name
    path: str = ""
    fingerprint: str = ""


class _Schedule(_Part):
    schedule: str
    label: str | None = None


class _Settings(_Part):
    schedule: _Schedule | None = None
    sampling: dict[str, Any] = {}


class _DriftSettings(_Settings):
    smoothing: Annotated[_Number, Field(ge=0)]
    frequent: Annotated[_Count, Field(ge=1)]


class _Metrics(_Part):
    outcomes: dict[str, _Count] = {}
    senior_share: dict[str, _Number | None] | None = None
    truncated: _Number | None = None


class _Survival(_Part):
    thresholds: list[_Number]
    shares: list[_Number]


class _OverEmitted(_Part):
    token: _Count
    text: str = ""
    log_ratio: _Number
    senior: _Count
    junior: _Count


class _DriftMetrics(_Part):
    kl: _Number
    mean_absolute_log_ratio: _Number
    survival: _Survival
    # Results of earlier versions lack these.
    over_emitted: list[_OverEmitted] = []
    over_emitted_by_noise: _Number | None = None


class _Summary(_Part):
    format: Literal[FORMAT]  # type: ignore[valid-type]
    senior: _Model
    junior: _Model | None = None
    settings: _Settings
    versions: dict[str, str | None] = {}


class _Answers(_Summary):
    benchmarks: dict[_Name, Annotated[list[_Generated], AfterValidator(_in_order)]]
    metrics: dict[str, _Metrics] = {}


class _Legibility(_Summary):
    benchmarks: dict[_Name, Annotated[list[_Read], AfterValidator(_in_order)]]


class _HandoverKL(_Summary):
    benchmarks: dict[_Name, Annotated[list[_HandedOver], AfterValidator(_in_order)]]


class _Drift(_Summary):
    settings: _DriftSettings
    metrics: _DriftMetrics
    benchmarks: dict[str, list[_Problem]]


_SCHEMAS: dict[str, type[_Summary]] = {
    "solo": _Answers,
    "handoff": _Answers,
    "legibility": _Legibility,
    "handover-kl": _HandoverKL,
    "drift": _Drift,
}
