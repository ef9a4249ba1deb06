"""One game by two models, whatever engine they are in: the token ids of it and how it ended."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from game import Game, Player, between

MOVE_TOKENS = 4
"""The most tokens of a move, its end included; the taught model needs two."""

ASKED: Mapping[Player, Mapping[str, Any]] = {
    "senior": {},
    "junior": {"extra_args": {"tandem": {"schedule": "junior"}}},
}
"""What each player's generate calls ask for: nothing, which is the run's schedule, and the frozen
junior for its opponent."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a generate call returned: token ids, and the log probability of each."""

    token_ids: Sequence[int]
    log_probs: Sequence[float]


Speak = Callable[[list[int], Mapping[str, Any]], Awaitable[Said]]
"""A generate call: given the tokens so far and what the player's calls ask for besides."""


@dataclass(slots=True)
class Played:
    """A game that is over, as the response of an agent loop.

    moves: ``[start, stop)`` of each move in it, the opponent's too: which tokens are the senior's
    is for tandem to say, and it lets the trainer learn from no other. log_probs: 0 outside them.
    """

    game: Game
    token_ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    moves: list[tuple[int, int]] = field(default_factory=list)

    def add_move(self, said: Said) -> None:
        """What a model wrote."""
        start = len(self.token_ids)
        self.token_ids += said.token_ids
        self.log_probs += said.log_probs
        self.moves.append((start, len(self.token_ids)))

    def add_table(self, token_ids: Sequence[int]) -> None:
        """What no model wrote."""
        self.token_ids += token_ids
        self.log_probs += [0.0] * len(token_ids)

    @property
    def mask(self) -> list[int]:
        """1 for each token of a move."""
        mask = [0] * len(self.token_ids)
        for start, stop in self.moves:
            mask[start:stop] = [1] * (stop - start)
        return mask


async def play(stones: int, prompt_ids: Sequence[int], tokenizer: Any, speak: Speak) -> Played:
    """Let senior and junior play a game, each in calls of its own."""
    played = Played(Game(stones))
    while True:
        said = await speak([*prompt_ids, *played.token_ids], ASKED[played.game.turn])
        played.add_move(said)
        played.game.say(text_of(said.token_ids, tokenizer))
        if played.game.winner is not None:
            return played
        played.add_table(tokenizer.encode(between(played.game.left), add_special_tokens=False))


def text_of(token_ids: Sequence[int], tokenizer: Any) -> str | None:
    """A move's text, special tokens written out; None where it did not end."""
    *said, end = token_ids or [None]
    if end != tokenizer.eos_token_id:
        return None
    return str(tokenizer.decode(said, skip_special_tokens=False))


def longest_response(stones: int, tokenizer: Any) -> int:
    """The most tokens of a game that begins with so many stones."""
    table = max(
        len(tokenizer.encode(between(left), add_special_tokens=False)) for left in range(1, stones)
    )
    return stones * MOVE_TOKENS + (stones - 1) * table
