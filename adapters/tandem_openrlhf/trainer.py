"""Tandem in the trainer process: what was asked for, and whether every batch is it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tandem_openrlhf.refusals import GROUPLESS_ESTIMATORS
from tandem_openrlhf.rows import check_sample, groups_of, row_of
from tandem_plugin.boundaries import Vocabulary
from tandem_plugin.config import TandemConfig
from tandem_plugin.rules import TandemRules
from tandem_plugin.training.announcement import announcement
from tandem_plugin.training.checks import check_rows
from tandem_plugin.training.drafting import DraftingLog
from tandem_plugin.training.metrics import tandem_metrics

__all__ = ["TandemTrainer"]


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

    @classmethod
    def start(cls, config: TandemConfig, tokenizer: Any, args: Any) -> TandemTrainer:
        """A run's, said to be on in its log.

        tokenizer: the run's Hugging Face tokenizer. args: OpenRLHF's arguments. Raises
        :class:`ConfigError` or :class:`TokenizerError` for a schedule that does not go with them.
        """
        trainer = cls(config, TandemRules(config, Vocabulary.from_tokenizer(tokenizer)), args)
        print(announcement(config, trainer.rules.default), flush=True)
        return trainer

    def ask_for_drafts(self, engines: Sequence[Any]) -> None:
        """Learn what became of the drafts since the last step, from engines that draft.

        engines: the handles of the run's rollout actors.
        """
        if self.config.mode == "speculative":
            import ray

            counters = ray.get([engine.tandem_drafted.remote() for engine in engines])
            self._drafted = self._drafting.step(counters)

    def admit(self, samples: Sequence[Any]) -> None:
        """Check a training batch and keep its metrics; raise when it must not be trained on.

        samples: OpenRLHF's experiences of one response each, the responses to a prompt in a row.
        """
        self.metrics = {}
        groups = groups_of(len(samples), self._group_size, self._compared)
        rows = [
            row_of(sample, f"Response {i} ({group})", group)
            for i, (sample, group) in enumerate(zip(samples, groups, strict=True))
        ]
        check_rows(rows, self.rules)
        for sample, row in zip(samples, rows, strict=True):
            check_sample(sample, row)
        self.metrics = {**tandem_metrics(rows), **self._drafted}
