"""Two ways to write a step: the same signs, other words for numbers and other first words."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BOTH", "JARGON", "OPERATIONS", "PLAIN", "Notation"]

OPERATIONS = ("plus", "minus", "times")


@dataclass(frozen=True, slots=True)
class Notation:
    """numbers: the words for 0 to 9. openings: equally good first words of a step."""

    name: str
    numbers: tuple[str, ...]
    openings: tuple[str, ...]


PLAIN = Notation(
    "plain",
    ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"),
    ("So", "Then", "Now"),
)
JARGON = Notation(
    "jargon",
    ("nulo", "unu", "du", "tri", "kvar", "kvin", "ses", "sep", "ok", "naux"),
    ("Do", "Poste", "Nun"),
)
BOTH = (PLAIN, JARGON)
