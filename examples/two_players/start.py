"""The model that both players begin as: it knows the rules, taught on games of weak players."""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from game import FEWEST, MOST, MOVES, RULES, between, left_text, opening, weak_player
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

sys.path.append(str(Path(__file__).resolve().parents[1] / "demo"))

from model import IGNORED, Lesson, build_model, encode_messages
from tokenizer import train_tokenizer

Example = tuple[list[int], list[int]]
"""Token ids of a game, and the label of each: that token where a player says it."""


@dataclass(frozen=True, slots=True)
class Teaching:
    """How large the model is, and how many games it sees; the defaults take seconds."""

    hidden_size: int = 64
    layers: int = 2
    steps: int = 500
    batch_size: int = 32
    learning_rate: float = 3e-3


def teach_rules(out: Path, seed: int, teaching: Teaching) -> None:
    """Teaches a fresh model and saves it to ``out`` as a Hugging Face checkpoint in float32.

    Its games are those of weak players, so that it plays legally and not well.
    """
    torch.manual_seed(seed)
    rng = random.Random(seed)
    tokenizer = make_tokenizer()
    lesson = Lesson(hidden_size=teaching.hidden_size, layers=teaching.layers)
    model = build_model(lesson, tokenizer)
    optimizer = torch.optim.AdamW(model.parameters(), lr=teaching.learning_rate)
    model.train()
    for step in range(teaching.steps):
        for group in optimizer.param_groups:
            group["lr"] = teaching.learning_rate * (1 - step / teaching.steps)
        games = [random_game(rng, tokenizer) for _ in range(teaching.batch_size)]
        input_ids, labels = _collate(games, tokenizer.pad_token_id)
        logits = model(input_ids=input_ids).logits[:, :-1]
        cross_entropy(
            logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORED
        ).backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def make_tokenizer() -> PreTrainedTokenizerFast:
    """That of the demo, trained on all that is said in a game: each move is one token."""
    said = [left_text(left) for left in range(1, MOST + 1)]
    return train_tokenizer([RULES, *said, *MOVES, "user\n", "assistant\n"] * 2, 400)


def random_game(rng: random.Random, tokenizer: PreTrainedTokenizerFast) -> Example:
    """A game of two weak players."""
    left = rng.randint(FEWEST, MOST)
    token_ids = encode_messages(opening(left), tokenizer)
    labels = [IGNORED] * len(token_ids)
    while left:
        words = weak_player(left)
        word = rng.choices(list(words), list(words.values()))[0]
        move = [*tokenizer.encode(word), tokenizer.eos_token_id]
        left -= MOVES[word]
        table = tokenizer.encode(between(left)) if left else []
        token_ids += move + table
        labels += move + [IGNORED] * len(table)
    return token_ids, labels


def _collate(games: list[Example], pad: int) -> tuple[Tensor, Tensor]:
    """Right-padded ids and labels, both int64 ``[games, length]``."""
    length = max(len(token_ids) for token_ids, _ in games)
    ids = [token_ids + [pad] * (length - len(token_ids)) for token_ids, _ in games]
    labels = [label + [IGNORED] * (length - len(label)) for _, label in games]
    return torch.tensor(ids), torch.tensor(labels)


def load(folder: Path) -> Qwen3ForCausalLM:
    """A checkpoint in float32."""
    return Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
