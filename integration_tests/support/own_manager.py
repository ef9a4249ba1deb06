"""An agent-loop manager of a user's own, as verl documents it: a subclass of verl's."""

from __future__ import annotations

from typing import Any

from verl.trainer.ppo.v1 import AgentLoopManagerTQ


class OwnManager(AgentLoopManagerTQ):  # type: ignore[misc]
    """Says what it sends."""

    def generate_sequences(self, prompts: Any) -> Any:
        print(f"OwnManager sends {len(prompts)} prompts", flush=True)
        return super().generate_sequences(prompts)
