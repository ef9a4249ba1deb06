"""A run in its trainer's process: its settings, and whether every batch matches them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tandem_plugin.config import TandemConfig
from tandem_plugin.engine.wire import (
    RPC_DRAFT_STATS,
    RPC_ENDS,
    RPC_MEASURES,
    DraftStats,
    MeasureSums,
)
from tandem_plugin.errors import EngineError
from tandem_plugin.files.checkpoints import mark_of
from tandem_plugin.grading.golds import answer_of
from tandem_plugin.rules import Rule, TandemRules
from tandem_plugin.schedules import TRAINING_STEP, schedule_parameters
from tandem_plugin.training.checkpoint_note import CheckpointNote
from tandem_plugin.training.checks import (
    AdmittedBatch,
    RowChecks,
    check_rows,
    check_validation_rows,
)
from tandem_plugin.training.images import dumped_images
from tandem_plugin.training.imitation import IMITATION_METRIC
from tandem_plugin.training.metrics import EngineLog, batch_metrics, counters_of_engines
from tandem_plugin.training.rows import Row, write_step
from tandem_plugin.training.validation import Answerer
from tandem_plugin.training.validation_log import ValidationLog

if TYPE_CHECKING:
    from typing_extensions import Self


_FEW_WORDS = 0.05
"""A share that no language with spaces has: of English 45% begin a word, of Chinese 1%."""
_MANY_TOKENS = 1000
"""Tokens of a batch from which on its share is judged."""


def announcement(config: TandemConfig, rule: Rule) -> str:
    """One line with the active settings: proof for users, and context for bug reports.

    rule: the configured one, :attr:`TandemRules.default`.
    """
    settings = {
        "schedule": rule.schedule.name,
        **schedule_parameters(rule.schedule),
        "boundaries": rule.boundaries.resolver,
        "junior": config.junior or "(the checkpoint the senior starts from)",
        "mode": config.mode,
        "validation": config.validation,
        "seed": config.seed,
        "fingerprint": rule.fingerprint,
    }
    if config.lambda_jun:
        settings["lambda_jun"] = config.lambda_jun
    if TRAINING_STEP in settings:
        settings[TRAINING_STEP] = "(the trainer's)"
    return "tandem is on: " + " ".join(f"{name}={value}" for name, value in settings.items())


class TandemRun:
    """A run's settings and rules, and the last admitted batch."""

    rejects = False
    """Whether the trainer may drop tokens before an update, as rejection sampling does."""

    def __init__(self, rules: TandemRules) -> None:
        self.config, self.rules = rules.config, rules
        self._admitted = AdmittedBatch()
        self._singly = RowChecks(rules)
        self._drafting = EngineLog(DraftStats)
        self._measuring = EngineLog(MeasureSums)
        self._marks: dict[str, str | None] = {}
        self._is_warned = False
        self.validations = self.log_in(self.config.rollouts)

    def log_in(self, rollouts: str | None, *, writes: bool = True) -> ValidationLog:
        """The log of this run's validations, next to the rollouts in a folder."""
        run = f"{self.rules.fingerprint} seed={self.config.seed} junior={self.config.junior}"
        return ValidationLog(run, rollouts, writes=writes)

    @classmethod
    def start(cls, rules: TandemRules, *arguments: Any) -> Self:
        """A run with the rules of its tokenizer; announced in its log.

        arguments: further ones of a subclass.
        """
        run = cls(rules, *arguments)
        # Not logging: a trainer's level hides it, and this line is the user's proof.
        print(announcement(run.config, run.rules.default), flush=True)
        return run

    def note(self, start: str) -> CheckpointNote:
        """What this run's checkpoints say of it; start: the model that the senior started from.

        Adapters ask for it when a run begins, while both models are what the engine loads. A model
        on the Hub may come to this machine later, and is then identified.
        """
        fingerprint = self.rules.default.fingerprint
        return CheckpointNote.of_run(start, self.config, fingerprint, self._mark)

    def _mark(self, model: str) -> str | None:
        """A model's mark when it was first here."""
        if self._marks.get(model) is None:
            self._marks[model] = mark_of(model)
        return self._marks[model]

    def admit(self, rows: Sequence[Row]) -> dict[str, float]:
        """Check a training batch and return its metrics; raise if it must not be trained on."""
        self._admitted = AdmittedBatch()
        check_rows(rows, self.rules)
        self._admitted = AdmittedBatch(rows)
        return {**batch_metrics(rows), **self._boundary_share(rows)}

    def _boundary_share(self, rows: Sequence[Row]) -> dict[str, float]:
        """``tandem/boundary_share``: of the tokens of a batch; warns once where words have none."""
        boundaries = self.rules.default.boundaries
        lengths = [len(row.response_ids) for row in rows]
        if not sum(lengths):
            return {}
        token_ids = np.concatenate([row.response_ids for row in rows])
        share = float(boundaries.contains(token_ids).mean())
        is_rare = share < _FEW_WORDS and sum(lengths) >= _MANY_TOKENS
        if is_rare and boundaries.resolver == "word" and not self._is_warned:
            self._is_warned = True
            print(
                f"WARNING: {share:.1%} of this batch's tokens begin a word by the resolver word: "
                "the authors change by the cap alone. For text in Chinese, Japanese, Thai and "
                "other scripts without spaces set tandem.boundaries=word-any.",
                file=sys.stderr,
                flush=True,
            )
        return {"tandem/boundary_share": share}

    def admit_row(self, row: Row, batch: int) -> dict[str, float]:
        """Check a row of a run whose rows come singly, and return its metrics; raise as above.

        batch: the rows of an update, over which the share of unknown authors is judged.
        """
        self._singly.check(row, batch)
        return batch_metrics([row])

    def check_validation(self, rows: Sequence[Row], answerer: Answerer | None) -> None:
        """Raise unless a validation's trajectories succeeded and the intended author answered.

        answerer: of the pass; None if no pass is running.
        """
        check_validation_rows(rows, answerer, self.rules)

    def check_update(self, rows: Sequence[Row]) -> None:
        """Raise :class:`AuthorshipError` unless an update's masks are those that were admitted.

        rows: those of the update, padding among them, with the masks that the loss will use.
        """
        self._admitted.check(rows, self.rejects)

    def write_rows(self, step: int, responses: Iterable[tuple[Row, Mapping[str, Any]]]) -> None:
        """Write a step's rows, if the run dumps rollouts; like :func:`write_step`."""
        if self.config.rollouts:
            write_step(self.config.rollouts, step, responses)

    def engine_metrics(
        self, counters: Callable[[str], Sequence[Mapping[str, Any]]]
    ) -> dict[str, float]:
        """The metrics of what the engines counted and measured since the last call.

        counters: of each engine, always in the same order, by a name for ``collective_rpc`` in
        :mod:`tandem_plugin.engine.wire`.
        """
        metrics: dict[str, float] = {}
        if self.config.max_drafts:
            metrics |= self._drafting.step(counters(RPC_DRAFT_STATS))
        if self.config.measure_every or self.config.partner_logprobs:
            metrics |= self._measuring.step(counters(RPC_MEASURES))
        return metrics

    def ends_of_engines(self, counters: Callable[[str], Sequence[Any]]) -> set[int]:
        """The junior's token ids that end a response besides the senior's.

        counters: as of :meth:`engine_metrics`.
        """
        return {end for ends in counters(RPC_ENDS) for end in ends}

    @staticmethod
    def gold(row: Mapping[str, Any]) -> Any:
        """The right answer in a row of a data set, for dumps; None in a row without one."""
        return answer_of(row)

    def data_columns(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """What a dump has of each of a data set's rows: the right answer, and small images."""
        small: dict[int, list[str]] = {}
        return [{"gts": self.gold(row), **dumped_images(row, small)} for row in rows]

    def metrics_of_actors(self, actors: Sequence[Any]) -> dict[str, float]:
        """The same of the engines in Ray's actors, always in the same order.

        Each answers ``tandem_counters`` with the counters of one of its workers.
        """
        return self.engine_metrics(partial(counters_of_engines, actors))

    def check_imitation(self, metrics: Mapping[str, Any], prefix: str) -> None:
        """Raise :class:`EngineError` when an update's metrics lack the term of ``lambda_jun``.

        prefix: what the trainer puts before the names of a loss's metrics.
        """
        if self.config.lambda_jun and prefix + IMITATION_METRIC not in metrics:
            raise EngineError("imitation-term-missing", lambda_jun=self.config.lambda_jun)
