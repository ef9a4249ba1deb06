"""The two language-model heads: from both models' hidden states to each row's author's logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tandem_plugin.engine.step_authors import Authors


class Heads:
    """Computes, row by row, the logits of the row's author over the senior's vocabulary.

    Vocabularies may be padded to different lengths. Ids that only one model has are never sampled,
    whoever the author is, because the other model could not read them.
    """

    def __init__(
        self,
        senior: Any,
        junior: Any,
        senior_class: type[Any],
        vllm_config: Any,
        senior_writes: bool = False,
        placeholders: Sequence[int] = (),
    ) -> None:
        """senior_writes: whether every row gets the senior's logits, regardless of its author.

        placeholders: ids that stand for images in prompts, which no author may sample.
        """
        self._senior_writes = senior_writes
        self._senior, self._junior, self._senior_class = senior, junior, senior_class
        self._width = vllm_config.model_config.get_hidden_size()
        self._vocabulary = int(vllm_config.model_config.get_vocab_size())
        self._shared = min(self._vocabulary, int(junior.config.get_text_config().vocab_size))
        self._placeholders = torch.tensor(placeholders, dtype=torch.int64) if placeholders else None

    def logits(self, hidden: torch.Tensor, authors: Authors | None) -> torch.Tensor | None:
        """``[rows, vocabulary]`` from ``[rows, senior's hidden + junior's hidden]``.

        authors: bool ``[rows]``, true = senior; None when every row is the senior's. On the host
        (NumPy), only the author's head runs for a row; on the device both run and a tensor
        operation selects, so the host never waits.
        """
        if self._senior_writes or authors is None:
            return self._of_senior(hidden[:, : self._width])
        if isinstance(authors, torch.Tensor):
            return self._select(hidden, authors)
        if authors.all():
            return self._of_senior(hidden[:, : self._width])
        if not authors.any():
            return self._of_junior(hidden[:, self._width :])
        return self._scatter(hidden, authors)

    def _select(self, hidden: torch.Tensor, authors: torch.Tensor) -> torch.Tensor | None:
        of_senior = self._of_senior(hidden[:, : self._width])
        of_junior = self._of_junior(hidden[:, self._width :])
        if of_senior is None or of_junior is None:
            return None
        return torch.where(authors[:, None], of_senior, of_junior.to(of_senior.dtype))

    def _scatter(self, hidden: torch.Tensor, authors: NDArray[np.bool_]) -> torch.Tensor | None:
        """Run each head over its own rows: gather them, then scatter their logits back in order."""
        of_author = authors.nonzero()[0], (~authors).nonzero()[0]
        rows = _to_device(np.concatenate(of_author), hidden.device)
        count = len(of_author[0])
        senior_rows, junior_rows = rows[:count], rows[count:]
        # index_select and index_copy_: a fraction of the time that indexing takes on a CPU.
        if hidden.shape[1] == 2 * self._width and hidden.is_contiguous():
            # Equal widths: each row is two rows of one matrix, and one operation gathers all.
            halves = np.concatenate([2 * of_author[0], 2 * of_author[1] + 1])
            states = hidden.view(-1, self._width).index_select(0, _to_device(halves, hidden.device))
            senior, junior = states[:count], states[count:]
        else:
            senior = hidden[:, : self._width].index_select(0, senior_rows)
            junior = hidden[:, self._width :].index_select(0, junior_rows)
        of_senior, of_junior = self._of_senior(senior), self._of_junior(junior)
        if of_senior is None or of_junior is None:
            return None
        logits = torch.empty(
            (len(authors), self._vocabulary), dtype=of_senior.dtype, device=of_senior.device
        )
        logits.index_copy_(0, senior_rows, of_senior)
        logits.index_copy_(0, junior_rows, of_junior.to(of_senior.dtype))
        return logits

    def _of_senior(self, states: torch.Tensor) -> torch.Tensor | None:
        logits: torch.Tensor | None = self._senior_class.compute_logits(
            self._senior, states.contiguous()
        )
        if logits is None:
            return None
        return self._without_placeholders(without_foreign_ids(logits, self._shared))

    def _of_junior(self, states: torch.Tensor) -> torch.Tensor | None:
        logits: torch.Tensor | None = self._junior.compute_logits(states.contiguous())
        if logits is None:
            return None
        return self._without_placeholders(in_seniors_ids(logits, self._vocabulary))

    def _without_placeholders(self, logits: torch.Tensor) -> torch.Tensor:
        """A response with a placeholder needs one more image in the trainer's forward pass."""
        if self._placeholders is None:
            return logits
        return logits.index_fill_(1, self._placeholders, -torch.inf)


def without_foreign_ids(logits: torch.Tensor, shared: int) -> torch.Tensor:
    """The senior's logits, changed in place, where the junior reads only ids below ``shared``.

    logits: ``[rows, senior's vocabulary]``.
    """
    if shared < logits.shape[1]:
        logits[:, shared:] = -torch.inf
    return logits


def in_seniors_ids(logits: torch.Tensor, vocabulary: int) -> torch.Tensor:
    """The junior's logits over the senior's ids, -inf for ids that it lacks.

    logits: ``[rows, junior's vocabulary]``. Returns ``[rows, vocabulary]``.
    """
    if logits.shape[1] == vocabulary:
        return logits
    fitted = logits.new_full((logits.shape[0], vocabulary), -torch.inf)
    shared = min(logits.shape[1], vocabulary)
    fitted[:, :shared] = logits[:, :shared]
    return fitted


def _to_device(rows: NDArray[np.int64], device: torch.device) -> torch.Tensor:
    tensor = torch.from_numpy(rows)
    return tensor if device.type == "cpu" else tensor.to(device, non_blocking=True)
