"""Tandem in the trainer process: what was asked for, and whether every batch is it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tandem_openrlhf.refusals import GROUPLESS_ESTIMATORS
from tandem_openrlhf.trajectory import FACTS, Facts
from tandem_plugin.boundaries import Vocabulary
from tandem_plugin.config import TandemConfig
from tandem_plugin.errors import AuthorshipError
from tandem_plugin.rules import TandemRules
from tandem_plugin.training.announcement import announcement
from tandem_plugin.training.checks import check_rows
from tandem_plugin.training.drafting import DraftingLog
from tandem_plugin.training.fields import JUNIOR_MASK
from tandem_plugin.training.metrics import tandem_metrics
from tandem_plugin.training.ranges import bits_of
from tandem_plugin.training.rows import Row

__all__ = ["TandemTrainer", "check_sample", "row_of"]


class TandemTrainer:
    """One run's settings and rules, and the metrics of the batch that was admitted last."""

    def __init__(self, config: TandemConfig, rules: TandemRules, args: Any) -> None:
        self.config = config
        self.rules = rules
        self._group_size = int(args.rollout.n_samples_per_prompt)
        self._compared = args.algo.advantage.estimator not in GROUPLESS_ESTIMATORS
        self.metrics: dict[str, float] = {}
        self._drafting = DraftingLog()
        self._drafted: dict[str, float] = {}
        self.engines: Sequence[Any] = ()
        """The handles of the run's rollout actors, which are asked about their drafts."""

    @classmethod
    def start(cls, config: TandemConfig, tokenizer: Any, args: Any) -> TandemTrainer:
        """A run's, said to be on in its log.

        tokenizer: the run's Hugging Face tokenizer. args: OpenRLHF's arguments. Raises
        :class:`ConfigError` or :class:`TokenizerError` for a schedule that does not go with them.
        """
        trainer = cls(config, TandemRules(config, Vocabulary.from_tokenizer(tokenizer)), args)
        print(announcement(config, trainer.rules.default), flush=True)
        return trainer

    def ask_for_drafts(self) -> None:
        """Learn what became of the drafts since the last step, where the engines draft."""
        if self.config.mode == "speculative":
            import ray

            counters = ray.get([engine.tandem_draft_stats.remote() for engine in self.engines])
            self._drafted = self._drafting.step(counters)

    def admit(self, samples: Sequence[Any]) -> None:
        """Check a training batch and keep its metrics; raise when it must not be trained on.

        samples: OpenRLHF's experiences of one response each, the responses to a prompt in a row.
        """
        self.metrics = {}
        rows = []
        for i, sample in enumerate(samples):
            group = f"prompt {i // self._group_size}" if self._compared else "the batch"
            rows.append(row_of(sample, f"Response {i} ({group})", group))
        check_rows(rows, self.rules)
        for sample, row in zip(samples, rows, strict=True):
            check_sample(sample, row)
        self.metrics = {**tandem_metrics(rows), **self._drafted}


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
    segments = [
        [seed, first - start, min(stop, len(tokens)) - start]
        for seed, first, stop in facts.segments
        if first < len(tokens)
    ]
    return Row(
        name=name,
        group=group,
        response_ids=tokens[start:],
        response_mask=mask[start:],
        authorship=bits_of(facts.senior, len(tokens))[start:],
        seed=segments[0][0] if segments else None,
        fingerprint=facts.fingerprint,
        segments=segments,
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
