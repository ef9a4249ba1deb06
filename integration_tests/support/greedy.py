"""How far a response's tokens are from what a model would have written at temperature 0."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM


class GreedyReader:
    """A checkpoint in float32, read by Hugging Face's own forward pass."""

    def __init__(self, folder: str | Path) -> None:
        torch.set_num_threads(1)
        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    @torch.no_grad()
    def gaps(self, prompt: Sequence[int], response: Sequence[int]) -> list[float]:
        """Of each token, how far its logit is below the largest; 0 for the model's own choice."""
        logits = self._model(torch.tensor([[*prompt, *response]])).logits[0]
        at = logits[len(prompt) - 1 : -1]
        chosen = at.gather(1, torch.tensor(response)[:, None])[:, 0]
        return (at.max(dim=1).values - chosen).tolist()
