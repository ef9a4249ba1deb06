"""The senior asks for tokens of the junior by a command in its text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tandem_plugin.boundaries.markers import Markers
from tandem_plugin.schedules import Tensor
from tandem_plugin_handoffs.limits import COUNTER_BITS, check_limit


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
        check_limit("most", self.most)
        check_limit("calls", self.calls)

    def start(self, u: Tensor) -> Tensor:
        return u >= 0

    def advance(
        self, author: Tensor, run: Tensor, token_class: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Run: the state of the senior's text, the tokens left of a call, and the calls so far."""
        bits, one_call = self.markers.bits, 2**COUNTER_BITS
        counters = (run >> bits) + author - 1  # where the junior writes, a token less is left
        text = self.markers.advance(run & (2**bits - 1), token_class) * author
        is_called = self.markers.in_mode(text, "called")
        may_call = counters < self.calls * one_call  # where the senior writes, none is left
        number = self.markers.number(text) * (is_called & may_call)
        number = number - (number - self.most) * (number > self.most)
        counters = counters + number + (number > 0) * one_call
        return counters & (one_call - 1) == 0, text * ~is_called | (counters << bits)
