"""Who wins a match of two checkpoints: played with Hugging Face's models, without an engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from game import FEWEST, MOST, Game, between, opening
from play import MOVE_TOKENS, text_of
from start import encode_messages
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM


@dataclass(frozen=True, slots=True)
class Match:
    """The games of a match, and the tokens of each: int64, the prompt included."""

    games: list[Game]
    token_ids: list[list[int]]

    @property
    def win_rate(self) -> float:
        """The part that the senior has won."""
        return sum(game.reward for game in self.games) / len(self.games)

    @property
    def illegal(self) -> float:
        """The part that ended by an illegal move, whoever made it."""
        return sum(game.illegal for game in self.games) / len(self.games)


@torch.inference_mode()
def match(
    senior: Qwen3ForCausalLM,
    junior: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    *,
    repeats: int = 100,
    seed: int = 1,
) -> Match:
    """Plays ``repeats`` games from every start, moves sampled at temperature 1."""
    torch.manual_seed(seed)
    starts = [stones for stones in range(FEWEST, MOST + 1) for _ in range(repeats)]
    games = [Game(stones) for stones in starts]
    token_ids = [encode_messages(opening(stones), tokenizer) for stones in starts]
    while playing := [place for place, game in enumerate(games) if game.winner is None]:
        model = senior if games[playing[0]].turn == "senior" else junior  # all take turns at once
        said = _say(model, [token_ids[place] for place in playing], tokenizer)
        for place, move in zip(playing, said, strict=True):
            game = games[place]
            token_ids[place] += move
            game.say(text_of(move, tokenizer))
            if game.winner is None:
                token_ids[place] += tokenizer.encode(between(game.left))
    return Match(games, token_ids)


def _say(
    model: Qwen3ForCausalLM, contexts: Sequence[list[int]], tokenizer: PreTrainedTokenizerFast
) -> list[list[int]]:
    """What the model says in each context, up to its end or as far as a move may go."""
    longest, pad = max(map(len, contexts)), tokenizer.pad_token_id
    written = model.generate(
        torch.tensor([[pad] * (longest - len(ids)) + ids for ids in contexts]),
        attention_mask=torch.tensor(
            [[0] * (longest - len(ids)) + [1] * len(ids) for ids in contexts]
        ),
        do_sample=True,
        temperature=1.0,
        top_k=0,
        max_new_tokens=MOVE_TOKENS,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=pad,
    )
    return [_up_to_end(said, tokenizer.eos_token_id) for said in written[:, longest:].tolist()]


def _up_to_end(token_ids: list[int], end: int) -> list[int]:
    return token_ids[: token_ids.index(end) + 1] if end in token_ids else token_ids
