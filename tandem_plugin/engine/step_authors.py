"""The authors of a step: where a runner's binding leaves them for the model to take."""

from __future__ import annotations

from typing import Any, TypeAlias
from weakref import WeakValueDictionary

import numpy as np
import torch
from numpy.typing import NDArray

from tandem_plugin.errors import EngineError

__all__ = ["Authors", "StepAuthors", "step_authors_of"]

Authors: TypeAlias = "NDArray[np.bool_] | torch.Tensor"
"""bool ``[rows]``, true = senior: on the host (NumPy), or on the device where the host cannot know.
"""


class StepAuthors:
    """The authors of the rows of the next step that samples.

    The runner's binding posts once a step, before the forward pass; the first ``compute_logits``
    of that step takes; the binding settles the step after it. Other calls (prompt logprobs,
    profiling) find nothing and get the senior.
    """

    def __init__(self) -> None:
        self.bound = False
        self.has_sampled = False
        """Whether a step has sampled; none has while vLLM profiles."""
        self._posted = False
        self._authors: Authors | None = None

    def bind(self) -> None:
        """Say that a runner's binding will post authors here."""
        self.bound = True

    def post(self, authors: Authors | None) -> None:
        """Leave the coming step's authors: bool ``[rows]``; None when all rows are the senior's."""
        self._authors = authors
        self._posted = True

    def settle(self) -> None:
        """Say that a step has sampled.

        Raises :class:`EngineError` when its authors were never posted, or posted and not taken: the
        step's tokens would be the senior's, whoever should have written them.
        """
        if not self._posted:
            raise EngineError("TP364")
        self._posted = False
        self.has_sampled = True
        if self._authors is not None:
            raise EngineError("TP365")

    def take(self, rows: int) -> Authors | None:
        """The authors that were posted for this step, once; None when nothing was.

        Raises :class:`EngineError` when no runner is bound or the rows do not match: the engine
        would serve tokens of the wrong author.
        """
        if not self.bound:
            raise EngineError("TP366")
        authors, self._authors = self._authors, None
        if authors is not None and len(authors) != rows:
            raise EngineError("TP367", rows=rows, known=len(authors))
        return authors


_step_authors: WeakValueDictionary[str, StepAuthors] = WeakValueDictionary()
"""Weakly: each lives as long as the model and the runner's binding that share it."""


def step_authors_of(vllm_config: Any) -> StepAuthors:
    """Those of one engine in this process: runner and model find each other through them."""
    return _step_authors.setdefault(vllm_config.instance_id, StepAuthors())
