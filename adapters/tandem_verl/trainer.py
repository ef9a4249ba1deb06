"""verl's trainer V1 in tandem: additions to each mode's trainer, through ``super()`` calls."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tandem_plugin.errors import ConfigError, EngineError
from tandem_plugin.patching.subclasses import Mixin
from tandem_plugin.patching.wrapping import Delegate, wrap_once
from tandem_plugin.rules import TandemRules
from tandem_plugin.training.rows import Row
from tandem_plugin.training.run import TandemRun
from tandem_plugin.training.validation_log import Pass
from tandem_verl.batch import dumped_with, move_scores, queue, rows_of_keys
from tandem_verl.engine import ReplicaInTandem, register_replica
from tandem_verl.keep_seniors import accuracy_of
from tandem_verl.rollouts import ANSWERER, ROW, ManagerInTandem
from tandem_verl.settings import OUR_MODE, running_config, tandem_node
from tandem_verl.start import TOKEN_ESTIMATORS, check_prompts

if TYPE_CHECKING:
    from omegaconf import DictConfig
    from transfer_queue import KVBatchMeta
    from transformers import PreTrainedTokenizerBase
    from verl.experimental.agent_loop.agent_loop import AgentLoopManager


def restore_mode(config: DictConfig) -> None:
    """Give the trainer's mode the name back that verl compares it to, in the trainer's process.

    Raises :class:`ConfigError` for a mode of ours that the driver did not choose.
    """
    mode = config.trainer.v1.trainer_mode
    if tandem_node(config) is None or not mode.startswith(OUR_MODE):
        raise ConfigError("verl-internal-trainer-mode", mode=mode)
    config.trainer.v1.trainer_mode = mode.removeprefix(OUR_MODE)


def started_run(config: DictConfig, tokenizer: PreTrainedTokenizerBase) -> TandemRun:
    """A tandem run that the driver checked, announced in its log.

    config: verl's whole configuration. tokenizer: the run's Hugging Face tokenizer. Raises like
    :class:`TandemRules`.
    """
    tandem = running_config(config, "A trainer")
    run = TandemRun.start(TandemRules.from_tokenizer(tandem, tokenizer))
    run.validations = run.log_in(config.trainer.get("rollout_data_dir"))
    correction = config.algorithm.get("rollout_correction") or {}
    # In bypass mode the loss rejects by itself, and the batch's masks stay what they are.
    run.rejects = bool(correction.get("rollout_rs")) and not correction.get("bypass_mode")
    return run


class AddressedPrompts(Delegate):
    """verl's loader of validation prompts, with two more columns: who is to answer, and numbers."""

    def __init__(self, batches: Collection[dict[str, Any]], answerer: str) -> None:
        super().__init__(batches)
        self._answerer = answerer
        self.count = 0
        """Of the prompts so far."""

    def __len__(self) -> int:
        return len(self._target)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.count = 0
        for batch in self._target:
            count = len(next(iter(batch.values())))
            addressed = np.array([self._answerer] * count, dtype=object)
            numbers = np.array(range(self.count, self.count + count), dtype=object)
            self.count += count
            yield {**batch, ANSWERER: addressed, ROW: numbers}


class TrainerInTandem(Mixin):
    """Before a ``PPOTrainer`` of verl's: checks the run, every batch and every update; dumps."""

    config: Any
    tokenizer: Any
    global_steps: int
    train_dataset: Any
    val_dataset: Any
    val_dataloader: Any
    role_worker_mapping: dict[Any, Any]
    _tandem: TandemRun
    _tandem_validation: Pass | None = None
    """The current pass of a validation; None at any other time."""

    def __init__(self, config: DictConfig, *arguments: Any, **options: Any) -> None:
        restore_mode(config)
        self._tandem_rows: dict[str, Row] = {}
        """The rows for the next dump, by key."""
        super().__init__(config, *arguments, **options)

    def _init_tokenizer(self) -> None:
        """Called first by a trainer, before it creates workers."""
        super()._init_tokenizer()
        self._tandem = started_run(self.config, self.tokenizer)

    def _init_dataloader(self) -> None:
        """Called before workers are created."""
        super()._init_dataloader()
        for dataset in (self.train_dataset, self.val_dataset):
            check_prompts(dataset, images=self._tandem.config.images)

    def _setup(self) -> None:
        register_replica()
        super()._setup()
        for servers in self._tandem_servers():
            for replica in servers.get_replicas():
                ReplicaInTandem.tandem_check(replica)

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        distills = (self.config.get("distillation") or {}).get("enabled")
        if self._tandem.config.lambda_jun or distills:
            from tandem_verl import loss

            loss.replace_workers(self.role_worker_mapping)

    @property
    def _tandem_start(self) -> str:
        """The model that the senior starts from."""
        return str(self.config.actor_rollout_ref.model.path)

    def _tandem_checkpoint(self) -> Path:
        """The folder of the current step's checkpoint."""
        return Path(self.config.trainer.default_local_dir) / f"global_step_{self.global_steps}"

    def _load_checkpoint(self) -> None:
        """Compare the run's settings with those of the checkpoint that it resumes."""
        note = self._tandem.note(self._tandem_start)  # while both models are what the engines have
        super()._load_checkpoint()
        if self.global_steps:
            by_path = self.config.trainer.resume_mode == "resume_path"
            folder = self.config.trainer.resume_from_path if by_path else self._tandem_checkpoint()
            note.check_resumed(folder)

    def _save_checkpoint(self) -> None:
        """Put the run's settings into the checkpoint first: a callback may take things from it."""
        self._tandem.note(self._tandem_start).write(self._tandem_checkpoint())
        super()._save_checkpoint()

    def _tandem_servers(self) -> list[Any]:
        """The managers of the run's vLLM servers."""
        names = ("llm_server_manager", "standalone_server_manager")
        managers = (getattr(self, name, None) for name in names)
        return [servers for servers in managers if servers is not None]

    def _tandem_engine_metrics(self) -> dict[str, float]:
        """The metrics counted and measured by the run's engines since the last step."""
        servers = [
            server for manager in self._tandem_servers() for server in manager.server_handles
        ]
        return self._tandem.metrics_of_actors(servers)

    def _build_replay_buffer(self) -> Any:
        """The buffer whose ``sample`` gives the trainer every batch, and metrics with it."""
        buffer = super()._build_replay_buffer()

        def watched(sample: Callable[..., Any], *args: Any, **options: Any) -> Any:
            batch, metrics = sample(*args, **options)
            return batch, {**metrics, **self._tandem_examine(batch)}

        wrap_once(buffer, "sample", watched)
        return buffer

    def _tandem_examine(self, batch: KVBatchMeta) -> dict[str, float]:
        """Check a batch that the trainer has just been given; return a training batch's metrics."""
        validates = batch.partition_id != "train"
        rows = rows_of_keys(batch, queue())
        metrics: dict[str, float] = {}
        if validates:
            validation = self._tandem_validation
            answerer = None if validation is None else validation.answerer
            self._tandem.check_validation(rows, answerer)
        else:
            metrics = {**self._tandem.admit(rows), **self._tandem_engine_metrics()}
        folder = "validation_data_dir" if validates else "rollout_data_dir"
        if self.config.trainer.get(folder):
            self._tandem_rows.update(zip(batch.keys, rows, strict=True))
        return metrics

    def fit(self, agent_loop_manager: AgentLoopManager) -> Any:
        ManagerInTandem.tandem_check(agent_loop_manager)
        return super().fit(agent_loop_manager)

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> Any:
        """Let estimators that use a reward at its token find it on one that is trained.

        To them a response is the sequence of its trained tokens; all else is the environment.
        """
        if self.config.algorithm.adv_estimator in TOKEN_ESTIMATORS:
            move_scores(batch, queue())
        return super()._compute_advantage(batch, metrics)

    def _update_critic(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> Any:
        """Check the masks: until ``trainer.critic_warmup`` is over, no other update follows."""
        self._tandem.check_update(rows_of_keys(batch, queue()))
        return super()._update_critic(batch, metrics)

    def _update_actor(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> Any:
        """Check the masks of the next update, and attach the tokens to imitate."""
        rows = rows_of_keys(batch, queue())
        self._tandem.check_update(rows)
        if weight := self._tandem.config.lambda_jun:
            from tandem_verl import loss

            batch = loss.send_to_workers(batch, rows, queue(), weight)
        result = super()._update_actor(batch, metrics)
        self._tandem.check_imitation(metrics, "actor/")
        return result

    def _validate(self, *merged: Any, **options: Any) -> dict[str, Any]:
        """Validate once per answerer, and return the metrics of all."""
        if any(merged) or any(options.values()):
            raise EngineError("verl-validations-merged", kind=type(self).__name__)
        prompts = self.val_dataloader
        metrics: dict[str, Any] = {}
        try:
            for validation in self._tandem.validations.passes(self._tandem.config.validation):
                self._tandem_validation = validation
                addressed = AddressedPrompts(prompts, validation.answerer)
                self.val_dataloader = addressed
                measured = super()._validate()
                metrics |= validation.named(measured)
                accuracy = accuracy_of(measured)
                metrics |= validation.add(accuracy, addressed.count, self.global_steps)
        finally:
            self._tandem_validation, self.val_dataloader = None, prompts
        self._tandem_engine_metrics()  # the team's counts here do not belong to the next step
        return metrics

    def _dump_generations(self, **dump: Any) -> Any:
        keys = dump["reward_extra_infos_dict"].get("uid", [])
        dump = dumped_with(dump, [self._tandem_rows.pop(key, None) for key in keys])
        if (validation := self._tandem_validation) is not None:
            column = validation.columns(len(dump["inputs"]))
            dump["reward_extra_infos_dict"] = {**dump["reward_extra_infos_dict"], **column}
            dump["dump_path"] = validation.folder(dump["dump_path"])
        return super()._dump_generations(**dump)
