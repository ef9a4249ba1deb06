"""The authors of a step, passed from a runner's binding to the model."""

from __future__ import annotations

from typing import Any, TypeAlias
from weakref import WeakValueDictionary

import numpy as np
import torch
from numpy.typing import NDArray

from tandem_plugin.errors import EngineError

Authors: TypeAlias = "NDArray[np.bool_] | torch.Tensor"
"""bool ``[rows]``, true = senior: on the host (NumPy), or on the device if the host cannot know.
"""


class StepAuthors:
    """The authors of the rows of the next step that samples.

    The runner's binding posts once per step, before the forward pass; the first ``compute_logits``
    of that step takes the authors; the binding settles the step after it. Other calls (prompt
    logprobs, profiling) find nothing and use the senior.
    """

    def __init__(self) -> None:
        self.bound = False
        self.has_sampled = False
        """Whether any step has sampled; false while vLLM profiles."""
        self._posted = False
        self._authors: Authors | None = None

    def bind(self) -> None:
        """Declare that a runner's binding will post authors here."""
        self.bound = True

    def post(self, authors: Authors | None) -> None:
        """Post the next step's authors: bool ``[rows]``; None if all rows are the senior's."""
        self._authors = authors
        self._posted = True

    def settle(self) -> None:
        """Declare that a step has sampled.

        Raises :class:`EngineError` if its authors were never posted, or posted but not taken: the
        step's tokens would be the senior's regardless of their authors.
        """
        if not self._posted:
            raise EngineError("step-authors-out-of-order")
        self._posted = False
        self.has_sampled = True
        if self._authors is not None:
            raise EngineError("step-authors-not-looked-up")

    def take(self, rows: int) -> Authors | None:
        """Take the authors posted for this step; None if nothing was posted.

        Raises :class:`EngineError` if no runner is bound or the rows do not match: the engine would
        serve tokens of the wrong author.
        """
        if not self.bound:
            raise EngineError("model-runner-missing")
        authors, self._authors = self._authors, None
        if authors is not None and len(authors) != rows:
            raise EngineError("logit-rows-unknown", rows=rows, known=len(authors))
        return authors


_step_authors: WeakValueDictionary[str, StepAuthors] = WeakValueDictionary()
"""Weak values: each lives as long as the model and the runner's binding that share it."""


def step_authors_of(vllm_config: Any) -> StepAuthors:
    """The step authors of one engine in this process, shared by runner and model."""
    return _step_authors.setdefault(vllm_config.instance_id, StepAuthors())
