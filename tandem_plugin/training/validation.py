"""Who answers validation prompts: the senior alone, the team, or one after the other."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tandem_plugin.training.senior_alone import SeniorAlone

Answerer = Literal["senior", "team"]


@dataclass(frozen=True, slots=True)
class Validation:
    """One pass over the validation prompts, which one of the two answers."""

    answerer: Answerer
    is_one_of_two: bool
    _alone: SeniorAlone

    def named(self, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """The metrics of this answerer under distinct names: the team's begin with ``team/``."""
        prefix = "team/" if self.answerer == "team" else ""
        return {f"{prefix}{name}": value for name, value in metrics.items()}

    def change(self, accuracy: float | None, problems: int) -> dict[str, float]:
        """How the senior alone has changed, as :meth:`SeniorAlone.validated`; empty for a team."""
        return self._alone.validated(accuracy, problems) if self.answerer == "senior" else {}

    def folder(self, folder: str) -> str:
        """Where this answerer's dump goes: in a separate folder if both answer."""
        return os.path.join(folder, self.answerer) if self.is_one_of_two else folder

    def columns(self, count: int) -> dict[str, list[str]]:
        """What a dump of so many responses says of who answered."""
        return {"answered_by": [self.answerer] * count}


def validations(setting: str) -> tuple[Validation, ...]:
    """The passes of every validation of a run, in this order; setting: ``validation``."""
    answerers: tuple[Answerer, ...] = ("senior", "team")
    alone = SeniorAlone()
    return tuple(
        Validation(answerer, setting == "both", alone)
        for answerer in answerers
        if setting in ("both", answerer)
    )
