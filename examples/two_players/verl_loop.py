"""The game as an agent loop of verl's, which its ``agent_loop_config_path`` names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from play import MOVE_TOKENS, Said, play
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput


class TwoPlayers(AgentLoopBase):  # type: ignore[misc]
    """A row's game: its number of stones is the row's ground truth."""

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
        request_id, extra_fields = uuid4().hex, {}

        async def speak(token_ids: list[int], asked: Mapping[str, Any]) -> Said:
            answer = await self.server_manager.generate(
                request_id=request_id,
                prompt_ids=token_ids,
                sampling_params={**sampling_params, "max_tokens": MOVE_TOKENS, **asked},
            )
            extra_fields.update(answer.extra_fields)
            return Said(answer.token_ids, answer.log_probs)

        prompt_ids = await self.ct_build_initial_tokens(list(row["raw_prompt"]))
        stones = int(row["reward_model"]["ground_truth"])
        played = await play(stones, prompt_ids, self.tokenizer, speak)
        told = {"illegal": float(played.game.illegal), "left": float(played.game.left)}
        return AgentLoopOutput(
            prompt_ids=prompt_ids,
            response_ids=played.token_ids,
            response_mask=played.mask,
            response_logprobs=played.log_probs,
            reward_score=played.game.reward,
            num_turns=len(played.moves),
            metrics={},
            extra_fields={
                **extra_fields,
                "reward_extra_info": told,
                "turn_scores": [],
                "tool_rewards": [],
            },
        )
