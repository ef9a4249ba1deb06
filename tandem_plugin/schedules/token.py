"""A Bernoulli redraw after every token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tandem_plugin.schedules.bernoulli import BernoulliSchedule
from tandem_plugin.schedules.schedule import Tensor

__all__ = ["TokenSchedule"]


@dataclass(frozen=True, slots=True)
class TokenSchedule(BernoulliSchedule):
    """Redraw the author after every token, whatever the token is."""

    name: ClassVar[str] = "token"
    boundaries: ClassVar[str] = "every"

    def advance(
        self, author: Tensor, run: Tensor, is_boundary: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor]:
        return u < self.p, run * 0
