"""What a user brings to verl's agent loops: one of their own, and a parser of tool calls.

As a test hook it registers the parser in verl's processes; verl imports the loop by its name
(:data:`CONFIG`).
"""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

from tandem_plugin.patching.after_import import after_import

CONFIG = (
    "- name: two_calls\n  _target_: support.agent_loops.TwoCalls\n"
    "- name: two_outputs\n  _target_: support.agent_loops.TwoOutputs\n"
    "- name: gateway\n  _target_: verl_gateway.Gateway\n"
)
"""The file that verl's ``agent_loop_config_path`` names."""

PARSER = "every_turn"
TURNS, CALL_TOKENS, LAST_TOKENS = 3, 8, 2


def _register_parser(module: ModuleType) -> None:
    class EveryTurn(module.ToolParser):  # type: ignore[misc,name-defined]
        """Every turn calls the tool: a model of random weights writes no call in any format."""

        @property
        def stop_token_ids(self) -> list[int]:
            return list(range(0, len(self.tokenizer), 4))

        async def extract_tool_calls(self, responses_ids: list[int], tools: Any = None) -> Any:
            text = self.tokenizer.decode(responses_ids, skip_special_tokens=True)
            call = module.FunctionCall(name="count", arguments=json.dumps({"text": text}))
            return text, [call]

    module.ToolParser.register(PARSER)(EveryTurn)


after_import("verl.experimental.agent_loop.tool_parser", _register_parser)


def _two_calls() -> type:
    from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput

    class TwoCalls(AgentLoopBase):  # type: ignore[misc]
        """Drafts a response, drops it, and writes another in two calls with a text between them."""

        async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> Any:
            prompt = await self.ct_build_initial_tokens(list(kwargs["raw_prompt"]))
            await self._call(prompt, sampling_params)
            first = await self._call(prompt, sampling_params)
            between = self.tokenizer.encode(" And then: ", add_special_tokens=False)
            context = [*prompt, *first.token_ids, *between]
            second = await self._call(context, sampling_params)
            return AgentLoopOutput(
                prompt_ids=prompt,
                response_ids=[*first.token_ids, *between, *second.token_ids],
                response_mask=[1] * len(first.token_ids)
                + [0] * len(between)
                + [1] * len(second.token_ids),
                response_logprobs=[*first.log_probs, *[0.0] * len(between), *second.log_probs],
                num_turns=2,
                metrics={},
                extra_fields={**first.extra_fields, "turn_scores": [], "tool_rewards": []},
            )

        async def _call(
            self, prompt: list[int], sampling_params: dict[str, Any], most: int = CALL_TOKENS
        ) -> Any:
            return await self.server_manager.generate(
                request_id="two calls",
                prompt_ids=prompt,
                sampling_params={**sampling_params, "max_tokens": most},
            )

    return TwoCalls


def _two_outputs() -> type:
    from verl.experimental.agent_loop.agent_loop import AgentLoopOutput

    class TwoOutputs(_two_calls()):  # type: ignore[misc]
        """Rewrites its history after a call: the next, short one begins another output."""

        async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> Any:
            prompt = await self.ct_build_initial_tokens(list(kwargs["raw_prompt"]))
            outputs = []
            for most in (CALL_TOKENS, LAST_TOKENS):
                answer = await self._call(prompt, sampling_params, most)
                outputs.append(
                    AgentLoopOutput(
                        prompt_ids=prompt,
                        response_ids=answer.token_ids,
                        response_mask=[1] * len(answer.token_ids),
                        response_logprobs=answer.log_probs,
                        num_turns=2,
                        metrics={},
                        extra_fields={**answer.extra_fields, "turn_scores": [], "tool_rewards": []},
                    )
                )
                summary = self.tokenizer.encode(" In short: ", add_special_tokens=False)
                prompt = [*prompt, *summary]
            return outputs

    return TwoOutputs


_LOOPS = {"TwoCalls": _two_calls, "TwoOutputs": _two_outputs}


def __getattr__(name: str) -> Any:
    """The loops, whose base class is in a module that a hook must not import."""
    if name in _LOOPS:
        return globals().setdefault(name, _LOOPS[name]())
    raise AttributeError(name)
