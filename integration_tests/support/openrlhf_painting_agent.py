"""An agent for OpenRLHF that answers each of two turns with a picture."""

from __future__ import annotations

import re
from typing import Any

import torch
from openrlhf.utils.agent import AgentInstanceBase, MultiTurnAgentExecutor

from support.images import QWEN_TOKENS, picture

MOST_TOKENS = 24
"""Of a turn: the rest of the sequence would be of the first one otherwise."""


TURNS = 2


def painted(number: int, turn: int) -> Any:
    """The picture that prompt ``number`` gets after a turn, from 1 on."""
    return picture(400 + 10 * number + turn)


class Painter(AgentInstanceBase):  # type: ignore[misc]  # OpenRLHF is not typed
    """The letters e are the reward."""

    def __init__(self) -> None:
        self.turns = 0

    async def step(self, states: dict[str, Any], **_: Any) -> dict[str, Any]:
        self.turns += 1
        (number,) = map(int, re.findall(r"letter e (\d+) times", states["observation_text"]))
        return {
            "rewards": torch.tensor(states["action_text"].count("e") / 100.0),
            "environment_feedback": f" And {''.join(QWEN_TOKENS[:3])} shows: ",
            "environment_images": [painted(number, self.turns)],
            "done": self.turns == TURNS,
        }


class ShortTurns:
    """OpenRLHF's engine, with a limit on the tokens of a turn."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine

    async def generate(self, prompt: Any, params: Any, multi_modal_data: Any = None) -> Any:
        params.max_tokens = min(params.max_tokens, MOST_TOKENS)
        return await self.engine.generate(prompt, params, multi_modal_data=multi_modal_data)


class AgentExecutor(MultiTurnAgentExecutor):  # type: ignore[misc]  # OpenRLHF is not typed
    def __init__(self) -> None:
        super().__init__(Painter)

    async def execute(self, *, llm_engine: Any, **call: Any) -> Any:
        return await super().execute(llm_engine=ShortTurns(llm_engine), **call)
