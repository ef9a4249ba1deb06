"""How far a response's tokens are from what a model would have written at temperature 0."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM


class GreedyReader:
    """A checkpoint, read by Hugging Face's own forward pass in float32.

    weights: what its weights are rounded to first, as an engine holds them.
    """

    def __init__(self, folder: str | Path, weights: torch.dtype = torch.float32) -> None:
        torch.set_num_threads(1)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=weights)
        self._model = model.eval().float()

    @torch.no_grad()
    def gaps(self, prompt: Sequence[int], response: Sequence[int]) -> list[float]:
        """Of each token, how far its logit is below the largest; 0 for the model's own choice."""
        logits = self._model(torch.tensor([[*prompt, *response]])).logits[0]
        at = logits[len(prompt) - 1 : -1]
        chosen = at.gather(1, torch.tensor(response)[:, None])[:, 0]
        return (at.max(dim=1).values - chosen).tolist()


def assert_named_junior_wrote(
    rows: Iterable[tuple[str, Sequence[int], Sequence[int], Sequence[int]]],
    pool: Sequence[str],
    tolerance: float,
    weights: torch.dtype = torch.float32,
) -> None:
    """The junior's tokens are greedy choices of the junior that each row names, and of no other.

    rows: junior, prompt, response and authors of each. tolerance: in logits.
    """
    readers = {name: GreedyReader(name, weights) for name in pool}
    own: list[float] = []
    others: list[float] = []
    for junior, prompt, response, authors in rows:
        for name, reader in readers.items():
            gaps = zip(reader.gaps(prompt, response), authors, strict=True)
            (own if name == junior else others).extend(gap for gap, senior in gaps if not senior)
    assert len(own) > 200
    assert max(own) <= tolerance
    assert sum(gap <= tolerance for gap in others) < len(others) / 10
