"""What stands between two markers is the junior's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tandem_plugin.boundaries.marked_parts import MarkedParts, marked_parts
from tandem_plugin.boundaries.markers import Markers
from tandem_plugin.schedules import Tensor


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
        self._parts()

    def start(self, u: Tensor) -> Tensor:
        return u >= 0

    def advance(
        self, author: Tensor, run: Tensor, token_class: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor]:
        run = self._parts().advance(run, token_class)
        return run >= 0, run

    def _parts(self) -> MarkedParts:
        return marked_parts(self.markers, "inside", self.most, self.parts)
