"""Test hook: something in the trainer's process opens the masks again before the update."""

from typing import Any

from tandem_plugin.patching.after_import import after_import


def _change(module: Any) -> None:
    compute = module.PPOTrainer._compute_advantage

    def opened(trainer: Any, batch: Any, metrics: Any) -> Any:
        result = compute(trainer, batch, metrics)
        data = module.tq.kv_batch_get(
            keys=batch.keys, partition_id=batch.partition_id, select_fields=["response_mask"]
        )
        data["response_mask"] = data["response_mask"] * 0 + 1
        module.tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=data)
        return result

    module.PPOTrainer._compute_advantage = opened


after_import("verl.trainer.ppo.v1.trainer_base", _change)
