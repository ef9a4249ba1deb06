"""The rollouts that both adapters are held to, and what must become of them, by plain loops.

Authorship is the paper's Algorithm 1 as the paper writes it, the loss an independent masked GRPO in
float64, one response at a time and without padding. Neither uses the adapters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import count

import numpy as np
import torch
from algorithm_1 import algorithm_1

from tandem_plugin import Rule, TandemConfig, TandemRules, Vocabulary
from tandem_plugin._draws import draws

PIECES = tuple(f"Ġ{i}" if i % 3 == 0 else str(i) for i in range(24))
BOUNDARIES = frozenset(range(0, 24, 3))
P, CAP = 0.5, 4
CLIP, DUAL_CLIP = 0.2, 3.0


@dataclass(frozen=True)
class Turn:
    """What one generate call wrote under its own seed, and the feedback that followed it."""

    seed: int
    tokens: tuple[int, ...]
    feedback: tuple[int, ...] = ()
    dropped: tuple[Turn, ...] = ()
    """Calls on the same prompt that the loop did not keep; half of them came back later."""

    @property
    def known(self) -> list[int]:
        """0 where a dropped call of the same text has another author: nobody may learn from it."""
        alike = [self.senior, *(one.senior for one in self.dropped if one.tokens == self.tokens)]
        return [int(len(set(authors)) == 1) for authors in zip(*alike, strict=True)]

    @property
    def senior(self) -> list[int]:
        """1 where the senior wrote, by Algorithm 1."""
        return algorithm_1(self.tokens, BOUNDARIES, CAP, P, draws(self.seed, len(self.tokens) + 1))


@dataclass(frozen=True)
class Rollout:
    """One response of a group, turn by turn."""

    name: str
    group: int
    prompt: tuple[int, ...]
    turns: tuple[Turn, ...]
    reward: float

    @property
    def calls(self) -> list[list[Turn]]:
        """The calls of each turn, in the order in which they come back."""
        every = []
        for turn in self.turns:
            half = len(turn.dropped) // 2
            every.append([*turn.dropped[:half], turn, *turn.dropped[half:]])
        return every

    @property
    def response(self) -> list[int]:
        return [token for turn in self.turns for token in (*turn.tokens, *turn.feedback)]

    @property
    def generated(self) -> list[int]:
        """1 for tokens that a model wrote, 0 for feedback."""
        return [bit for t in self.turns for bit in (*[1] * len(t.tokens), *[0] * len(t.feedback))]

    def mask(self, longest: int) -> list[int]:
        """1 for the senior's tokens, of a response that is cut off after ``longest`` tokens."""
        return [a & b for a, b in zip(self._senior, self.known, strict=True)][:longest]

    @property
    def _senior(self) -> list[int]:
        return [b for t in self.turns for b in (*t.senior, *[0] * len(t.feedback))]

    @property
    def known(self) -> list[int]:
        """1 for tokens that a model wrote, of which it is known which, 0 for others."""
        return [b for t in self.turns for b in (*t.known, *[0] * len(t.feedback))]

    def junior_mask(self, longest: int) -> list[int]:
        """1 for the junior's tokens, likewise."""
        bits = zip(self.known[:longest], self._senior[:longest], strict=True)
        return [int(known and not senior) for known, senior in bits]


@cache
def rule() -> Rule:
    """The rule that the rollouts follow."""
    config = TandemConfig.from_mapping({"schedule": "word", "p": P, "cap": CAP})
    return TandemRules(config, Vocabulary(PIECES, "the conformance suite")).default


LONGEST = 20
"""Tokens of a response after which both trainers cut it off."""


def rollouts() -> list[Rollout]:
    """Two prompts, eight responses to each, among them all that differ in kind."""
    rng = np.random.default_rng(5)
    numbers = count(100)

    def tokens(length: int) -> tuple[int, ...]:
        return tuple(int(token) for token in rng.integers(0, 24, length))

    def turn(length: int, wanted: str = "both", feedback: tuple[int, ...] = ()) -> Turn:
        while True:
            made = Turn(next(numbers), tokens(length), feedback)
            share = sum(made.senior) / max(length, 1)
            if {"both": 0 < share < 1, "senior": share == 1, "junior": share == 0}[wanted]:
                return made

    def chosen(best: Turn) -> Turn:
        others = [(*best.tokens[:-1], (best.tokens[-1] + shift) % 24) for shift in (1, 2)]
        return replace(best, dropped=tuple(Turn(next(numbers), other) for other in others))

    def same_text(one: Turn) -> Turn:
        while True:
            made = replace(one, dropped=(Turn(next(numbers), one.tokens),))
            if 0 < sum(made.known) < len(made.tokens):
                return made

    kinds = [
        ("mixed", (turn(12),)),
        ("empty", (Turn(next(numbers), ()),)),
        ("one token of the senior", (turn(1, "senior"),)),
        ("one token of the junior", (turn(1, "junior"),)),
        ("all of the senior", (turn(9, "senior"),)),
        ("all of the junior", (turn(9, "junior"),)),
        ("cut off", (turn(LONGEST + 7),)),
        ("as long as may be", (turn(LONGEST),)),
        ("two turns", (turn(6, feedback=(5, 7, 9)), turn(8))),
        ("two turns, the second cut off", (turn(9, feedback=(3, 4)), turn(15))),
        ("two turns, the junior's alone", (turn(4, "junior", (8,)), turn(3, "junior"))),
        ("the best of three that begin alike", (chosen(turn(5)),)),
        ("the junior's turn between two", (turn(6), turn(4, "junior", (2,)), turn(5))),
        ("three turns", (turn(5, "senior"), turn(6, feedback=(1,)), turn(7))),
        ("one of two of the same text", (same_text(turn(10)),)),
        ("one of two of the same text, between turns", (turn(4), same_text(turn(6)), turn(3))),
    ]
    prompts = tokens(6), tokens(3)
    return [
        Rollout(name, i % 2, prompts[i % 2], turns, float(rng.integers(0, 2)) + 0.25 * (i // 2))
        for i, (name, turns) in enumerate(kinds)
    ]


def tiny_model() -> torch.nn.Module:
    """A small language model over the suite's vocabulary, float32, the same every time."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(3)
    config = Qwen3Config(
        vocab_size=len(PIECES),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=64,
        initializer_range=0.2,
        tie_word_embeddings=False,
        attn_implementation="eager",
    )
    return Qwen3ForCausalLM(config).float().eval()


def response_log_probs(model: torch.nn.Module, rollout: Rollout) -> torch.Tensor:
    """The log-probability of every response token, ``[length]``, of the cut response."""
    response = rollout.response[:LONGEST]
    logits = model(torch.tensor([[*rollout.prompt, *response]])).logits[0]
    chosen = logits[len(rollout.prompt) - 1 : -1].log_softmax(-1)
    return chosen[torch.arange(len(response)), torch.tensor(response, dtype=torch.long)]


@cache
def _old_model() -> torch.nn.Module:
    return tiny_model().double()


def old_log_probs(rollout: Rollout, number: int) -> torch.Tensor:
    """What the policy had at the rollout: a little off, so that ratios are clipped; float64."""
    with torch.no_grad():
        now = response_log_probs(_old_model(), rollout)
    noise = np.random.default_rng(number).normal(0, 0.3, len(now))
    return now + torch.from_numpy(noise)


def advantages(all_of_them: Sequence[Rollout], epsilon: float) -> list[float]:
    """(reward - mean) / (standard deviation + epsilon) within each group."""
    found = []
    for rollout in all_of_them:
        group = torch.tensor(
            [r.reward for r in all_of_them if r.group == rollout.group], dtype=torch.float64
        )
        found.append(float((rollout.reward - group.mean()) / (group.std() + epsilon)))
    return found


def reference_gradients(
    all_of_them: Sequence[Rollout], mode: str, epsilon: float, lambda_jun: float = 0.0
) -> dict[str, torch.Tensor]:
    """The gradient of the masked, clipped GRPO loss; float64, one response at a time.

    mode: the name that verl gives the aggregation. Responses without a token of the senior count in
    no mean over responses. lambda_jun: the weight of the mean of -log p over the junior's tokens.
    """
    model = tiny_model().double()
    losses = [
        list(_losses(model, rollout, old_log_probs(rollout, i), advantage))
        for i, (rollout, advantage) in enumerate(
            zip(all_of_them, advantages(all_of_them, epsilon), strict=True)
        )
    ]
    trained = [response for response in losses if response]
    every = [loss for response in trained for loss in response]
    total = {
        "token-mean": lambda: sum(every) / len(every),
        "token-sum": lambda: sum(every),
        "seq-mean-token-sum": lambda: sum(map(sum, trained)) / len(trained),
        "seq-mean-token-sum-norm": lambda: sum(map(sum, trained)) / len(trained) / LONGEST,
        "seq-mean-token-mean": lambda: sum(sum(r) / len(r) for r in trained) / len(trained),
    }[mode]()
    if lambda_jun:
        total = total + lambda_jun * _imitation(model, all_of_them)
    total.backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def _imitation(model: torch.nn.Module, all_of_them: Sequence[Rollout]) -> torch.Tensor:
    """The mean of -log p over the tokens that the junior wrote."""
    written_by_junior = [
        -log_prob
        for rollout in all_of_them
        for log_prob, junior in zip(
            response_log_probs(model, rollout), rollout.junior_mask(LONGEST), strict=True
        )
        if junior
    ]
    return sum(written_by_junior) / len(written_by_junior)


def _losses(
    model: torch.nn.Module, rollout: Rollout, old: torch.Tensor, advantage: float
) -> Iterator[torch.Tensor]:
    now = response_log_probs(model, rollout)
    for new, before, senior in zip(now, old, rollout.mask(LONGEST), strict=True):
        if not senior:
            continue
        ratio = (new - before).exp()
        gain = min(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage)
        if advantage < 0:
            gain = max(gain, torch.full_like(ratio, DUAL_CLIP * advantage))
        yield -gain


def relative_error(model: torch.nn.Module, reference: dict[str, torch.Tensor]) -> float:
    """The distance of the model's gradient from the reference, over the reference's length."""
    ours = {name: parameter.grad.double() for name, parameter in model.named_parameters()}
    assert ours.keys() == reference.keys()
    distance = sum(float((ours[name] - reference[name]).square().sum()) for name in reference)
    return (distance / sum(float(one.square().sum()) for one in reference.values())) ** 0.5
