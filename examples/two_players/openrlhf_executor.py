"""The game as an agent of OpenRLHF's: ``--train.agent_func_path`` names this file."""

from __future__ import annotations

import copy
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from openrlhf.utils.agent import AgentExecutorBase

sys.path.insert(0, str(Path(__file__).resolve().parent))  # it is loaded by its path

from play import MOVE_TOKENS, Said, play


class AgentExecutor(AgentExecutorBase):  # type: ignore[misc]
    """A prompt's game: its number of stones is the label."""

    async def execute(
        self,
        prompt: str,
        label: str,
        sampling_params: Any,
        max_length: int,
        hf_tokenizer: Any,
        llm_engine: Any,
        images: Any = None,
    ) -> dict[str, Any]:
        async def speak(token_ids: list[int], asked: Mapping[str, Any]) -> Said:
            own = copy.deepcopy(sampling_params)
            own.max_tokens = MOVE_TOKENS
            for name, value in asked.items():
                setattr(own, name, value)
            answer = (await llm_engine.generate(token_ids, own)).outputs[0]
            said = list(answer.token_ids)
            return Said(
                said, [at[token].logprob for at, token in zip(answer.logprobs, said, strict=True)]
            )

        prompt_ids = hf_tokenizer(text=prompt, add_special_tokens=False)["input_ids"]
        played = await play(int(label), prompt_ids, hf_tokenizer, speak)
        game, start = played.game, len(prompt_ids)
        return {
            "prompt": prompt,
            "label": label,
            "observation_tokens": [*prompt_ids, *played.token_ids],
            "action_ranges": [(start + first, start + stop) for first, stop in played.moves],
            "rollout_log_probs": [0.0] * start + played.log_probs,
            "reward": game.reward,
            "scores": game.reward,
            "truncated": False,
            "extra_logs": {"illegal": float(game.illegal), "left": float(game.left)},
        }
