"""The game: stones in a row, one to three are taken at a time, who takes the last one wins.

What a player says is hostile text: a move is one of three words and nothing else, and whoever says
anything else has lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

Player = Literal["senior", "junior"]
"""The senior is trained and begins; the junior is its frozen start."""

MOVES: Mapping[str, int] = {"one": 1, "two": 2, "three": 3}
"""All that a player may say, and how many stones it takes so."""

FEWEST, MOST = 4, 12
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


def best_move(left: int) -> str | None:
    """The word that leaves a multiple of four, which loses for whoever is to move; None without."""
    return {taken: word for word, taken in MOVES.items()}.get(left % 4)


@cache
def best_win_rate(left: int) -> float:
    """How often the best player wins who is to move, against one that draws legal moves evenly.

    By recursion over the game's end: nothing is played.
    """
    return max((_reply(left - taken) for taken in MOVES.values() if taken <= left), default=0.0)


def _reply(left: int) -> float:
    """The same, where the other one is to move."""
    if left == 0:
        return 1.0
    drawn = [taken for taken in MOVES.values() if taken <= left]
    return sum(best_win_rate(left - taken) if taken < left else 0.0 for taken in drawn) / len(drawn)


def even_win_rate(left: int) -> float:
    """The same, where both draw legal moves evenly."""
    drawn = [taken for taken in MOVES.values() if taken <= left]
    return sum(1.0 if taken == left else 1 - even_win_rate(left - taken) for taken in drawn) / len(
        drawn
    )


def mean_over_starts(rate: Mapping[int, float] | Sequence[float]) -> float:
    """The mean over all numbers of stones with which a game begins."""
    starts = range(FEWEST, MOST + 1)
    return sum(rate[stones] for stones in starts) / len(starts)
