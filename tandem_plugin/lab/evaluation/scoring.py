"""How well a model predicts the text of a different model, by position, in bounded memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch

from tandem_plugin.errors import EvaluationError
from tandem_plugin.lab.evaluation.inputs import Checkpoint
from tandem_plugin.progress import waiting

Head: TypeAlias = Callable[[torch.Tensor], torch.Tensor]
"""The last hidden states of some positions ``[positions, width]`` to logits ``[positions, V]``."""

WORKING_BYTES = 256 * 2**20
"""Maximum bytes for the distributions of one chunk of positions."""

_COPIES = 8
"""Maximum number of float64 tensors of a chunk's shape alive at a time."""


_PROBE = 8
"""Token ids that a model's head is checked on."""


class HFModel:
    """One model, loaded for reading: hidden states of a response, and its head for some of them.

    An engine returns log-probabilities of a few tokens per position, not whole distributions, so
    Hugging Face's implementation is used, in one forward pass without a KV cache.

    dtype: "auto" for the checkpoint's own. device: None uses a GPU if there is one. Raises
    :class:`EvaluationError` for a model that cannot be loaded, or whose logits are not simply its
    head's output (as where they are capped or scaled afterwards).
    """

    def __init__(self, checkpoint: Checkpoint, dtype: str = "auto", device: str | None = None):
        from transformers import AutoModelForCausalLM

        self.checkpoint = checkpoint
        try:
            self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
            with waiting(f"load {checkpoint.name}"):
                model, loaded = AutoModelForCausalLM.from_pretrained(
                    checkpoint.path,
                    dtype=dtype,
                    attn_implementation="sdpa",
                    output_loading_info=True,
                )
            if missing := sorted(loaded["missing_keys"]):
                raise ValueError(f"its files lack {missing[0]}, one of {len(missing)} weights")
        except Exception as error:
            raise EvaluationError(
                "scoring-model-not-loaded",
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

    @torch.inference_mode()
    def states(self, prompt: Sequence[int], response: Sequence[int]) -> torch.Tensor:
        """The hidden states that predict the response's tokens: ``[len(response), width]``.

        prompt, response: token ids; the prompt has at least one. Raises :class:`EvaluationError`
        for more positions than the model has.
        """
        ids = [*prompt, *response[:-1]]
        if len(ids) > self.longest:
            raise EvaluationError(
                "scoring-sequence-too-long",
                ids=len(ids),
                checkpoint=self.checkpoint.name,
                longest=self.longest,
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
        logits = self._model(input_ids=inputs, use_cache=False).logits[0].double()
        parts = self.head(self._hidden(ids)).double()
        spread = float(logits.abs().max()) + 1e-12
        tolerance = 1e-4 if self._head.weight.dtype == torch.float32 else 2e-2
        if logits.shape != parts.shape or float((logits - parts).abs().max()) > tolerance * spread:
            raise EvaluationError(
                "scoring-logits-transformed",
                checkpoint=self.checkpoint.name,
                model_type=type(self._model).__name__,
            )


@dataclass(frozen=True, slots=True)
class ResponseScore:
    """Sums over the positions of one response."""

    tokens: int
    cross_entropy: float
    """Of the junior's -log p(token), in nats."""
    overlap: float
    """Of alpha."""
    entropy: float
    """Of the senior's own entropy, in nats."""
    kl: float
    """Of KL(senior || junior), in nats."""


class PositionScores(NamedTuple):
    """What each position of a response is scored by, float64 ``[positions]`` each."""

    cross_entropy: torch.Tensor
    overlap: torch.Tensor
    entropy: torch.Tensor
    kl: torch.Tensor


def chunk_scores(
    senior: torch.Tensor, junior: torch.Tensor, targets: torch.Tensor
) -> PositionScores:
    """How well the junior predicts the senior at each position, and how sharp the senior is.

    senior, junior: logits ``[positions, V]``, of any floating type; each is normalised over its own
    vocabulary, and a token that only one of them has adds nothing to overlap and KL. targets: the
    senior's token ids. Cross-entropy is -log p_jun(y_t | h_t) in nats; overlap is alpha = sum over
    v of min(p_sen(v | h_t), p_jun(v | h_t)). Where the senior samples at temperature 1, the mean
    cross-entropy is the mean of its entropy plus KL(p_sen || p_jun): it also falls where the senior
    only sharpens. All at temperature 1. Source: section 4.5 of the paper; Leviathan et al. (2023).
    """
    read = torch.log_softmax(junior.double(), dim=-1)
    written = torch.log_softmax(senior.double(), dim=-1)
    cross_entropy = -read.gather(-1, targets[:, None]).squeeze(-1)
    probabilities = written.exp()
    entropy = torch.special.entr(probabilities).sum(dim=-1)
    shared = min(written.shape[-1], read.shape[-1])
    read, written, probabilities = read[:, :shared], written[:, :shared], probabilities[:, :shared]
    # 0 where the senior never writes a token, whatever its logarithm.
    kl = torch.where(probabilities > 0, probabilities * (written - read), 0.0).sum(dim=-1)
    overlap = torch.minimum(probabilities, read.exp()).sum(dim=-1)
    return PositionScores(cross_entropy, overlap, entropy, kl)


def chunk_length(vocabulary: int) -> int:
    """Number of positions whose distributions fit into ``WORKING_BYTES``, at least one."""
    return max(1, WORKING_BYTES // (8 * _COPIES * vocabulary))


def score_response(
    senior_states: torch.Tensor,
    senior_head: Head,
    junior_states: torch.Tensor,
    junior_head: Head,
    targets: Sequence[int],
    chunk: int,
) -> ResponseScore:
    """Scores one response, ``chunk`` positions at a time, never all of its logits at once.

    senior_states, junior_states: the hidden states ``[tokens, width]`` that predict the response's
    tokens, at the position before each. Sums are taken in float64. Raises :class:`EvaluationError`
    if the result is not finite.
    """
    ids = torch.as_tensor(targets, dtype=torch.int64)
    sums = [0.0] * len(PositionScores._fields)
    for start in range(0, len(ids), chunk):
        part = slice(start, start + chunk)
        junior_logits = junior_head(junior_states[part])
        scores = chunk_scores(
            senior_head(senior_states[part]), junior_logits, ids[part].to(junior_logits.device)
        )
        sums = [total + float(score.sum()) for total, score in zip(sums, scores, strict=True)]
    if not math.isfinite(sum(sums)):
        raise EvaluationError("scoring-logits-not-finite")
    return ResponseScore(len(ids), *sums)
