"""verl's legacy trainer (``trainer.use_v1=False``): imported and patched in a run that asks for it.

It has no registry of trainers. Each patch is of verl 0.9, and goes when verl drops the trainer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tandem_plugin.errors import EngineError
from tandem_plugin.patching.after_import import after_import
from tandem_plugin.patching.wrapping import wrap_once
from tandem_plugin.training.fields import JUNIOR_MASK
from tandem_verl.manager import check_users_manager
from tandem_verl.rows import columns_of, padded_junior_mask, rows_of_batch
from tandem_verl.server import check_replicas, register_replica
from tandem_verl.switch import tandem_node
from tandem_verl.trainer import TandemTrainer

__all__ = ["PATCHED", "put_in_place", "watch"]

_MODULE = "verl.trainer.ppo.ray_trainer"

PATCHED = tuple(
    f"{_MODULE}.{name}"
    for name in (
        "extract_reward",
        "RayPPOTrainer.__init__",
        "RayPPOTrainer.init_workers",
        "RayPPOTrainer._update_actor",
        "RayPPOTrainer._log_rollout_data",
        "RayPPOTrainer._dump_generations",
        "RayPPOTrainer._validate",
        "RayPPOTrainer._maybe_log_val_generations",
    )
)
"""The symbols of verl that a run of the legacy trainer finds changed besides."""


def put_in_place() -> None:
    """Patch the trainer in this process, now or when it is imported; repeatable."""
    after_import(_MODULE, watch)


def watch(module: ModuleType) -> None:
    """Check a run at its start and every batch before anything is learned from it; dump authorship.

    Touches: ``RayPPOTrainer.__init__`` (before workers), ``init_workers`` (servers are made there),
    ``extract_reward``, through which every batch passes before anything is computed from it,
    ``_update_actor`` (right before the update, and with the update's metrics),
    ``_log_rollout_data``, ``_dump_generations``, and what :func:`_validate_by_each` does.
    """
    started: list[TandemTrainer] = []

    def start(
        original: Callable[..., Any],
        trainer: Any,
        config: Any,
        tokenizer: Any,
        *rest: Any,
        **more: Any,
    ) -> None:
        trainer._tandem = None
        if tandem_node(config) is not None:
            trainer._tandem = TandemTrainer.start(config, tokenizer)
            check_users_manager(config)
            started.append(trainer._tandem)
        original(trainer, config, tokenizer, *rest, **more)

    def init_workers(original: Callable[..., Any], trainer: Any) -> Any:
        tandem = _started(trainer)
        if tandem is None:
            return original(trainer)
        register_replica()
        if tandem.imitates:
            from tandem_verl import imitation

            imitation.replace_workers(trainer.role_worker_mapping)
        result = original(trainer)
        check_replicas(trainer.llm_server_manager.get_replicas())
        return result

    def _update_actor(original: Callable[..., Any], trainer: Any, batch: Any) -> Any:
        tandem = _started(trainer)
        if tandem is None:
            return original(trainer, batch)
        tandem.check_update(rows_of_batch(batch))
        managers = [trainer.llm_server_manager] if tandem.config.drafts else []
        metrics = {**tandem.metrics, **tandem.drafting(managers)}
        if tandem.imitates:
            from tandem_verl.imitation import LAMBDA_JUN

            batch.batch[JUNIOR_MASK] = padded_junior_mask(batch)
            batch.meta_info[LAMBDA_JUN] = tandem.config.lambda_jun
        output = original(trainer, batch)
        if tandem.imitates:
            batch.batch.pop(JUNIOR_MASK)
            tandem.check_imitation(output.meta_info["metrics"])
        output.meta_info["metrics"].update(metrics)
        return output

    def _log_rollout_data(
        original: Callable[..., Any], trainer: Any, batch: Any, extra: Any, *rest: Any, **more: Any
    ) -> Any:
        if _started(trainer) is not None:
            extra = {**extra, **columns_of(rows_of_batch(batch))}
        return original(trainer, batch, extra, *rest, **more)

    def extract_reward(original: Callable[..., Any], batch: Any) -> Any:
        for tandem in started:
            rows = rows_of_batch(batch)
            if tandem.validating is None:
                tandem.admit(rows)
            else:
                tandem.admit_validation(rows)
                tandem.validating.rows.extend(rows)
        return original(batch)

    def _dump_generations(original: Callable[..., Any], trainer: Any, **dump: Any) -> Any:
        tandem: TandemTrainer | None = trainer._tandem
        if tandem is not None and tandem.validating is not None:
            extra = {**dump["reward_extra_infos_dict"], **columns_of(tandem.validating.rows)}
            dump = tandem.addressed({**dump, "reward_extra_infos_dict": extra})
        return original(trainer, **dump)

    wrap_once(module.RayPPOTrainer, "__init__", start)
    wrap_once(module.RayPPOTrainer, "init_workers", init_workers)
    wrap_once(module.RayPPOTrainer, "_update_actor", _update_actor)
    wrap_once(module.RayPPOTrainer, "_log_rollout_data", _log_rollout_data)
    wrap_once(module.RayPPOTrainer, "_dump_generations", _dump_generations)
    wrap_once(module, "extract_reward", extract_reward)
    _validate_by_each(module.RayPPOTrainer)


def _validate_by_each(trainer_class: Any) -> None:
    """Let the senior, the team or both answer validation prompts, under names of their own.

    Touches: ``_validate``, which then runs once for each answerer over prompts that say who it is,
    and ``_maybe_log_val_generations``, whose table has one place a step.
    """

    def _validate(original: Callable[..., Any], trainer: Any, *args: Any, **more: Any) -> Any:
        tandem: TandemTrainer | None = getattr(trainer, "_tandem", None)
        if tandem is None:
            return original(trainer, *args, **more)
        if any(args) or any(more.values()):
            raise EngineError(
                f"{type(trainer).__name__} merges the validations of several processes, so that "
                "tandem cannot name their metrics. Use one of verl's own trainers."
            )
        return tandem.validate(trainer, functools.partial(original, trainer))

    def _maybe_log_val_generations(
        original: Callable[..., Any], trainer: Any, inputs: Any, outputs: Any, scores: Any
    ) -> Any:
        tandem: TandemTrainer | None = getattr(trainer, "_tandem", None)
        table: dict[str, Any] | None = {"inputs": inputs, "outputs": outputs, "scores": scores}
        if tandem is not None:
            table = tandem.table(**table)  # type: ignore[arg-type]
        return None if table is None else original(trainer, **table)

    wrap_once(trainer_class, "_validate", _validate)
    wrap_once(trainer_class, "_maybe_log_val_generations", _maybe_log_val_generations)


def _started(trainer: Any) -> TandemTrainer | None:
    """The checks that a trainer of verl's began with; None for a run that does not ask for tandem.

    Raises :class:`EngineError` for a trainer that asks for tandem and did not begin with them.
    """
    tandem: TandemTrainer | None = vars(trainer).get("_tandem")
    if tandem is None and tandem_node(trainer.config) is not None:
        raise EngineError(
            f"{type(trainer).__name__} did not start as verl's own trainers do, so that tandem "
            "could not be checked. Use trainer V1 in one of its own modes."
        )
    return tandem
