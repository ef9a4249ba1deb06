"""verl's trainer V1 in tandem: what each mode's trainer does besides, by ``super()`` calls."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from tandem_verl.configuration import restore_mode
from tandem_verl.manager import check_manager, check_users_manager
from tandem_verl.rows import rows_of_keys
from tandem_verl.server import check_replicas, register_replica
from tandem_verl.sessions import reading_whole_sessions
from tandem_verl.trainer import TandemTrainer

__all__ = ["TrainerInTandem", "queue", "trainer_module"]


def queue() -> ModuleType:
    """TransferQueue, which holds the batches of trainer V1."""
    import transfer_queue

    return transfer_queue  # type: ignore[no-any-return]


def trainer_module() -> ModuleType:
    """The module that trainer V1's modes share."""
    from verl.trainer.ppo.v1 import trainer_base

    return trainer_base  # type: ignore[no-any-return]


class TrainerInTandem:
    """Before a ``PPOTrainer`` of verl's: checks the run, every batch and every update; dumps."""

    config: Any
    tokenizer: Any
    role_worker_mapping: dict[Any, Any]
    _tandem: TandemTrainer

    def __init__(self, config: Any, *rest: Any, **options: Any) -> None:
        restore_mode(config)
        super().__init__(config, *rest, **options)  # type: ignore[call-arg]

    def _setup(self) -> None:
        register_replica()
        super()._setup()  # type: ignore[misc]
        for servers in self._tandem_servers():
            check_replicas(servers.get_replicas())

    def _init_tokenizer(self) -> None:
        """The first thing that a trainer does, before workers."""
        super()._init_tokenizer()  # type: ignore[misc]
        self._tandem = TandemTrainer.start(self.config, self.tokenizer)
        check_users_manager(self.config)

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()  # type: ignore[misc]
        if self._tandem.imitates:
            from tandem_verl import imitation

            imitation.replace_workers(self.role_worker_mapping)

    def _build_replay_buffer(self) -> Any:
        """The buffer whose ``sample`` gives the trainer every batch, and metrics with it."""
        buffer = super()._build_replay_buffer()  # type: ignore[misc]
        sample = buffer.sample

        @functools.wraps(sample)
        def watched(*args: Any, **options: Any) -> Any:
            batch, metrics = sample(*args, **options)
            return batch, {**metrics, **self._tandem_examine(batch)}

        buffer.sample = watched
        return buffer

    def fit(self, agent_loop_manager: Any) -> Any:
        check_manager(agent_loop_manager)
        return super().fit(agent_loop_manager)  # type: ignore[misc]

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        with reading_whole_sessions(trainer_module(), batch.keys):
            return super()._compute_advantage(batch, metrics)  # type: ignore[misc]

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """Check the masks that the update is about to use; say what is to be imitated."""
        tandem = self._tandem
        verls: Any = super()
        rows = rows_of_keys(batch, queue())
        tandem.check_update(rows)
        if not tandem.imitates:
            return verls._update_actor(batch, metrics)
        from tandem_verl import imitation

        told = imitation.tell_the_workers(batch, rows, queue(), tandem.config.lambda_jun)
        result = verls._update_actor(told, metrics)
        tandem.check_imitation(metrics)
        return result

    def _dump_generations(self, **dump: Any) -> Any:
        return super()._dump_generations(**self._tandem.dumped(dump))  # type: ignore[misc]

    def _validate(self) -> dict[str, Any]:
        return self._tandem.validate(self, super()._validate)  # type: ignore[misc]

    def _maybe_log_val_generations(self, inputs: Any, outputs: Any, scores: Any) -> Any:
        table = self._tandem.table(inputs, outputs, scores)
        if table is None:
            return None
        return super()._maybe_log_val_generations(**table)  # type: ignore[misc]

    def _tandem_examine(self, batch: Any) -> dict[str, float]:
        """Check a batch that the trainer has just been given; return its metrics."""
        tandem = self._tandem
        validates = batch.partition_id != "train"
        rows = rows_of_keys(batch, queue())
        metrics: dict[str, float] = {}
        if validates:
            tandem.admit_validation(rows)
        else:
            metrics = {**tandem.admit(rows), **tandem.drafting(self._tandem_servers())}
        folder = "validation_data_dir" if validates else "rollout_data_dir"
        if self.config.trainer.get(folder):
            tandem.remember(batch.keys, rows)
        return metrics

    def _tandem_servers(self) -> list[Any]:
        """The managers of the run's vLLM servers."""
        names = ("llm_server_manager", "standalone_server_manager")
        found = (getattr(self, name, None) for name in names)
        return [servers for servers in found if servers is not None]
