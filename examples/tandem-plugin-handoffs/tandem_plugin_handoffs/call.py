"""The senior asks for tokens of the junior by a command in its text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tandem_plugin.boundaries.marked_parts import MarkedParts, marked_parts
from tandem_plugin.boundaries.markers import Markers
from tandem_plugin.schedules import Tensor


@dataclass(frozen=True, slots=True)
class CallSchedule:
    """Behind ``<call>n</call>`` the junior writes n tokens, and then the senior continues.

    The senior writes the command, so its tokens are trained like all the senior's. Commands in the
    junior's text, for 0 tokens, or beyond the limit of calls are text like any other. Source:
    RelayLLM (arXiv:2601.05167), where the model that is trained calls a larger one.
    """

    name: ClassVar[str] = "call"
    boundaries: ClassVar[str] = "call"
    markers: ClassVar[Markers] = Markers({"text": {"<call>{n}</call>": "called"}, "called": {}})
    classes: ClassVar[tuple[str, ...]] = markers.classes

    most: int = 256
    """The most tokens of one call, whatever its command says."""
    calls: int = 8
    """The most calls in a response."""

    def __post_init__(self) -> None:
        self._parts()

    def start(self, u: Tensor) -> Tensor:
        return u >= 0

    def advance(
        self, author: Tensor, run: Tensor, token_class: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor]:
        run = self._parts().advance(run, token_class)
        return run >= 0, run

    def _parts(self) -> MarkedParts:
        return marked_parts(self.markers, "called", self.most, self.calls)
