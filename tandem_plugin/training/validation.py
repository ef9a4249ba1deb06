"""Who answers validation prompts: the senior alone, the team, or each of the two in its turn."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tandem_plugin.errors import ConfigError

__all__ = [
    "ANSWERED_BY",
    "ANSWERER",
    "Answerer",
    "Pass",
    "answerer_of",
    "answerers",
    "named",
    "passes",
]

Answerer = Literal["senior", "team"]

ANSWERER = "tandem_answerer"
"""Under which name a validation prompt or response says, in a batch, who is to answer or did."""

ANSWERED_BY = "answered_by"
"""The column of a validation dump that says who did."""

_TEAM = "team/"
"""How the names of the team's metrics begin; the senior's are the trainer's own."""


def answerers(validation: str) -> tuple[Answerer, ...]:
    """Who walks through the validation prompts, in this order.

    validation: the setting ``validation``: senior, team, or both.
    """
    walks: Mapping[str, tuple[Answerer, ...]] = {
        "senior": ("senior",),
        "team": ("team",),
        "both": ("senior", "team"),
    }
    return walks[validation]


def answerer_of(validation: str, said: Answerer | None) -> Answerer:
    """Who is to answer a validation prompt.

    said: what the prompt says of it; None where it says nothing. Raises :class:`ConfigError` where
    both are to answer, and the prompt does not say whose turn it is.
    """
    if said is None and validation == "both":
        raise ConfigError("TP456")
    return "team" if (said or validation) == "team" else "senior"


def named(metrics: Mapping[str, Any], answerer: Answerer) -> dict[str, Any]:
    """The metrics of what one of them answered, under names of their own."""
    prefix = _TEAM if answerer == "team" else ""
    return {f"{prefix}{name}": value for name, value in metrics.items()}


@dataclass(slots=True)
class Pass:
    """One walk through the validation prompts, all of them answered by one answerer."""

    answerer: Answerer
    is_alone: bool
    """Whether it is the only one of this validation."""
    is_last: bool
    samples: list[tuple[Any, Any, Any]]
    """(input, output, score) for the loggers' table: those of earlier passes, and its own."""

    def table(self, inputs: Any, outputs: Any, scores: Any) -> dict[str, Any] | None:
        """Samples for the loggers' table, which has one place a step.

        Those of all passes at the last one, and None before it.
        """
        if not self.is_alone:
            labelled = [f"[{self.answerer}] {text}" for text in inputs]
            self.samples.extend(zip(labelled, outputs, scores, strict=True))
            if not self.is_last:
                return None
            inputs, outputs, scores = zip(*self.samples, strict=True) if self.samples else [()] * 3
        return {"inputs": inputs, "outputs": outputs, "scores": scores}

    def folder(self, dumps: str) -> str:
        """Where its dump lies: apart from the other's where two answer."""
        return dumps if self.is_alone else os.path.join(dumps, self.answerer)


def passes(validation: str) -> Iterator[Pass]:
    """The passes that one validation is made of, the senior's first; validation: the setting."""
    walks = answerers(validation)
    samples: list[tuple[Any, Any, Any]] = []
    for answerer in walks:
        yield Pass(answerer, len(walks) == 1, answerer == walks[-1], samples)
