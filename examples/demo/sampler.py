"""verl's replay buffer, asked five times a second instead of every two seconds.

verl loads this file by its path (``trainer.v1.sampler.custom_sampler``, its hook for such a
class). A step of the demo takes a few seconds, of which the default wait would be a fifth.
"""

from __future__ import annotations

from typing import Any

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer


class PromptReplayBuffer(ReplayBuffer):
    """The synchronous trainer's buffer with a short poll interval, in seconds."""

    def __init__(self, *args: Any, poll_interval: float = 0.2, **kwargs: Any) -> None:
        super().__init__(*args, poll_interval=poll_interval, **kwargs)
