"""One model thinks, and the other one answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from tandem_plugin.boundaries.markers import Markers
from tandem_plugin.schedules import Tensor, check_choice, check_count


@dataclass(frozen=True, slots=True)
class ThinkSchedule:
    """``thinker`` writes up to and with ``</think>``, or ``most`` tokens; the other the rest.

    A response begins with its thinking, whether ``<think>`` is in the response or in the prompt.
    """

    name: ClassVar[str] = "think"
    boundaries: ClassVar[str] = "think"
    markers: ClassVar[Markers] = Markers({"thinking": {"</think>": "answer"}, "answer": {}})
    classes: ClassVar[tuple[str, ...]] = markers.classes

    thinker: Literal["senior", "junior"] = "junior"
    """Who thinks: senior or junior."""
    most: int = 1024
    """The most tokens of the thinking."""

    def __post_init__(self) -> None:
        check_choice("thinker", self.thinker, ("senior", "junior"))
        check_count("most", self.most)

    def start(self, u: Tensor) -> Tensor:
        return u >= 0 if self.thinker == "senior" else u < 0

    def advance(
        self, author: Tensor, run: Tensor, token_class: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Run: the state of the text, and the tokens so far."""
        bits = self.markers.bits
        text = self.markers.advance(run & (2**bits - 1), token_class)
        written = (run >> bits) + 1
        is_thinking = self.markers.in_mode(text, "thinking") & (written < self.most)
        author = is_thinking if self.thinker == "senior" else ~is_thinking
        return author, text | (written << bits)
