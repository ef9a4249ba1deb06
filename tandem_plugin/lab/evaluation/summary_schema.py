"""The schema of a summary: what a result that came from anywhere must hold before it is used."""

from __future__ import annotations

import re
from collections.abc import Mapping
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

from tandem_plugin.boundaries.vocabulary import MAX_TOKEN_ID
from tandem_plugin.lab.evaluation.generation import MAX_SAMPLES
from tandem_plugin.lab.rollouts.rollout import short

__all__ = ["FORMAT", "schema_error"]

FORMAT = 1
"""The form of a summary; another one is rejected."""

_PATH_PART = re.compile(r"(?!\.)[^/\\\x00-\x1f]{1,200}")


def schema_error(kind: str, content: Mapping[str, Any]) -> str | None:
    """The first field of a summary that cannot be used, and why; None where all can."""
    try:
        _SCHEMAS[kind].model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part)[:60] for part in first["loc"])
        return f"{field}: {first['msg'].removeprefix('Value error, ')}"
    return None


def _path_part(name: str) -> str:
    """Names become parts of paths, and a result may come from anywhere."""
    if not _PATH_PART.fullmatch(name):
        raise ValueError(f"the name {short(name)} cannot be part of a path")
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
            raise ValueError(f"{self.correct} of {self.samples} samples cannot be right")
        return self


class _Read(_Problem):
    tokens: Annotated[_Count, Field(ge=1)]
    cross_entropy: _Number
    overlap: _Number


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
