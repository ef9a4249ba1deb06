"""The token-matched control: the senior writes all, and trains on the part `word` would give it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tandem_plugin.schedules.word import WordSchedule

__all__ = ["SoloWordSchedule"]


@dataclass(frozen=True, slots=True)
class SoloWordSchedule(WordSchedule):
    """Mark the same random part of a response as ``word`` does, in a response of the senior alone.

    An engine configured with it samples every token from the senior, whoever is the author, so a
    trainer runs plain GRPO on a random share p of its tokens: as many as tandem trains.
    """

    name: ClassVar[str] = "solo-word"
