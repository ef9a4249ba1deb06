"""The methods that are compared: what each adds to the same verl command."""

from __future__ import annotations

from demo import TANDEM

_ACTOR, _REFERENCE = "actor_rollout_ref.actor", "actor_rollout_ref.ref"

KL_COEFFICIENT = 0.05
"""Chosen before any result was seen, and not tuned. verl's default of 0.001 goes with a learning
rate of 1e-6; this study's is 500 times as high, for a model of 0.7 million parameters."""

METHODS: dict[str, tuple[str, ...]] = {
    "GRPO": (),
    "KL-Reg": (
        f"{_ACTOR}.use_kl_loss=True",
        f"{_ACTOR}.kl_loss_coef={KL_COEFFICIENT}",
        f"{_ACTOR}.kl_loss_type=low_var_kl",
        f"{_REFERENCE}.log_prob_micro_batch_size_per_gpu="
        "${actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu}",
        # the reference in float32, like the actor
        f"+{_REFERENCE}.fsdp_config.mixed_precision="
        "{param_dtype:fp32,reduce_dtype:fp32,buffer_dtype:fp32}",
    ),
    # The team answers validation prompts, as in the paper.
    "TRL": (TANDEM, TANDEM.replace("schedule=word", "validation=team")),
}
"""Overrides by method; KL-Reg's reference and TRL's junior are the taught model."""


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


def run_name(method: str, seed: int) -> str:
    """The name of one trained senior."""
    return f"{method}-{seed}"
