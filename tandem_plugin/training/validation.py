"""Who answers validation prompts: the senior alone, the team, the junior alone, in turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from tandem_plugin.rules import Rule, TandemRules
from tandem_plugin.schedules import JuniorSchedule

Answerer = Literal["senior", "team", "junior"]

SEVERAL: Mapping[str, tuple[Answerer, ...]] = {
    "both": ("senior", "team"),
    "all": ("senior", "team", "junior"),
}
"""The values of ``validation`` by which several answer, and in which order."""


def rule_of(rules: TandemRules, answerer: Answerer, step: int) -> Rule | None:
    """The rule by which one of them answers; None for the senior alone.

    step: the trainer's, which the team's schedule may depend on.
    """
    if answerer == "senior":
        return None
    return rules.for_step(step) if answerer == "team" else rules.for_schedule(JuniorSchedule())
