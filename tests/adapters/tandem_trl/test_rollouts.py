"""Which images TRL's losses see, of prompts and of tools."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("trl.scripts", reason="TRL is not installed")
pytest.importorskip("vllm", reason="vLLM is not installed")

from tandem_trl.rollouts import TandemRollouts

FIRST: list[Any] = [["a", "b"], None, ["c"]]


@pytest.mark.parametrize(
    ("shown", "of_tools", "expected"),
    [
        (FIRST, [], [["a", "b"], None, ["c"]]),
        (FIRST, [["x"], ["y", "z"], []], [["a", "b", "x"], ["y", "z"], ["c"]]),
        (None, [["x"], [], []], [["x"], None, None]),  # as TRL has them
        (None, [], None),
    ],
)
def test_losses_see_the_images_of_prompts_and_tools(
    shown: Any, of_tools: Any, expected: Any
) -> None:
    trls = [each or None for each in of_tools] if of_tools else None
    rollouts = SimpleNamespace(_shown=None)

    def generate(prompts: Any) -> tuple[Any, ...]:
        rollouts._shown = shown  # as the rollout function does within
        return "ids", "completions", trls, of_tools

    found = TandemRollouts.with_images(rollouts, generate, ["prompt"])  # type: ignore[arg-type]
    assert found == ("ids", "completions", expected, of_tools)
    assert rollouts._shown is None


def test_the_tool_loop_sees_the_first_turns_images() -> None:
    """TRL's own loop gets none, because it takes a rollout function's prompts for text."""
    loops: list[Any] = []

    def loop(*arguments: Any) -> tuple[Any, ...]:
        loops.append(arguments)
        return [[1]], "messages", [[5]], [[0.0]], 1, 0, [["x"]]

    rollouts = SimpleNamespace(
        _shown=FIRST, _fields={"grid": 1}, _narrowed=lambda *columns: (columns[2], columns[3])
    )
    found = TandemRollouts._tool_loop(
        rollouts,  # type: ignore[arg-type]
        loop,
        *("prompts", [[4]], [[5]], "completions", [[0.0]], None, {}),
    )
    assert loops == [("prompts", [[4]], [[5]], "completions", [[0.0]], FIRST, {"grid": 1})]
    assert found == ([[1]], "messages", [[5]], [[0.0]], 1, 0, [["x"]])
