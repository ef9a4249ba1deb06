"""The methods that are compared: what each adds to the same verl command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from real.demo import TANDEM
from real.junior_reference import REFERENCE

__all__ = ["METHODS", "RealMethod", "validation_overrides"]

_ACTOR, _REFERENCE = "actor_rollout_ref.actor", "actor_rollout_ref.ref"


@dataclass(frozen=True, slots=True)
class RealMethod:
    """overrides: verl's settings. anchored: whether its reference is to be the junior."""

    overrides: tuple[str, ...] = ()
    anchored: bool = False
    team: bool = False

    def settings(self, junior: Path) -> tuple[str, ...]:
        """verl's settings beside this junior."""
        if not self.team:
            return self.overrides
        return (
            *self.overrides,
            TANDEM,
            TANDEM.replace("schedule=word", f"junior='{junior}'"),
            # The team answers validation prompts, as in the paper.
            TANDEM.replace("schedule=word", "validation=team"),
        )

    def environment(self, junior: Path) -> Mapping[str, str]:
        """What is set besides for every process of the run."""
        if not self.anchored:
            return {}
        return {
            "VERL_USE_EXTERNAL_MODULES": "verl_on_cpu,junior_reference",
            REFERENCE: str(junior),
        }


def _kl_reg(coefficient: float) -> RealMethod:
    return RealMethod(
        (
            f"{_ACTOR}.use_kl_loss=True",
            f"{_ACTOR}.kl_loss_coef={coefficient}",
            f"{_ACTOR}.kl_loss_type=low_var_kl",
            f"{_REFERENCE}.log_prob_micro_batch_size_per_gpu="
            "${actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu}",
            # the reference like the actor: not compiled, and in float32
            f"{_REFERENCE}.fsdp_config.use_torch_compile=False",
            f"+{_REFERENCE}.fsdp_config.mixed_precision="
            "{param_dtype:fp32,reduce_dtype:fp32,buffer_dtype:fp32}",
        ),
        anchored=True,
    )


METHODS = {
    "GRPO": RealMethod(),
    "KL-Reg 0.05": _kl_reg(0.05),
    "TRL": RealMethod(team=True),
}
"""By the names of the light part."""


def validation_overrides(every: int) -> tuple[str, ...]:
    """Validation while training, sampled as in training: for the report's curves alone."""
    sampled = "actor_rollout_ref.rollout.val_kwargs"
    return (
        f"trainer.test_freq={every}",
        f"{sampled}.do_sample=True",
        f"{sampled}.temperature=1.0",
        f"{sampled}.top_p=1.0",
        f"{sampled}.n=1",
    )
