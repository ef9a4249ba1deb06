"""The scores of tokens, for the front end: requests are named, and asked for when done."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.engine.names import TELL_OF_TOKENS
from tandem_plugin.errors import EngineError

__all__ = ["RequestScores", "sample_name"]


class RequestScores:
    """Names an engine's requests, and fetches the scores of their tokens from its workers.

    collective_rpc: the engine's own.
    """

    def __init__(self, collective_rpc: Callable[..., list[dict[str, list[list[float]]]]]) -> None:
        self._rpc = collective_rpc
        self._numbers = count()

    def new_name(self) -> str:
        """A name that no request had before."""
        return str(next(self._numbers))

    def fetch(self, lengths: dict[str, int]) -> dict[str, NDArray[np.float32]]:
        """float32 ``[length, 3]`` of each response: see :func:`token_scores`.

        lengths: how many tokens each response has, by its name. Raises :class:`EngineError` where
        the workers do not know the scores of each of its tokens.
        """
        if not lengths:
            return {}
        found: dict[str, Any] = {}
        for worker in self._rpc(TELL_OF_TOKENS, args=(list(lengths),)):
            found = {**worker, **found}
        for name, length in lengths.items():
            if len(found.get(name, ())) < length:
                raise EngineError(
                    f"A response has {length} tokens, and the engine measured "
                    f"{len(found.get(name, ()))} of them: this vLLM version or serving option does "
                    "not go with partner_logprobs. Set it to false."
                )
        # Behind the end of a response asynchronous scheduling may have measured a token more.
        return {
            name: np.array(found[name][:length], dtype=np.float32).reshape(length, 3)
            for name, length in lengths.items()
        }

    def forget(self, names: Iterable[str]) -> None:
        """Let the workers forget requests that no output comes of."""
        if names := list(names):
            self._rpc(TELL_OF_TOKENS, args=(names,))


def sample_name(name: str, index: int) -> str:
    """The name of sample ``index`` of a request for several."""
    return f"{name}/{index}"
