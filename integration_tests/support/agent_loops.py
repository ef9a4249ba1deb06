"""What a user brings to verl's agent loops: some of their own, a tool, a parser of tool calls.

As a test hook it registers the parser in verl's processes; verl imports the loops by their names
(:data:`CONFIG`), and the tool from this file's path.
"""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

from tandem_plugin.patching.after_import import after_import

CONFIG = "".join(
    f"- name: {name}\n  _target_: support.agent_loops.{kind}\n"
    for name, kind in (
        ("two_calls", "TwoCalls"),
        ("game", "Game"),
    )
)
"""The file that verl's ``agent_loop_config_path`` names."""

PARSER = "every_turn"
TURNS, CALL_TOKENS = 3, 8
GAME = (None, "junior", "solo")
"""The schedules that the calls of a game ask for."""

_KINDS = ("TwoCalls", "Game")


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


def _loops() -> tuple[type, ...]:
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
            return self._output(
                first,
                prompt,
                [*first.token_ids, *between, *second.token_ids],
                [1] * len(first.token_ids) + [0] * len(between) + [1] * len(second.token_ids),
                [*first.log_probs, *[0.0] * len(between), *second.log_probs],
            )

        async def _call(self, prompt: list[int], sampling_params: dict[str, Any]) -> Any:
            return await self.server_manager.generate(
                request_id="two calls",
                prompt_ids=prompt,
                sampling_params={**sampling_params, "max_tokens": CALL_TOKENS},
            )

        def _output(
            self,
            answer: Any,
            prompt: list[int],
            ids: list[int],
            mask: list[int],
            logprobs: list[float],
        ) -> Any:
            return AgentLoopOutput(
                prompt_ids=prompt,
                response_ids=ids,
                response_mask=mask,
                response_logprobs=logprobs,
                num_turns=2,
                metrics={},
                extra_fields={**answer.extra_fields, "turn_scores": [], "tool_rewards": []},
            )

    class Game(TwoCalls):
        """A game of three turns, one with the frozen partner and one of the senior alone.

        The loop would train all of it: whose turn it was is tandem's to know.
        """

        async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> Any:
            prompt = await self.ct_build_initial_tokens(list(kwargs["raw_prompt"]))
            ids: list[int] = []
            logprobs: list[float] = []
            for asked in GAME:
                extra = {} if asked is None else {"extra_args": {"tandem": {"schedule": asked}}}
                answer = await self._call([*prompt, *ids], {**sampling_params, **extra})
                ids += answer.token_ids
                logprobs += answer.log_probs
            return self._output(answer, prompt, ids, [1] * len(ids), logprobs)

    return TwoCalls, Game


def __getattr__(name: str) -> Any:
    """The loops, whose base class is in a module that a hook must not import."""
    if name in _KINDS:
        globals().update(zip(_KINDS, _loops(), strict=True))
        return globals()[name]
    raise AttributeError(name)
