"""The game: stones in a row, one to three are taken at a time, who takes the last one wins.

What a player says is hostile text: a move is one of three words and nothing else, and whoever says
anything else has lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

Player = Literal["senior", "junior"]
"""The senior is trained and begins; the junior is its frozen start."""

MOVES: Mapping[str, int] = {"one": 1, "two": 2, "three": 3}
"""All that a player may say, and how many stones it takes so."""

FEWEST, MOST = 4, 10
"""With how many stones a game begins."""

RULES = "Take one, two or three. Who takes the last one wins."

TURN = "\n<|im_start|>user\n{said}<|im_end|>\n<|im_start|>assistant\n"
"""What stands between the end of a move and the next player's, as the model's chat template has it:
the table speaks as the user, and both players as the assistant."""

Message = dict[str, str]


def left_text(left: int) -> str:
    """What the table says before every move."""
    return f"{left} left."


def opening(stones: int) -> list[Message]:
    """The chat prompt of a game; the first player answers it."""
    return [{"role": "user", "content": f"{left_text(stones)} {RULES}"}]


def between(left: int) -> str:
    """The text between two moves, which no player wrote."""
    return TURN.format(said=left_text(left))


@dataclass(slots=True)
class Game:
    """One game: how many stones are left, whose turn it is, and who has won, if somebody has."""

    left: int
    turn: Player = "senior"
    winner: Player | None = None
    illegal: bool = False
    """Whether it ended by an illegal move, which lost it."""

    def say(self, text: str | None) -> None:
        """The player whose turn it is says this; None: it did not come to an end.

        Raises :class:`ValueError` where the game is over.
        """
        if self.winner is not None:
            raise ValueError(f"The game is over: the {self.winner} has won.")
        other: Player = "junior" if self.turn == "senior" else "senior"
        taken = MOVES.get(text, 0) if text is not None else 0
        if not 0 < taken <= self.left:
            self.winner, self.illegal = other, True
            return
        self.left -= taken
        if self.left == 0:
            self.winner = self.turn
        self.turn = other

    @property
    def reward(self) -> float:
        """1 where the trained player has won, else 0."""
        return float(self.winner == "senior")


SKILL = 1 / 3
"""How often a weak player sees the best move, where there is one; else it draws a legal one."""

Strategy = Callable[[int], Mapping[str, float]]
"""With so many stones left, how often each move is made."""


def best_move(left: int) -> str | None:
    """The word that leaves a multiple of four, which loses for whoever is to move; None without."""
    return {taken: word for word, taken in MOVES.items()}.get(left % 4)


def weak_player(left: int) -> dict[str, float]:
    """The strategy of those whose games the frozen start was taught."""
    legal = [word for word, taken in MOVES.items() if taken <= left]
    best = best_move(left)
    drawn = 1.0 if best is None else 1 - SKILL
    return {word: drawn / len(legal) + (1 - drawn) * (word == best) for word in legal}


@cache
def win_rate(senior: Strategy | None, junior: Strategy, left: int) -> float:
    """How often the senior wins, which is to move; None: by the best play against this junior.

    By recursion over the game's end: nothing is played.
    """
    rates = {
        word: _rate_after(senior, junior, left - taken)
        for word, taken in MOVES.items()
        if taken <= left
    }
    if senior is None:
        return max(rates.values())
    return sum(often * rates[word] for word, often in senior(left).items())


def _rate_after(senior: Strategy | None, junior: Strategy, left: int) -> float:
    """The same, where the junior is to move."""
    if left == 0:
        return 1.0
    return sum(
        often * win_rate(senior, junior, left - MOVES[word])
        for word, often in junior(left).items()
        if MOVES[word] < left
    )


def mean_win_rate(senior: Strategy | None, junior: Strategy) -> float:
    """The mean over all numbers of stones with which a game begins."""
    starts = range(FEWEST, MOST + 1)
    return sum(win_rate(senior, junior, stones) for stones in starts) / len(starts)
