"""verl's legacy trainer (``trainer.use_v1=False``): imported and patched in a run that asks for it.

It has no registry of trainers. Each patch is of verl 0.9, and goes when verl drops the trainer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import ModuleType
from typing import Any

import torch

from tandem_plugin.errors import EngineError
from tandem_plugin.patching.after_import import after_import
from tandem_plugin.patching.mixins import in_tandem
from tandem_plugin.patching.wrapping import wrap_once
from tandem_plugin.training.rows import Row, dumped_columns
from tandem_verl.rows import rows_of_batch
from tandem_verl.server import register_replica
from tandem_verl.switch import tandem_node
from tandem_verl.trainer import TrainerInTandem, started_run

__all__ = ["PATCHED", "TrainerV0InTandem", "put_in_place", "watch"]

_MODULE = "verl.trainer.ppo.ray_trainer"

PATCHED = (
    f"{_MODULE}.RayPPOTrainer.__init__",
    f"{_MODULE}.RayPPOTrainer._update_actor",
    f"{_MODULE}.extract_reward",
)
"""The symbols of verl that a run of the legacy trainer finds changed besides."""


def put_in_place() -> None:
    """Patch the trainer in this process, now or when it is imported; repeatable."""
    after_import(_MODULE, watch)


def watch(module: ModuleType) -> None:
    """Let the trainer of a run in tandem be of a subclass of ours.

    Touches: ``RayPPOTrainer.__init__``, in which a trainer becomes one of ours, whatever name its
    class was taken by; ``_update_actor``, which trainers that begin in another way do not pass in
    tandem; and ``extract_reward``, through which every batch passes before anything is computed
    from it.
    """
    started: list[TrainerV0InTandem] = []

    def start(
        original: Callable[..., Any],
        trainer: Any,
        config: Any,
        tokenizer: Any,
        *rest: Any,
        **more: Any,
    ) -> None:
        if tandem_node(config) is not None:
            run = started_run(config, tokenizer)
            trainer.__class__ = in_tandem(type(trainer), TrainerV0InTandem)
            trainer._tandem = run
            started.append(trainer)
        original(trainer, config, tokenizer, *rest, **more)

    def update(original: Callable[..., Any], trainer: Any, batch: Any) -> Any:
        if tandem_node(trainer.config) is not None and not isinstance(trainer, TrainerV0InTandem):
            raise EngineError(
                f"{type(trainer).__name__} did not start as verl's own trainers do, so that tandem "
                "could not be checked. Use trainer V1 in one of its own modes."
            )
        return original(trainer, batch)

    def extract_reward(original: Callable[..., Any], batch: Any) -> Any:
        for trainer in started:
            trainer.tandem_examine(rows_of_batch(batch))
        return original(batch)

    wrap_once(module.RayPPOTrainer, "__init__", start)
    wrap_once(module.RayPPOTrainer, "_update_actor", update)
    wrap_once(module, "extract_reward", extract_reward)


class TrainerV0InTandem(TrainerInTandem):
    """Before ``RayPPOTrainer``: checks every batch and every update; dumps."""

    def init_workers(self) -> None:
        register_replica(self.config)
        self.tandem_replace_workers()
        super().init_workers()
        self.tandem_check_servers()

    def tandem_examine(self, rows: Sequence[Row]) -> None:
        """Check a batch whose rewards are about to be taken."""
        self.tandem_admit(rows, validates=self._tandem_pass is not None)
        if self._tandem_pass is not None:
            self._tandem_pass.rows.extend(rows)

    def _update_actor(self, batch: Any) -> Any:
        rows, tandem = rows_of_batch(batch), self._tandem
        tandem.check_update(rows)
        if tandem.config.partner_kl_coef:
            data = batch.batch
            columns = data["advantages"], data["old_log_probs"]
            data["advantages"] = torch.stack(tandem.less_partner_kl(rows, *columns))
        ours = {**tandem.metrics, **self.tandem_engine_metrics()}
        with ExitStack() as told:
            if weight := tandem.config.lambda_jun:
                from tandem_verl import imitation

                told.enter_context(imitation.telling_the_workers(batch, rows, weight))
            output = super()._update_actor(batch)
        tandem.check_imitation(output.meta_info["metrics"], "actor/")
        output.meta_info["metrics"].update(ours)
        return output

    def _log_rollout_data(self, batch: Any, extra: Any, *rest: Any, **more: Any) -> Any:
        columns = {**extra, **dumped_columns(rows_of_batch(batch))}
        return super()._log_rollout_data(batch, columns, *rest, **more)

    def tandem_dumped(self, dump: dict[str, Any]) -> Sequence[Row | None]:
        return [] if self._tandem_pass is None else self._tandem_pass.rows
