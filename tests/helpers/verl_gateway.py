"""The gateway that verl documents for agent frameworks, as an agent loop of several outputs.

A client sends chat messages and knows nothing of tokens. A request whose messages continue a
chain's adds tokens to it; any other begins a chain, and each chain is an output.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from verl.experimental.agent_loop.agent_loop import (
    AgentLoopBase,
    AgentLoopMetrics,
    AgentLoopOutput,
)

MOST_TOKENS = 8
Messages = list[dict[str, str]]


@dataclass
class Chain:
    """One conversation: its messages, and the tokens after the first request's."""

    prompt: list[int]
    messages: Messages = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    fields: dict[str, Any] = field(default_factory=dict)

    def add(self, tokens: list[int], log_probs: list[float] | None = None) -> None:
        """Tokens of an answer, or of messages that no model wrote."""
        self.tokens += tokens
        self.mask += [int(log_probs is not None)] * len(tokens)
        self.log_probs += log_probs or [0.0] * len(tokens)

    def output(self) -> AgentLoopOutput:
        return AgentLoopOutput(
            prompt_ids=self.prompt,
            response_ids=self.tokens,
            response_mask=self.mask,
            response_logprobs=self.log_probs,
            num_turns=len(self.messages),
            metrics=AgentLoopMetrics(),
            extra_fields={**self.fields, "turn_scores": [], "tool_rewards": []},
        )


class Gateway(AgentLoopBase):  # type: ignore[misc]  # verl is not typed
    """A session of four requests and three chains: a helper asked beside the agent, a tool's turn,
    and a history that the client rewrites."""

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> list[AgentLoopOutput]:
        self.sampling_params = {**sampling_params, "max_tokens": MOST_TOKENS}
        self.chains: list[Chain] = []
        task = list(kwargs["raw_prompt"])
        helper = self.chat([{"role": "user", "content": "Help"}])
        said, _ = await asyncio.gather(self.chat(task), helper)
        await self.chat([*task, said, {"role": "tool", "content": "seen"}])
        await self.chat([*task, {"role": "user", "content": "In short"}])
        return [chain.output() for chain in self.chains]

    async def chat(self, messages: Messages) -> dict[str, str]:
        """The assistant's message."""
        chain = next((one for one in self.chains if self._continues(messages, one)), None)
        if chain is None:
            chain = Chain(await self.ct_build_initial_tokens(messages))
        else:
            new = messages[len(chain.messages) :]
            text = "".join(f" {one['role']}: {one['content']} " for one in new)
            chain.add(self.tokenizer.encode(text, add_special_tokens=False))
        answer = await self.server_manager.generate(
            request_id="gateway",
            prompt_ids=[*chain.prompt, *chain.tokens],
            sampling_params=self.sampling_params,
        )
        chain.add(answer.token_ids, answer.log_probs)
        if not chain.messages:
            self.chains.append(chain)
        reply = self.tokenizer.decode(answer.token_ids, skip_special_tokens=True)
        said = {"role": "assistant", "content": reply}
        chain.messages, chain.fields = [*messages, said], answer.extra_fields
        return said

    @staticmethod
    def _continues(messages: Messages, chain: Chain) -> bool:
        return messages[: len(chain.messages)] == chain.messages
