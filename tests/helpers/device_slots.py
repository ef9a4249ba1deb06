"""Requests of several schedules in a few device slots, over a made-up vocabulary."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from automata import automaton_rule

from tandem_plugin import TandemConfig, TandemRules, Vocabulary
from tandem_plugin.engine.runners.v2.authors import SlotRequest
from tandem_plugin.plugins.selection import make_schedule
from tandem_plugin.rules import Rule

SLOTS = 5
PIECES = (*(f"Ġ{i}" if i % 3 == 0 else str(i) for i in range(30)), "ĊĊ", ".ĊĊ")
VOCABULARY = Vocabulary(PIECES, "a test")
CPU = torch.device("cpu")


@dataclass
class Running:
    rule: Rule
    seed: int
    slot_request: SlotRequest
    tokens: list[int] = field(default_factory=list)


def rules_of_all_kinds() -> list[Rule]:
    """Short caps and chunks, so that a few tokens meet every case."""
    made = TandemRules(TandemConfig.from_mapping({"schedule": "word", "cap": 2}), VOCABULARY)
    other = [
        make_schedule("token", {"p": 0.3}),
        make_schedule("step", {}),
        make_schedule("solo", {}),
        make_schedule("junior", {}),
        make_schedule("chunk", {"n": 3}),
        make_schedule("word", {"cap": 2, "alone": 0.5}),
    ]
    rules = [made.default, *(made.for_schedule(schedule) for schedule in other)]
    return [*rules, automaton_rule(7, len(PIECES)), automaton_rule(8, len(PIECES), p=0.2)]
