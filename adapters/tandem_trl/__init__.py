"""Hugging Face TRL's ``GRPOTrainer`` in tandem: ``rollout_func=tandem_rollouts(schedule="word")``.

The engine is the one that TRL starts in its own process (``vllm_mode="colocate"``); only the
rollouts and the choice of trained tokens differ from TRL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tandem_trl.rollouts import tandem_rollouts

__all__ = ["tandem_rollouts"]


def __getattr__(name: str) -> Any:
    """The function, loaded when it is first used: an engine's process reads the settings alone."""
    if name not in __all__:
        raise AttributeError(name)
    from tandem_trl.rollouts import tandem_rollouts

    return tandem_rollouts
