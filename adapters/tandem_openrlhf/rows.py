"""From OpenRLHF's rollout samples to rows that can be checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tandem_openrlhf.trajectory import FACTS, Facts
from tandem_plugin.errors import AuthorshipError
from tandem_plugin.training.fields import JUNIOR_MASK
from tandem_plugin.training.ranges import bits_of
from tandem_plugin.training.rows import Row

__all__ = ["check_sample", "groups_of", "row_of"]


def row_of(sample: Any, name: str, group: str) -> Row:
    """One sample as a row that begins with its response; without facts it has no authorship.

    sample: OpenRLHF's ``Experience`` of one response.
    """
    tokens = sample.sequences[0].numpy()
    mask = _bits_after_first(sample.action_mask)
    facts: Facts | None = getattr(sample, FACTS, None)
    if facts is None:
        return Row(name, group, tokens, mask, None, None, None)
    imitated = getattr(sample, JUNIOR_MASK, None)
    junior_mask = None if imitated is None else _bits_after_first(imitated)
    start = facts.response_start()
    passages = [
        [seed, first - start, min(stop, len(tokens)) - start]
        for seed, first, stop in facts.passages
        if first < len(tokens)
    ]
    return Row(
        name=name,
        group=group,
        response_ids=tokens[start:],
        response_mask=mask[start:],
        authorship=bits_of(facts.senior, len(tokens))[start:],
        seed=passages[0][0] if passages else None,
        fingerprint=facts.fingerprint,
        passages=passages,
        trained=facts.trained_mask(len(tokens))[start:],
        settings=dict(facts.settings),
        junior_mask=None if junior_mask is None else junior_mask[start:],
    )


def _bits_after_first(mask: Any) -> NDArray[np.bool_]:
    """OpenRLHF's masks say something of every token but the first: bool, one for each token."""
    return np.concatenate(([False], mask[0].numpy().astype(np.bool_)))


def check_sample(sample: Any, row: Row) -> None:
    """Raise :class:`AuthorshipError` for what a row does not show of its sample.

    Called after the checks of :mod:`tandem_plugin.training.checks`, by which the response's mask is
    what the senior wrote: here it must hold no token before the response, and rollout
    log-probabilities must be zero where it is not.
    """
    facts: Facts = getattr(sample, FACTS)
    mask = sample.action_mask[0].numpy().astype(np.bool_)
    before = np.flatnonzero(mask[: max(facts.response_start() - 1, 0)])
    if before.size:
        raise AuthorshipError(
            f"The mask of {row.name} is not what the senior wrote: it trains {before.size} tokens "
            f"before the response, the first at position {int(before[0]) + 1}. Something between "
            "the agent executor and the trainer changed it."
        )
    if sample.rollout_log_probs is None:
        return
    log_probs = sample.rollout_log_probs[0].numpy()
    if len(log_probs) != len(mask):
        raise AuthorshipError(
            f"{row.name} has {len(log_probs)} rollout log-probabilities for a mask of {len(mask)}."
        )
    if log_probs[~mask].any():
        raise AuthorshipError(
            f"{row.name} has rollout log-probabilities of tokens that are not trained on: they "
            "must be zero outside the senior's tokens."
        )


def groups_of(count: int, size: int, compared: bool) -> Sequence[str]:
    """The name of each response's group; one group where responses are not compared by prompt."""
    return [f"prompt {i // size}" if compared else "the batch" for i in range(count)]
