"""An independent reference: Algorithm 1 in plain Python over Hugging Face forward passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from transformers import AutoModelForCausalLM

Authors: TypeAlias = Callable[[], Iterator[bool]]
"""Makes a generator of a response's authors, which is sent each token."""
Written: TypeAlias = tuple[list[int], list[int], Authors]
"""A prompt, a greedy response to it, and the response's authors."""


class Reference:
    """Two Hugging Face models that compute in fp32."""

    def __init__(
        self,
        senior: Path,
        junior: Path,
        ids: int | None = None,
        weights: torch.dtype = torch.float32,
    ) -> None:
        """ids: how many token ids may be sampled, where the models do not have the same.

        weights: the type that an engine rounds the checkpoints' weights to.
        """
        self.ids = ids
        torch.set_num_threads(1)  # tiny models: more threads only wait for each other
        self.models = {True: _in_fp32(senior, weights), False: _in_fp32(junior, weights)}

    @torch.no_grad()
    def logits(self, author: bool, ids: list[int]) -> torch.Tensor:
        """The author's logits for the token after ``ids``: float32 ``[vocabulary]``."""
        return self.models[author](torch.tensor([ids])).logits[0, -1, : self.ids].float()

    def greedy(self, prompt: list[int], length: int, authors: Iterator[bool]) -> list[int]:
        """Greedy tokens, each by the author that ``authors`` yields when sent the last one."""
        response: list[int] = []
        author = next(authors)
        while len(response) < length:
            response.append(int(self.logits(author, prompt + response).argmax()))
            if len(response) < length:
                author = authors.send(response[-1])
        return response

    def choices(self, prompt: list[int], response: list[int], authors: Iterator[bool]) -> list[int]:
        """What each token's author finds likeliest after ``prompt`` and the response before it.

        Equals ``response`` exactly when :meth:`greedy` would have written it, by induction over its
        tokens; it takes one forward pass a model instead of one a token.
        """
        logits = self.both(prompt, response)
        likeliest = {author: rows.argmax(-1).tolist() for author, rows in logits.items()}
        return [likeliest[author][t] for t, author in enumerate(along(authors, response))]

    def check(self, responses: Iterable[Written]) -> None:
        """Each token of greedy responses is the one that its author finds likeliest."""
        for prompt, response, authors in responses:
            assert self.choices(prompt, response, authors()) == response

    @torch.no_grad()
    def both(self, prompt: list[int], response: list[int]) -> dict[bool, torch.Tensor]:
        """Each model's logits where a response's tokens were chosen: float32 ``[tokens, ids]``."""
        ids = torch.tensor([prompt + response])
        return {
            author: model(ids).logits[0, len(prompt) - 1 : -1, : self.ids].float()
            for author, model in self.models.items()
        }

    def shortfall(self, prompt: list[int], response: list[int], authors: Iterator[bool]) -> float:
        """By how much a token was less likely than its author's likeliest: the most, in logits."""
        logits = self.both(prompt, response)
        return max(
            float(logits[author][t].max() - logits[author][t][response[t]])
            for t, author in enumerate(along(authors, response))
        )


def _in_fp32(checkpoint: Path, weights: torch.dtype) -> Any:
    """The model of a checkpoint, its weights rounded to this type and kept in fp32."""
    model = AutoModelForCausalLM.from_pretrained(
        checkpoint, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    for parameter in model.parameters():
        parameter.data = parameter.data.to(weights).float()
    return model


def along(authors: Iterator[bool], response: list[int]) -> Iterator[bool]:
    """Who writes each token of a response."""
    author = next(authors)
    for t, token in enumerate(response):
        yield author
        if t + 1 < len(response):
            author = authors.send(token)


def uniforms(seed: int, length: int) -> list[float]:
    """The draws of a seed, from the generator's raw 64-bit words."""
    words = np.random.Philox(key=seed).random_raw(length)
    return [(int(word) >> 11) * 2.0**-53 for word in words]


def algorithm_1(seed: int, p: float, cap: int, boundaries: set[int]) -> Iterator[bool]:
    """Algorithm 1 as the paper writes it: yields a_t, is sent y_t."""
    u = uniforms(seed, 4096)
    t = 1
    senior = u[0] < p
    c = 0
    while True:
        y = yield senior
        t += 1
        if y in boundaries or c >= cap:
            senior = u[t - 1] < p
            c = 0
        else:
            c += 1


def always(senior: bool) -> Iterator[bool]:
    """One author throughout."""
    while True:
        yield senior


def alternating(senior: bool) -> Iterator[bool]:
    """Strict alternation, token by token."""
    while True:
        yield senior
        senior = not senior


def every_token(seed: int, p: float) -> Iterator[bool]:
    """A fresh draw for every token."""
    for u in uniforms(seed, 4096):
        yield u < p


def strict_alternation(senior: bool, boundaries: set[int]) -> Iterator[bool]:
    """A handover after each token of ``boundaries``."""
    while True:
        y = yield senior
        if y in boundaries:
            senior = not senior
