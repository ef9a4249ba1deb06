"""Tandem in the trainer process: what was asked for, and whether every batch is it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tandem_plugin.config import TandemConfig
from tandem_plugin.errors import EngineError
from tandem_plugin.rules import Rule, TandemRules
from tandem_plugin.training.admitted_batch import AdmittedBatch
from tandem_plugin.training.announcement import announcement
from tandem_plugin.training.checks import check_no_errors, check_rows, check_validation_rows
from tandem_plugin.training.drafting import DraftingLog
from tandem_plugin.training.imitation import IMITATION_METRIC
from tandem_plugin.training.metrics import grading_metrics, tandem_metrics
from tandem_plugin.training.rows import Row
from tandem_verl.refusals import check_run
from tandem_verl.rows import columns_of
from tandem_verl.settings import allowed_unproven, tandem_config, tandem_rules
from tandem_verl.validation import ANSWERED_BY, AddressedPrompts, Pass, passes

__all__ = ["TandemTrainer"]

_LISTS = ("inputs", "outputs", "gts", "scores")
"""What verl dumps of each row."""


class TandemTrainer:
    """One run's settings and rules, and the rows that wait for the rollout dump."""

    def __init__(self, config: TandemConfig, rules: TandemRules, rejects: bool = False) -> None:
        """rejects: whether the run leaves tokens out by rejection sampling."""
        self.config = config
        self.rules = rules
        self._rejects = rejects
        self._admitted = AdmittedBatch()
        self.metrics: dict[str, float] = {}
        """Those of the batch that was admitted last."""
        self.validating: Pass | None = None
        """What is being validated; None at any other time."""
        self._rows: dict[str, Row] = {}
        self._drafting = DraftingLog()

    @classmethod
    def start(cls, config: Any, tokenizer: Any) -> TandemTrainer:
        """Check a run that asks for tandem, and say in its log that it is on.

        config: verl's whole configuration. Raises :class:`ConfigError` or
        :class:`TokenizerError` for a run that could not be in tandem.
        """
        tandem = tandem_config(config)
        if tandem is None:
            raise EngineError(
                "A trainer in tandem was given a configuration that does not ask for tandem: "
                "something changed it on the way. Remove that."
            )
        check_run(config, tandem, allowed_unproven(tandem))
        correction = config.algorithm.get("rollout_correction") or {}
        rejects = bool(correction.get("rollout_rs"))
        trainer = cls(tandem, tandem_rules(tandem, tokenizer), rejects)
        # Not logging: verl's level hides it, and this line is the user's proof.
        print(trainer.describe(), flush=True)
        return trainer

    @property
    def rule(self) -> Rule:
        """The configured rule; see :meth:`TandemRules.at` for that of a step."""
        return self.rules.default

    @property
    def imitates(self) -> bool:
        """Whether the senior also learns from the junior's tokens (``lambda_jun``)."""
        return self.config.lambda_jun > 0

    def check_imitation(self, metrics: Mapping[str, Any]) -> None:
        """Raise :class:`EngineError` when an update's metrics say nothing of the term."""
        if f"actor/{IMITATION_METRIC}" not in metrics:
            raise EngineError(
                f"lambda_jun={self.config.lambda_jun}, but the workers that train left the "
                "junior-imitation term out: they have no active tandem adapter. Check that "
                "tandem-plugin is installed on every node; nothing was saved of this step."
            )

    def describe(self) -> str:
        """One line that says what is on."""
        return announcement(self.config, self.rule)

    def admit(self, rows: Sequence[Row]) -> dict[str, float]:
        """Check a training batch and return its metrics; raise when it must not be trained on."""
        self._admitted = AdmittedBatch()
        check_rows(rows, self.rules)
        self._admitted = AdmittedBatch(rows)
        self.metrics = {**tandem_metrics(rows), **grading_metrics(rows)}
        return self.metrics

    def check_update(self, rows: Sequence[Row]) -> None:
        """Raise :class:`AuthorshipError` unless an update's masks are those that were admitted.

        rows: those of the update, padding among them, with the masks that the loss will use.
        """
        self._admitted.check(rows, self._rejects)

    def drafting(self, managers: Sequence[Any]) -> dict[str, float]:
        """What became of the drafts since the last step; nothing from engines that do not draft.

        managers: of verl's vLLM servers.
        """
        if self.config.mode != "speculative":
            return {}
        import ray

        servers = [server for manager in managers for server in manager.server_handles]
        return self._drafting.step(
            ray.get([server.tandem_draft_stats.remote() for server in servers])
        )

    def validate(self, trainer: Any, run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Validate once for everyone who is to answer, and return the metrics of all.

        trainer: verl's, whose ``val_dataloader`` says meanwhile who is to answer. run: verl's own
        validation.
        """
        prompts = trainer.val_dataloader
        metrics: dict[str, Any] = {}
        try:
            for one in passes(self.config):
                self.validating = one
                trainer.val_dataloader = AddressedPrompts(prompts, one.answerer)
                metrics |= one.named(run())
        finally:
            self.validating, trainer.val_dataloader = None, prompts
        return metrics

    def admit_validation(self, rows: Sequence[Row]) -> None:
        """Raise when a validation trajectory failed in tandem, or was another's to answer."""
        if self.validating is None:
            check_no_errors(rows)
        else:
            team = self.validating.answerer == "team"
            check_validation_rows(rows, team, self.rules)

    def table(self, inputs: Any, outputs: Any, scores: Any) -> dict[str, Any] | None:
        """The samples of a validation for the loggers' table, which has one place a step.

        Those of all its passes at the last one, and None before it.
        """
        one = self.validating
        if one is not None and not one.is_alone:
            one.samples.extend(zip(one.labelled(inputs), outputs, scores, strict=True))
            if not one.is_last:
                return None
            inputs, outputs, scores = zip(*one.samples, strict=True) if one.samples else ((),) * 3
        return {"inputs": inputs, "outputs": outputs, "scores": scores}

    def remember(self, keys: Sequence[str], rows: Sequence[Row]) -> None:
        """Keep rows for the dump that follows, under the keys that the dump will name."""
        self._rows.update(zip(keys, rows, strict=True))

    def dumped(self, dump: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a dump of V1 with tandem's columns, and a validation's in its place.

        Rows that verl made up to fill a batch are left out; what was remembered is forgotten.
        """
        extra = dump["reward_extra_infos_dict"]
        keys = extra.get("uid", [])
        kept = [i for i, key in enumerate(keys) if key in self._rows]
        if kept:
            rows = [self._rows.pop(keys[i]) for i in kept]
            columns = {
                name: [values[i] for i in kept] if len(values) == len(keys) else values
                for name, values in extra.items()
            }
            lists = {name: [dump[name][i] for i in kept] for name in _LISTS}
            dump = {**dump, **lists, "reward_extra_infos_dict": {**columns, **columns_of(rows)}}
        return self.addressed(dump)

    def addressed(self, dump: dict[str, Any]) -> dict[str, Any]:
        """A validation's dump says who answered, and lies apart where two do; others stay."""
        one = self.validating
        if one is None:
            return dump
        extra = {
            **dump["reward_extra_infos_dict"],
            ANSWERED_BY: [one.answerer] * len(dump["inputs"]),
        }
        folder = one.dump_path(dump["dump_path"])
        return {**dump, "reward_extra_infos_dict": extra, "dump_path": folder}
