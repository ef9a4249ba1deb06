"""The form of a summary: what a result that came from anywhere must hold before it is used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, model_validator

from tandem_plugin.boundaries.vocabulary import MAX_TOKEN_ID
from tandem_plugin.lab.evaluation.sampling import MAX_SAMPLES

__all__ = ["misfit"]

_Count = Annotated[int, Field(ge=0, lt=2**63)]
_Token = Annotated[int, Field(ge=0, le=MAX_TOKEN_ID)]
_Number = Annotated[FiniteFloat, Field(ge=-1e300, le=1e300)]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")


class _Model(_Part):
    name: str
    path: str = ""
    fingerprint: str = ""


class _Generated(_Part):
    problem: _Count
    samples: Annotated[int, Field(ge=1, le=MAX_SAMPLES)]
    correct: _Count

    @model_validator(mode="after")
    def _no_more_right_than_asked(self) -> _Generated:
        if self.correct > self.samples:
            raise ValueError(f"{self.correct} of {self.samples} samples cannot be right")
        return self


class _Read(_Part):
    problem: _Count
    tokens: Annotated[_Count, Field(ge=1)]
    cross_entropy: _Number
    overlap: _Number


class _Schedule(_Part):
    schedule: str
    label: str | None = None


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
    def _pairs(self) -> _Survival:
        if not self.shares or len(self.thresholds) != len(self.shares):
            raise ValueError("thresholds and shares come in pairs")
        return self


class _OverEmitted(_Part):
    token: _Token
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
    senior: _Model
    junior: _Model | None = None
    settings: _Settings
    versions: dict[str, str | None] = {}


class _Solo(_Summary):
    benchmarks: dict[str, list[_Generated]]
    metrics: dict[str, dict[str, Any]] = {}


class _Handoff(_Summary):
    benchmarks: dict[str, list[_Generated]]
    metrics: dict[str, _TeamMetrics] = {}


class _Legibility(_Summary):
    benchmarks: dict[str, list[_Read]]


class _Drift(_Summary):
    settings: _DriftSettings
    metrics: _DriftMetrics


_FORMS: dict[str, type[_Summary]] = {
    "solo": _Solo,
    "handoff": _Handoff,
    "legibility": _Legibility,
    "drift": _Drift,
}


def misfit(kind: str, content: Mapping[str, Any]) -> str | None:
    """What is wrong with the form of a summary, and where; None where nothing is."""
    try:
        _FORMS[kind].model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{_place(first['loc'])}: {first['msg']}"
    return None


def _place(parts: Sequence[int | str]) -> str:
    return ".".join(str(part)[:60] for part in parts)
