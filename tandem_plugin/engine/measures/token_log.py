"""What was measured of every token of a request, kept until somebody asks for it."""

from __future__ import annotations

from collections.abc import Sequence

import torch

__all__ = ["TokenLog"]

_STEPS = 256
"""So many steps' scores lie on the device before they are copied to the host, all at once."""


class TokenLog:
    """The scores of the tokens of requests that have a name, by the request and its position.

    A position that is written again (vLLM drops tokens that a preemption overtakes) has its last
    scores.
    """

    def __init__(self) -> None:
        self._steps: list[tuple[Sequence[str | None], torch.Tensor]] = []
        self._tokens: dict[str, dict[int, list[float]]] = {}

    def begin(self, name: str) -> None:
        """Let a request enter, or go on: of others nothing is kept."""
        self._tokens.setdefault(name, {})

    def add(
        self,
        names: Sequence[str | None],
        scores: torch.Tensor,
        positions: torch.Tensor,
        written: torch.Tensor,
    ) -> None:
        """Take in a step's rows, without waiting for the device but once in many steps.

        names: of each row's request. scores: float32 ``[rows, 3]``. positions: int64 ``[rows]``,
        the tokens' places in their responses. written: bool ``[rows]``, false for rows without a
        token.
        """
        if any(name is not None for name in names):
            places = torch.where(written, positions, -1)[:, None]
            self._steps.append((names, torch.cat([places.double(), scores.double()], dim=1)))
        if len(self._steps) >= _STEPS:
            self._copy()

    def take(self, names: Sequence[str]) -> dict[str, list[list[float]]]:
        """Of each of these requests that is known, its tokens' scores; they are forgotten here.

        Waits for the device. A request of which a token was not measured keeps the tokens before.
        """
        self._copy()
        taken = {}
        for name in names:
            tokens = self._tokens.pop(name, None)
            if tokens is not None:
                whole = next(i for i in range(len(tokens) + 1) if i not in tokens)
                taken[name] = [tokens[i] for i in range(whole)]
        return taken

    def _copy(self) -> None:
        """Copy what lies on the device to the requests that are still of interest."""
        steps, self._steps = self._steps, []
        if not steps:
            return
        rows = torch.cat([scores for _, scores in steps]).tolist()
        names = [name for of_step, _ in steps for name in of_step]
        for name, (place, *scores) in zip(names, rows, strict=True):
            if name is not None and place >= 0 and name in self._tokens:
                self._tokens[name][int(place)] = scores
