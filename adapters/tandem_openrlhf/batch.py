"""Checks that every batch of OpenRLHF's matches the run's settings."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.errors import AuthorshipError
from tandem_plugin.rules import TandemRules
from tandem_plugin.training.rows import Row
from tandem_plugin.training.run import TandemRun

if TYPE_CHECKING:
    import torch
    from openrlhf.trainer.ppo_utils.experience import Experience


JUNIOR_MASK = "junior_mask"
"""The field of an experience with the junior's tokens to imitate, 0 or 1."""


class OpenRLHFRun(TandemRun):
    """A run of OpenRLHF's: its settings and rules, the last admitted batch, and its engines."""

    engines: Sequence[Any] = ()
    """The handles of the run's rollout actors, which report their drafts."""

    def __init__(self, rules: TandemRules, args: Namespace) -> None:
        """args: OpenRLHF's arguments."""
        super().__init__(rules)
        self._group_size = int(args.rollout.n_samples_per_prompt)
        self._rows: Sequence[Row] = ()
        self._starts: Sequence[int] = ()
        """Where the response of each row begins in its sequence."""

    def admit(self, samples: Sequence[Experience]) -> dict[str, float]:
        """Check a training batch and return its metrics; raise if it must not be trained on.

        samples: OpenRLHF's experiences of one response each, grouped by prompt. With ``lambda_jun``
        they receive their tokens to imitate.
        """
        rows = []
        for i, sample in enumerate(samples):
            group = f"prompt {i // self._group_size}"
            rows.append(row_of_sample(sample, f"Response {i} ({group})", group))
        metrics = super().admit(rows)
        self._rows = rows
        self._starts = [
            len(s.sequences[0]) - len(r.response_ids) for s, r in zip(samples, rows, strict=True)
        ]
        for sample, row in zip(samples, rows, strict=True):
            check_sample(sample, row)
            if self.config.lambda_jun:
                setattr(sample, JUNIOR_MASK, mask_of_the_junior(sample, row))
        return metrics

    def check_experiences(self, experiences: Sequence[Experience]) -> None:
        """Raise :class:`AuthorshipError` unless an update trains on what was admitted.

        experiences: of several samples each, padded on the right, with their samples' numbers.
        """
        self.check_update(
            [
                self._row_of_update(number, tokens.numpy(), mask.numpy().astype(np.bool_))
                for experience in experiences
                for number, tokens, mask in zip(
                    experience.index, experience.sequences, experience.action_mask, strict=True
                )
            ]
        )

    def _row_of_update(
        self, number: int, tokens: NDArray[np.int64], mask: NDArray[np.bool_]
    ) -> Row:
        row, start = self._rows[number], self._starts[number]
        stop = start + len(row.response_ids)
        trained = np.concatenate(([False], mask))
        is_admitted = np.array_equal(tokens[start:stop], row.response_ids)
        is_inside = not trained[:start].any() and not trained[stop:].any()
        name = row.name if is_admitted and is_inside else f"Response {number} of the update"
        return Row(name, "", row.response_ids, trained[start:stop] if is_inside else trained)

    def dump(self, samples: Sequence[Experience], step: int, decode: Callable[[Any], str]) -> None:
        """Write the last admitted samples as those of a step, if the run dumps rollouts.

        decode: the text of token ids.
        """
        if self.config.rollouts:
            dumps = []
            for sample, row in zip(samples, self._rows, strict=True):
                text = {"input": sample.prompts[0], "output": decode(row.response_ids.tolist())}
                # A reward model's reward is not known here.
                reward = None if sample.rewards is None else float(sample.rewards[0])
                dumps.append((row, {**text, "gts": sample.labels[0], "score": reward}))
            self.write_rows(step, dumps)


def row_of_sample(sample: Experience, name: str, group: str) -> Row:
    """One ``Experience`` as a row that begins with its response."""
    return received(sample, name, group).without_prompt()


def received(sample: Experience, name: str, group: str) -> Row:
    """The same with the prompt."""
    # OpenRLHF's masks cover every token except the first.
    mask = np.concatenate(([False], _mask(sample)))
    return Row.received(name, group, sample.sequences[0].numpy(), mask, vars(sample))


def check_sample(sample: Experience, row: Row) -> None:
    """Raise :class:`AuthorshipError` if a sample's mask has a token before the response.

    :mod:`tandem_plugin.training.checks` verifies the mask of the response itself.
    """
    mask = _mask(sample)
    before = np.flatnonzero(mask[: max(len(mask) - len(row.response_ids), 0)])
    if before.size:
        raise AuthorshipError(
            "openrlhf-mask-before-response",
            row=row.name,
            count=before.size,
            position=int(before[0]) + 1,
        )


def mask_of_the_junior(sample: Experience, row: Row) -> torch.Tensor:
    """The tokens of an admitted sample to imitate, int64 of the shape of its ``action_mask``."""
    import torch

    assert row.facts is not None
    mask = np.zeros(sample.sequences.shape[1], dtype=np.int64)
    mask[len(mask) - len(row.response_ids) :] = row.facts.junior_mask
    return torch.from_numpy(mask[1:]).unsqueeze(0)


def _mask(sample: Experience) -> NDArray[np.bool_]:
    return sample.action_mask[0].numpy().astype(np.bool_)  # type: ignore[no-any-return]
