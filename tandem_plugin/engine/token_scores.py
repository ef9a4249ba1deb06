"""The scores of tokens, which the front end fetches by request name when a request is done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count

import numpy as np
import torch
from numpy.typing import NDArray

from tandem_plugin.engine.wire import RPC_TOKEN_SCORES
from tandem_plugin.errors import EngineError

_STEPS = 256
"""Number of steps whose scores stay on the device before one copy to the host."""


class TokenLog:
    """The scores of the tokens of named requests, by request and position.

    A position that is written twice (vLLM drops tokens when it preempts a request) keeps its last
    scores.
    """

    def __init__(self) -> None:
        self._steps: list[tuple[Sequence[str | None], torch.Tensor]] = []
        self._tokens: dict[str, dict[int, list[float]]] = {}

    def begin(self, name: str) -> None:
        """Start or continue a request; nothing is kept of other requests."""
        self._tokens.setdefault(name, {})

    def add(
        self,
        names: Sequence[str | None],
        scores: torch.Tensor,
        positions: torch.Tensor,
        written: torch.Tensor,
    ) -> None:
        """Add a step's rows; waits for the device only once in many steps.

        names: of the rows' requests. scores: float32 ``[rows, 3]``. positions: int64 ``[rows]``,
        the tokens' places in their responses. written: bool ``[rows]``, false for rows without a
        token.
        """
        if any(name is not None for name in names):
            places = torch.where(written, positions, -1)[:, None]
            self._steps.append((names, torch.cat([places.double(), scores.double()], dim=1)))
        if len(self._steps) >= _STEPS:
            self._copy()

    def take(self, names: Sequence[str]) -> dict[str, list[list[float]]]:
        """Remove and return the token scores of each known request.

        Waits for the device. If a token was not measured, only the tokens before it are returned.
        """
        self._copy()
        taken = {}
        for name in names:
            tokens = self._tokens.pop(name, None)
            if tokens is not None:
                length = next(i for i in range(len(tokens) + 1) if i not in tokens)
                taken[name] = [tokens[i] for i in range(length)]
        return taken

    def _copy(self) -> None:
        """Copy scores from the device to the requests that still need them."""
        steps, self._steps = self._steps, []
        if not steps:
            return
        rows = torch.cat([scores for _, scores in steps]).tolist()
        names = [name for of_step, _ in steps for name in of_step]
        for name, (place, *scores) in zip(names, rows, strict=True):
            if name is not None and place >= 0 and name in self._tokens:
                self._tokens[name][int(place)] = scores


class RequestScores:
    """Names an engine's requests, and fetches the scores of their tokens from its workers.

    collective_rpc: the engine's own.
    """

    def __init__(self, collective_rpc: Callable[..., list[dict[str, list[list[float]]]]]) -> None:
        self._rpc = collective_rpc
        self._numbers = count()

    def new_name(self) -> str:
        """A name not used before."""
        return str(next(self._numbers))

    def fetch(self, lengths: dict[str, int]) -> dict[str, NDArray[np.float32]]:
        """float32 ``[length, 3]`` of each response: the first three of :func:`token_scores`.

        lengths: number of tokens of each response, by name. Raises :class:`EngineError` if the
        workers lack the scores of any token.
        """
        if not lengths:
            return {}
        workers = self._rpc(RPC_TOKEN_SCORES, args=(list(lengths),))
        return {name: scores_of(workers, name, length) for name, length in lengths.items()}

    def forget(self, names: Iterable[str]) -> None:
        """Let the workers forget requests that produce no output."""
        if names := list(names):
            self._rpc(RPC_TOKEN_SCORES, args=(names,))


def scores_of(
    workers: Iterable[Mapping[str, Sequence[Sequence[float]]]], name: str, length: int
) -> NDArray[np.float32]:
    """The scores of a request's response, float32 ``[length, 3]``: log p by senior and junior, and
    overlap.

    workers: each worker's answer. Raises :class:`EngineError` if no worker has every token's.
    """
    # Asynchronous scheduling may have measured one token beyond the end of a response.
    scores = next((by_name[name] for by_name in workers if name in by_name), ())[:length]
    if len(scores) < length:
        raise EngineError("partner-logprobs-incomplete", length=length, measured=len(scores))
    return np.array(scores, dtype=np.float32).reshape(length, 3)


def sample_name(name: str, index: int) -> str:
    """The name of sample ``index`` of a request with n > 1."""
    return f"{name}/{index}"
