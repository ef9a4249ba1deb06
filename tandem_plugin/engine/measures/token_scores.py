"""The scores of tokens, for the front end: requests are named, and asked for when done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.engine.names import TELL_OF_TOKENS
from tandem_plugin.errors import EngineError

__all__ = ["RequestScores", "sample_name", "scores_of"]


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
        workers = self._rpc(TELL_OF_TOKENS, args=(list(lengths),))
        return {name: scores_of(workers, name, length) for name, length in lengths.items()}

    def forget(self, names: Iterable[str]) -> None:
        """Let the workers forget requests that no output comes of."""
        if names := list(names):
            self._rpc(TELL_OF_TOKENS, args=(names,))


def scores_of(
    workers: Iterable[Mapping[str, Sequence[Sequence[float]]]], name: str, length: int
) -> NDArray[np.float32]:
    """The scores of a request's response, float32 ``[length, 3]``: see :func:`token_scores`.

    workers: what each one told. Raises :class:`EngineError` where none knows each token's.
    """
    # Behind the end of a response asynchronous scheduling may have measured a token more.
    found = next((told[name] for told in workers if name in told), ())[:length]
    if len(found) < length:
        raise EngineError(
            f"A response has {length} tokens, and the engine measured {len(found)} of them: this "
            "vLLM version or serving option does not go with partner_logprobs or partner_kl_coef. "
            "Leave them out."
        )
    return np.array(found, dtype=np.float32).reshape(length, 3)


def sample_name(name: str, index: int) -> str:
    """The name of sample ``index`` of a request for several."""
    return f"{name}/{index}"
