"""Senior and junior as `tandem eval legibility` reads with them, for what engines measure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from tandem_plugin.lab.evaluation.inputs import find_checkpoint
from tandem_plugin.lab.evaluation.scoring import HFModel, chunk_scores


@dataclass(frozen=True)
class Readers:
    """Both models on a CPU."""

    senior: HFModel
    junior: HFModel

    @classmethod
    def of(cls, senior: Path, junior: Path, dtype: str = "float32") -> Readers:
        """Two checkpoints' models."""
        torch.set_num_threads(1)  # tiny models: more threads only wait for each other
        return cls(*(HFModel(find_checkpoint(str(one)), dtype, "cpu") for one in (senior, junior)))

    def scores(self, prompt: Sequence[int], response: Sequence[int]) -> NDArray[np.float64]:
        """float64 ``[tokens, 5]``: both models' log p of each token, and there their overlap, the
        senior's entropy and its KL to the junior."""
        senior, junior = (
            one.head(one.states(prompt, response)) for one in (self.senior, self.junior)
        )
        tokens = torch.tensor(response)
        found = chunk_scores(senior, junior, tokens)
        of_senior = chunk_scores(junior, senior, tokens).cross_entropy
        columns = [-of_senior, -found.cross_entropy, found.overlap, found.entropy, found.kl]
        return torch.stack(columns, dim=1).numpy()

    def means(
        self, responses: Iterable[tuple[Sequence[int], Sequence[int], Sequence[int]]]
    ) -> dict[str, float]:
        """What the trainers log of (prompt, response, authorship) of several responses."""
        scores, authors = [], []
        for prompt, response, authorship in responses:
            scores.append(self.scores(prompt, response))
            authors.append(np.array(authorship, dtype=np.bool_))
        senior, junior, overlap, entropy, kl = np.concatenate(scores).T
        mine = np.concatenate(authors)
        return {
            "tandem/junior_cross_entropy": float(-junior[mine].mean()),
            "tandem/overlap": float(overlap[mine].mean()),
            "tandem/senior_entropy": float(entropy[mine].mean()),
            "tandem/kl_to_junior": float(kl[mine].mean()),
            "tandem/senior_cross_entropy": float(-senior[~mine].mean()),
        }
