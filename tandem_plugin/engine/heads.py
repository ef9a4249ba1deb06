"""The two language-model heads: from both models' hidden states to each row's author's logits."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tandem_plugin.engine.board import Authors

__all__ = ["Heads"]


class Heads:
    """Computes, row by row, the logits of the row's author over the senior's vocabulary.

    Vocabularies may be padded to different lengths: ids that one model does not have are never
    sampled, whoever the author is, since the other model could not read them.
    """

    def __init__(self, senior: Any, junior: Any, senior_class: type[Any], vllm_config: Any) -> None:
        self._senior, self._junior, self._senior_class = senior, junior, senior_class
        self._width = vllm_config.model_config.get_hidden_size()
        self._vocabulary = int(vllm_config.model_config.get_vocab_size())
        self._shared = min(self._vocabulary, int(junior.config.vocab_size))

    def logits(self, hidden: torch.Tensor, authors: Authors | None) -> torch.Tensor | None:
        """``[rows, vocabulary]`` from ``[rows, senior's hidden + junior's hidden]``.

        authors: bool ``[rows]``, true = senior; None when every row is the senior's. On the host
        (NumPy), only the author's head runs for a row; on the device both run and a tensor
        operation selects, so that the host never waits.
        """
        if authors is None:
            return self._of_senior(hidden)
        if isinstance(authors, torch.Tensor):
            return self._select(hidden, authors)
        if authors.all():
            return self._of_senior(hidden)
        if not authors.any():
            return self._of_junior(hidden)
        return self._scatter(hidden, authors)

    def _select(self, hidden: torch.Tensor, authors: torch.Tensor) -> torch.Tensor | None:
        senior, junior = self._of_senior(hidden), self._of_junior(hidden)
        if senior is None or junior is None:
            return None
        return torch.where(authors[:, None], senior, junior.to(senior.dtype))

    def _scatter(self, hidden: torch.Tensor, authors: NDArray[np.bool_]) -> torch.Tensor | None:
        senior_rows = _rows(authors, hidden.device)
        junior_rows = _rows(~authors, hidden.device)
        senior = self._of_senior(hidden[senior_rows])
        junior = self._of_junior(hidden[junior_rows])
        if senior is None or junior is None:
            return None
        logits = senior.new_empty((hidden.shape[0], self._vocabulary))
        logits[senior_rows] = senior
        logits[junior_rows] = junior.to(senior.dtype)
        return logits

    def _of_senior(self, hidden: torch.Tensor) -> torch.Tensor | None:
        logits: torch.Tensor | None = self._senior_class.compute_logits(
            self._senior, hidden[:, : self._width].contiguous()
        )
        if logits is not None and self._shared < self._vocabulary:
            logits[:, self._shared :] = -torch.inf
        return logits

    def _of_junior(self, hidden: torch.Tensor) -> torch.Tensor | None:
        logits: torch.Tensor | None = self._junior.compute_logits(
            hidden[:, self._width :].contiguous()
        )
        if logits is None or logits.shape[1] == self._vocabulary:
            return logits
        fitted = logits.new_full((logits.shape[0], self._vocabulary), -torch.inf)
        fitted[:, : self._shared] = logits[:, : self._shared]
        return fitted


def _rows(mask: NDArray[np.bool_], device: torch.device) -> torch.Tensor:
    return torch.from_numpy(np.flatnonzero(mask)).to(device, non_blocking=True)
