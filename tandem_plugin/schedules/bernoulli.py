"""Bernoulli redraws: at words (the paper's schedule), tokens, chunks, sentences and steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.schedules.parameters import check_count, check_probability
from tandem_plugin.schedules.schedule import Tensor, tokens_since


@dataclass(frozen=True, slots=True)
class BernoulliSchedule:
    """First author and redraws ~ Bernoulli(p); by default, a redraw after every boundary.

    This base is not selectable by name; its named subclasses define where else they redraw.
    """

    p: float = 0.5
    """The probability that a redraw gives the senior."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "p", check_probability("p", self.p))

    def start(self, u: Tensor) -> Tensor:
        return u < self.p

    def advance(
        self, author: Tensor, run: Tensor, is_boundary: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor]:
        return self._redrawn(is_boundary, author, run, u)

    def walk(
        self, is_boundary: NDArray[np.bool_], u: NDArray[np.float64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        return self._drawn(tokens_since(is_boundary), u)

    def _redrawn(
        self, redraw: Tensor, author: Tensor, run: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor]:
        """A new author and run 0 where ``redraw``; elsewhere the author stays and the run grows."""
        return author ^ (redraw & (author ^ (u < self.p))), (run + 1) * ~redraw

    def _drawn(
        self, runs: NDArray[np.int64], u: NDArray[np.float64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Authors and runs of every position, given the runs after every token.

        A run counts the tokens since its author was drawn, so it identifies the draw.
        """
        runs = np.concatenate([np.zeros_like(runs, shape=(len(runs), 1)), runs], axis=1)
        drawn = np.arange(runs.size).reshape(runs.shape) - runs
        return (u < self.p).ravel().take(drawn), runs


@dataclass(frozen=True, slots=True)
class WordSchedule(BernoulliSchedule):
    """Redraw the author after every word boundary, and after more than ``cap`` other tokens.

    Source: Algorithm 1 of the paper. After token t the author is redrawn if the token is a
    boundary or the run has reached the cap; the run then starts at 0, else it grows by 1.
    """

    name: ClassVar[str] = "word"
    boundaries: ClassVar[str] = "word"

    cap: int = 32
    """K: the number of non-boundary tokens after which the author is redrawn anyway."""

    def __post_init__(self) -> None:
        BernoulliSchedule.__post_init__(self)
        check_count("cap", self.cap)

    def advance(
        self, author: Tensor, run: Tensor, is_boundary: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor]:
        return self._redrawn(is_boundary | (run >= self.cap), author, run, u)

    def walk(
        self, is_boundary: NDArray[np.bool_], u: NDArray[np.float64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        runs = tokens_since(is_boundary)
        if runs.size and runs.max() > self.cap:  # rare, and a division is the most expensive step
            runs %= self.cap + 1
        return self._drawn(runs, u)


@dataclass(frozen=True, slots=True)
class SoloWordSchedule(WordSchedule):
    """Mark the same random part of a response as ``word``, but let the senior write everything.

    An engine configured with it samples every token from the senior, whoever the author is. A
    trainer therefore runs plain GRPO on a random share p of its tokens: as many as tandem trains.
    """

    name: ClassVar[str] = "solo-word"


@dataclass(frozen=True, slots=True)
class TokenSchedule(BernoulliSchedule):
    """Redraw the author after every token."""

    name: ClassVar[str] = "token"
    boundaries: ClassVar[str] = "every"

    def advance(
        self, author: Tensor, run: Tensor, is_boundary: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor]:
        return u < self.p, run * 0

    def walk(
        self, is_boundary: NDArray[np.bool_], u: NDArray[np.float64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        return u < self.p, np.zeros(u.shape, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class ChunkSchedule(BernoulliSchedule):
    """Redraw the author after every ``n`` tokens, regardless of boundaries."""

    name: ClassVar[str] = "chunk"
    boundaries: ClassVar[str] = "every"

    n: int = 32
    """The tokens from one redraw to the next."""

    def __post_init__(self) -> None:
        BernoulliSchedule.__post_init__(self)
        check_count("n", self.n)

    def advance(
        self, author: Tensor, run: Tensor, is_boundary: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor]:
        return self._redrawn(run >= self.n - 1, author, run, u)

    def walk(
        self, is_boundary: NDArray[np.bool_], u: NDArray[np.float64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        runs = np.arange(1, is_boundary.shape[1] + 1, dtype=np.int64) % self.n
        return self._drawn(np.broadcast_to(runs, is_boundary.shape), u)


@dataclass(frozen=True, slots=True)
class SentenceSchedule(BernoulliSchedule):
    """Redraw the author after every token that ends a sentence."""

    name: ClassVar[str] = "sentence"
    boundaries: ClassVar[str] = "sentence"


@dataclass(frozen=True, slots=True)
class StepBernoulliSchedule(BernoulliSchedule):
    """Redraw the author after every token that contains a blank line: at the end of a step."""

    name: ClassVar[str] = "step-bernoulli"
    boundaries: ClassVar[str] = "step"
