"""A Bernoulli redraw at the ends of sentences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tandem_plugin.schedules.bernoulli import BernoulliSchedule

__all__ = ["SentenceSchedule"]


@dataclass(frozen=True, slots=True)
class SentenceSchedule(BernoulliSchedule):
    """Redraw the author after every token that ends a sentence."""

    name: ClassVar[str] = "sentence"
    boundaries: ClassVar[str] = "sentence"
