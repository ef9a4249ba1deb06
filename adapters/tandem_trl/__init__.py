"""Hugging Face TRL's ``GRPOTrainer`` in tandem: ``rollout_func=tandem_rollouts(schedule="word")``.

The engine is the one that TRL starts in its own process (``vllm_mode="colocate"``); only the
rollouts and the choice of trained tokens differ from TRL.
"""

from tandem_trl.rollouts import tandem_rollouts

__all__ = ["tandem_rollouts"]
