"""A model that reads responses: hidden states of a whole response, and logits in chunks.

An engine returns log-probabilities of a few tokens per position, not whole distributions, so
Hugging Face's implementation of the model is used, in one forward pass without a KV cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tandem_plugin.errors import EvaluationError
from tandem_plugin.lab.evaluation.checkpoint import Checkpoint
from tandem_plugin.progress import waiting

__all__ = ["HFModel", "tile_positions"]

TILE = 1024
"""Positions per call of a layer's feed-forward part and norms."""

_PROBE = 8


class HFModel:
    """One model, loaded for reading.

    dtype: "auto" for the checkpoint's own. device: None uses a GPU if there is one. Raises
    :class:`EvaluationError` for a model that cannot be loaded, or whose logits are not simply its
    head's output (for example capped or scaled).
    """

    def __init__(self, checkpoint: Checkpoint, dtype: str = "auto", device: str | None = None):
        from transformers import AutoModelForCausalLM

        self.checkpoint = checkpoint
        try:
            self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
            with waiting(f"load {checkpoint.name}"):
                model: Any = AutoModelForCausalLM.from_pretrained(
                    checkpoint.path, dtype=dtype, attn_implementation="sdpa"
                )
        except Exception as error:
            raise EvaluationError(
                "TP873",
                checkpoint=checkpoint.name,
                path=checkpoint.path,
                error_type=type(error).__name__,
                error=error,
            ) from error
        self._model = model.to(self.device).eval()
        self._body: Any = self._model.base_model
        self._head: Any = self._model.get_output_embeddings()
        self.vocabulary = int(self._head.weight.shape[0])
        self.longest = int(getattr(self._model.config, "max_position_embeddings", 2**31))
        self._check_head()
        tile_positions(self._body, TILE)

    @torch.inference_mode()
    def states(self, prompt: Sequence[int], response: Sequence[int]) -> torch.Tensor:
        """The hidden states that predict the response's tokens: ``[len(response), width]``.

        prompt, response: token ids; the prompt has at least one. Raises :class:`EvaluationError`
        for more positions than the model has.
        """
        ids = [*prompt, *response[:-1]]
        if len(ids) > self.longest:
            raise EvaluationError(
                "TP911", ids=len(ids), checkpoint=self.checkpoint.name, longest=self.longest
            )
        first = len(prompt) - 1
        return self._hidden(ids)[first : first + len(response)]

    @torch.inference_mode()
    def head(self, states: torch.Tensor) -> torch.Tensor:
        """Logits ``[positions, vocabulary]`` of hidden states, in the model's own dtype."""
        logits: torch.Tensor = self._head(states)
        return logits

    def close(self) -> None:
        """Free the weights."""
        self._model = self._body = self._head = None
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _hidden(self, ids: Sequence[int]) -> torch.Tensor:
        inputs = torch.tensor([ids], dtype=torch.int64, device=self.device)
        hidden: torch.Tensor = self._body(input_ids=inputs, use_cache=False).last_hidden_state
        return hidden[0]

    @torch.inference_mode()
    def _check_head(self) -> None:
        ids = list(range(min(_PROBE, self.vocabulary)))
        inputs = torch.tensor([ids], dtype=torch.int64, device=self.device)
        whole = self._model(input_ids=inputs, use_cache=False).logits[0].double()
        parts = self.head(self._hidden(ids)).double()
        spread = float(whole.abs().max()) + 1e-12
        tolerance = 1e-4 if self._head.weight.dtype == torch.float32 else 2e-2
        if whole.shape != parts.shape or float((whole - parts).abs().max()) > tolerance * spread:
            raise EvaluationError(
                "TP912", checkpoint=self.checkpoint.name, model_type=type(self._model).__name__
            )


def tile_positions(body: Any, rows: int) -> int:
    """Make feed-forward parts and norms process ``rows`` positions at a time; returns their number.

    They treat each position separately, so the result is the same, and their intermediate memory no
    longer grows with the response. Applies to modules called ``mlp`` and to norms; a module that
    takes or returns anything but a tensor is left unchanged.
    """
    tiled = 0
    for name, module in body.named_modules():
        is_norm = type(module).__name__.endswith(("RMSNorm", "LayerNorm"))
        if is_norm or name.rpartition(".")[2] == "mlp":
            module.forward = _tiled(module.forward, rows)
            tiled += 1
    return tiled


def _tiled(forward: Callable[..., Any], rows: int) -> Callable[..., Any]:
    def tiled(states: Any, *more: Any, **options: Any) -> Any:
        if more or options or not torch.is_tensor(states) or states.dim() < 3:
            return forward(states, *more, **options)
        if states.shape[1] <= rows:
            return forward(states)
        first = forward(states[:, :rows])
        if not torch.is_tensor(first):
            return forward(states)
        whole = first.new_empty((first.shape[0], states.shape[1], *first.shape[2:]))
        whole[:, :rows] = first
        for start in range(rows, states.shape[1], rows):
            whole[:, start : start + rows] = forward(states[:, start : start + rows])
        return whole

    return tiled
