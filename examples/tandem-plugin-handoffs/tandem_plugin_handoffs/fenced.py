"""What stands between two markers is the junior's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tandem_plugin.boundaries.markers import Markers
from tandem_plugin.schedules import Tensor
from tandem_plugin_handoffs.limits import COUNTER_BITS, check_limit


@dataclass(frozen=True, slots=True)
class FencedSchedule:
    """Behind ``<junior>`` the junior writes, up to and with its ``</junior>``.

    A part ends without its marker at ``most`` tokens, and beyond the limit of parts ``<junior>`` is
    text like any other.
    """

    name: ClassVar[str] = "fenced"
    boundaries: ClassVar[str] = "fenced"
    markers: ClassVar[Markers] = Markers(
        {"outside": {"<junior>": "inside"}, "inside": {"</junior>": "outside"}}
    )
    classes: ClassVar[tuple[str, ...]] = markers.classes

    most: int = 256
    """The most tokens of the junior in one part."""
    parts: int = 8
    """The most parts in a response."""

    def __post_init__(self) -> None:
        check_limit("most", self.most)
        check_limit("parts", self.parts)

    def start(self, u: Tensor) -> Tensor:
        return u >= 0

    def advance(
        self, author: Tensor, run: Tensor, token_class: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Run: the state of the text, the junior's tokens in this part, and the parts so far."""
        bits = self.markers.bits
        written = ((run >> bits) & (2**COUNTER_BITS - 1)) + ~author
        begun = run >> (bits + COUNTER_BITS)
        text = self.markers.advance(run & (2**bits - 1), token_class)
        is_inside = self.markers.in_mode(text, "inside")
        ends = (written >= self.most) | (author & (begun >= self.parts))
        text = text * ~(is_inside & ends)
        is_inside = is_inside & ~ends
        begun = begun + (is_inside & author)
        written = written * is_inside
        return ~is_inside, text | (written << bits) | (begun << (bits + COUNTER_BITS))
