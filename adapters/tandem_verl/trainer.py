"""What a trainer of verl's does besides in tandem: checks, validation by each, dumps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from tandem_plugin.boundaries import Vocabulary
from tandem_plugin.errors import EngineError
from tandem_plugin.patching.mixins import ForeignBase
from tandem_plugin.patching.subclasses import check_part
from tandem_plugin.training.juniors import counters_of_engines
from tandem_plugin.training.rows import Row
from tandem_plugin.training.run import TandemRun
from tandem_plugin.training.validation import ANSWERED_BY, Pass, named, passes
from tandem_verl.manager import manager_class, users_manager
from tandem_verl.refusals import check_run
from tandem_verl.rows import dumped_with
from tandem_verl.server import ReplicaInTandem
from tandem_verl.switch import running_config
from tandem_verl.validation import AddressedPrompts

__all__ = ["TrainerInTandem", "started_run"]


def started_run(config: Any, tokenizer: Any) -> TandemRun:
    """Check a run that asks for tandem, and say in its log that it is on.

    config: verl's whole configuration. tokenizer: the run's Hugging Face tokenizer. Raises
    :class:`ConfigError` or :class:`TokenizerError` for a run that could not be in tandem.
    """
    tandem = running_config(config, "A trainer")
    check_run(config, tandem)
    run = TandemRun.start(tandem, Vocabulary.from_tokenizer(tokenizer))
    correction = config.algorithm.get("rollout_correction") or {}
    # In bypass mode the loss rejects by itself, and the batch's masks stay what they are.
    run.rejects = bool(correction.get("rollout_rs")) and not correction.get("bypass_mode")
    if users_manager(config):
        manager_class(config)  # which refuses, before any worker starts, what cannot be in tandem
    return run


class TrainerInTandem(ForeignBase):  # type: ignore[misc]
    """Before a trainer of verl's, whatever holds its batches."""

    config: Any
    val_dataloader: Any
    role_worker_mapping: dict[Any, Any]
    _tandem: TandemRun
    _tandem_pass: Pass | None = None
    """What is being validated; None at any other time."""

    def tandem_replace_workers(self) -> None:
        """Let the workers that train be of ours where the senior imitates the junior."""
        if self._tandem.config.lambda_jun:
            from tandem_verl import imitation

            imitation.replace_workers(self.role_worker_mapping)

    def tandem_servers(self) -> list[Any]:
        """The managers of the run's vLLM servers."""
        names = ("llm_server_manager", "standalone_server_manager")
        found = (getattr(self, name, None) for name in names)
        return [servers for servers in found if servers is not None]

    def tandem_check_servers(self) -> None:
        """Raise :class:`EngineError` unless the run's servers are of ours."""
        for servers in self.tandem_servers():
            for replica in servers.get_replicas():
                check_part(replica, ReplicaInTandem)

    def tandem_engine_metrics(self) -> dict[str, float]:
        """What the run's engines counted and measured since the last step."""
        servers = [one for each in self.tandem_servers() for one in each.server_handles]
        return self._tandem.engine_metrics(partial(counters_of_engines, servers))

    def tandem_admit(self, rows: Sequence[Row], validates: bool) -> dict[str, float]:
        """Check a batch before anything is computed from it; return a training batch's metrics."""
        if not validates:
            return self._tandem.admit(rows)
        self._tandem.check_validation(rows, getattr(self._tandem_pass, "answerer", None))
        return {}

    def tandem_dumped(self, dump: dict[str, Any]) -> Sequence[Row | None]:
        """The rows of a dump, in its order; none where they are not tandem's to dump."""
        raise NotImplementedError

    def _validate(self, *merged: Any, **more: Any) -> dict[str, Any]:
        """Validate once for everyone who is to answer, and return the metrics of all."""
        if any(merged) or any(more.values()):
            raise EngineError("TP531", kind=type(self).__name__)
        prompts = self.val_dataloader
        metrics: dict[str, Any] = {}
        try:
            for one in passes(self._tandem.config.validation):
                self._tandem_pass = one
                self.val_dataloader = AddressedPrompts(prompts, one.answerer)
                metrics |= named(super()._validate(), one.answerer)
        finally:
            self._tandem_pass, self.val_dataloader = None, prompts
        self.tandem_engine_metrics()  # what the team counted here is not the next step's
        return metrics

    def _maybe_log_val_generations(self, inputs: Any, outputs: Any, scores: Any) -> None:
        table: dict[str, Any] | None = {"inputs": inputs, "outputs": outputs, "scores": scores}
        if self._tandem_pass is not None:
            table = self._tandem_pass.table(inputs, outputs, scores)
        if table is not None:
            super()._maybe_log_val_generations(**table)

    def _dump_generations(self, **dump: Any) -> Any:
        dump = dumped_with(dump, self.tandem_dumped(dump))
        if (one := self._tandem_pass) is not None:
            said = {ANSWERED_BY: [one.answerer] * len(dump["inputs"])}
            dump["reward_extra_infos_dict"] = {**dump["reward_extra_infos_dict"], **said}
            dump["dump_path"] = one.folder(dump["dump_path"])
        return super()._dump_generations(**dump)
