"""verl's trainer V1 in tandem: what each mode's trainer does besides, by ``super()`` calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from tandem_plugin.errors import ConfigError
from tandem_plugin.patching.subclasses import check_part
from tandem_plugin.patching.wrapping import wrap_once
from tandem_plugin.training.rows import Row
from tandem_verl.advantages import credit_rewards, reading_whole_sessions
from tandem_verl.manager import ManagerInTandem
from tandem_verl.rows import rows_of_keys
from tandem_verl.server import register_replica
from tandem_verl.soundness import REWARD_TO_GO_ESTIMATORS
from tandem_verl.switch import OUR_MODE, tandem_node
from tandem_verl.trainer import TrainerInTandem, started_run

__all__ = ["TrainerV1InTandem", "queue", "restore_mode"]


def queue() -> ModuleType:
    """TransferQueue, which holds the batches of trainer V1."""
    import transfer_queue

    return transfer_queue  # type: ignore[no-any-return]


def restore_mode(config: Any) -> None:
    """Give the trainer's mode the name back that verl compares it to, in the trainer's process.

    Raises :class:`ConfigError` for a mode of ours that the driver did not choose.
    """
    mode = config.trainer.v1.trainer_mode
    if tandem_node(config) is None or not mode.startswith(OUR_MODE):
        raise ConfigError("TP532", mode=mode)
    config.trainer.v1.trainer_mode = mode.removeprefix(OUR_MODE)


class TrainerV1InTandem(TrainerInTandem):
    """Before a ``PPOTrainer`` of verl's: checks the run, every batch and every update; dumps."""

    tokenizer: Any

    def __init__(self, config: Any, *rest: Any, **options: Any) -> None:
        restore_mode(config)
        self._tandem_rows: dict[str, Row] = {}
        """The rows that wait for the dump that follows, by the keys that it will name."""
        super().__init__(config, *rest, **options)

    def _init_tokenizer(self) -> None:
        """The first thing that a trainer does, before workers."""
        super()._init_tokenizer()
        self._tandem = started_run(self.config, self.tokenizer)

    def _setup(self) -> None:
        register_replica(self.config)
        super()._setup()
        self.tandem_check_servers()

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        self.tandem_replace_workers()

    def _build_replay_buffer(self) -> Any:
        """The buffer whose ``sample`` gives the trainer every batch, and metrics with it."""
        buffer = super()._build_replay_buffer()

        def watched(sample: Callable[..., Any], *args: Any, **options: Any) -> Any:
            batch, metrics = sample(*args, **options)
            return batch, {**metrics, **self._tandem_examine(batch)}

        wrap_once(buffer, "sample", watched)
        return buffer

    def _tandem_examine(self, batch: Any) -> dict[str, float]:
        """Check a batch that the trainer has just been given; return its metrics."""
        validates = batch.partition_id != "train"
        rows = rows_of_keys(batch, queue())
        metrics = self.tandem_admit(rows, validates)
        folder = "validation_data_dir" if validates else "rollout_data_dir"
        if self.config.trainer.get(folder):
            self._tandem_rows.update(zip(batch.keys, rows, strict=True))
        return metrics if validates else {**metrics, **self.tandem_engine_metrics()}

    def fit(self, agent_loop_manager: Any) -> Any:
        check_part(agent_loop_manager, ManagerInTandem)
        return super().fit(agent_loop_manager)

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        from verl.trainer.ppo.v1 import trainer_base

        estimator = self.config.algorithm.adv_estimator
        if getattr(estimator, "value", estimator) in REWARD_TO_GO_ESTIMATORS:
            credit_rewards(batch, queue())
        with reading_whole_sessions(trainer_base, batch.keys):
            return super()._compute_advantage(batch, metrics)

    def _update_critic(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """Check the masks: until ``trainer.critic_warmup`` is over, no other update follows."""
        self._tandem.check_update(rows_of_keys(batch, queue()))
        return super()._update_critic(batch, metrics)

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """Check the masks that the update is about to use; say what is to be imitated."""
        rows = rows_of_keys(batch, queue())
        self._tandem.check_update(rows)
        if weight := self._tandem.config.lambda_jun:
            from tandem_verl import imitation

            batch = imitation.send_to_workers(batch, rows, queue(), weight)
        result = super()._update_actor(batch, metrics)
        self._tandem.check_imitation(metrics, "actor/")
        return result

    def tandem_dumped(self, dump: dict[str, Any]) -> Sequence[Row | None]:
        keys = dump["reward_extra_infos_dict"].get("uid", [])
        return [self._tandem_rows.pop(key, None) for key in keys]
