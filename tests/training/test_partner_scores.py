"""The junior's log p on its way from an asynchronous engine to a trainer's loss."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tandem_plugin import EngineError
from tandem_plugin.engine.wire_names import TELL_OF_TOKENS, TOKEN_LOG_NAME
from tandem_plugin.training.partner_scores import (
    PARTNER,
    Overheard,
    PartnerScores,
    joined,
    log_probs_of,
)

REQUEST = {"tandem": {"seed": 1}}


class Engine:
    """As AsyncLLM: two workers, of which one knows what was measured; it forgets what it told."""

    def __init__(self, **settings: Any) -> None:
        self.vllm_config = SimpleNamespace(additional_config={"tandem": settings})
        self.known: dict[str, list[list[float]]] = {}
        self.asked: list[list[str]] = []
        self.fails = False

    async def collective_rpc(self, method: str, args: Any) -> Any:
        assert method == TELL_OF_TOKENS
        self.asked.append(args[0])
        await asyncio.sleep(0)
        if self.fails:
            raise RuntimeError("the engine is dead")
        return [{}, {name: self.known.pop(name) for name in args[0] if name in self.known}]

    def writes(self, extra: dict[str, Any], count: int, index: int | None = None) -> float:
        """Let a request have so many tokens; the log p of the first one."""
        name = extra[TOKEN_LOG_NAME] if index is None else f"{extra[TOKEN_LOG_NAME]}/{index}"
        first = -1.0 - len(self.known)
        self.known[name] = [[0.0, first - i, 0.5] for i in range(count)]
        return first


def values(scores: bytes | None) -> list[float]:
    assert scores is not None
    return np.frombuffer(scores, np.float32).tolist()


def test_each_response_has_its_own_and_those_that_end_together_are_asked_for_together() -> None:
    engine = Engine(partner_kl_coef=0.1)
    scores = PartnerScores(engine)
    asked = [scores.named(REQUEST) for _ in range(5)]
    firsts = [engine.writes(extra, 2 + i) for i, extra in enumerate(asked)]

    async def all_of_them() -> list[bytes | None]:
        first = asyncio.create_task(scores.of(asked[0], 2))
        await asyncio.sleep(0)
        rest = [scores.of(extra, 3 + i) for i, extra in enumerate(asked[1:])]
        return [await first, *await asyncio.gather(*rest)]

    for i, found in enumerate(asyncio.run(all_of_them())):
        assert values(found) == [firsts[i] - k for k in range(2 + i)]
    assert len(engine.asked) < len(asked)
    assert sorted(name for names in engine.asked for name in names) == sorted(
        extra[TOKEN_LOG_NAME] for extra in asked
    )


def test_each_sample_of_a_request_has_its_own() -> None:
    engine = Engine(partner_kl_coef=0.1)
    scores = PartnerScores(engine)
    extra = scores.named(REQUEST)
    firsts = [engine.writes(extra, 2, index) for index in range(2)]
    found = [asyncio.run(scores.of(extra, 2, index, samples=2)) for index in range(2)]
    assert [values(one)[0] for one in found] == firsts


@pytest.mark.parametrize(
    ("settings", "request_"),
    [({}, REQUEST), ({"partner_logprobs": True}, REQUEST), ({"partner_kl_coef": 0.1}, {}),
     ({"partner_kl_coef": 0.1}, {"tandem": "off"})],
)  # fmt: skip
def test_nothing_is_kept_that_no_loss_needs(settings: Any, request_: Any) -> None:
    engine = Engine(**settings)
    scores = PartnerScores(engine)
    assert scores.named(request_) == request_
    assert asyncio.run(scores.of(request_, 3)) is None
    assert engine.asked == []


def test_token_behind_the_end_is_dropped_and_one_that_is_missing_is_refused() -> None:
    engine = Engine(partner_kl_coef=0.1)
    scores = PartnerScores(engine)
    for measured in (3, 4):
        extra = scores.named(REQUEST)
        first = engine.writes(extra, measured)
        assert values(asyncio.run(scores.of(extra, 3))) == [first, first - 1, first - 2]
    for measured in (0, 2):
        extra = scores.named(REQUEST)
        engine.writes(extra, measured)
        with pytest.raises(EngineError, match=f"3 tokens, and the engine measured {measured}"):
            asyncio.run(scores.of(extra, 3))


def test_an_engine_that_fails_fails_all_who_wait_and_is_asked_again() -> None:
    engine = Engine(partner_kl_coef=0.1)
    scores = PartnerScores(engine)
    engine.fails = True
    asked = [scores.named(REQUEST) for _ in range(3)]

    async def all_of_them() -> list[Any]:
        waiting = [asyncio.create_task(scores.of(extra, 1)) for extra in asked[:2]]
        await asyncio.sleep(0)
        waiting.append(asyncio.create_task(scores.of(asked[2], 1)))
        return await asyncio.gather(*waiting, return_exceptions=True)

    assert [str(error) for error in asyncio.run(all_of_them())] == ["the engine is dead"] * 3
    engine.fails = False
    extra = scores.named(REQUEST)
    first = engine.writes(extra, 1)
    assert values(asyncio.run(scores.of(extra, 1))) == [first]


def test_parts_of_a_server_are_overheard_in_order_and_joined() -> None:
    answers = iter([b"\0\0\0\0", b"", b"\1\1\1\1"])

    async def remote(**options: Any) -> Any:
        assert options == {"prompt_ids": [1]}
        return SimpleNamespace(extra_fields={PARTNER: next(answers), "other": 1})

    heard: list[bytes | None] = []
    server: Any = SimpleNamespace(generate=SimpleNamespace(remote=remote), name="theirs")
    server = Overheard(server, heard)
    assert server.name == "theirs"
    for _ in range(3):
        assert asyncio.run(server.generate.remote(prompt_ids=[1])).extra_fields == {"other": 1}
    assert joined(heard) == b"\0\0\0\0\1\1\1\1"
    assert joined([b"\0\0\0\0", None]) is None
    assert joined([]) is None


def test_another_number_of_them_than_of_tokens_is_refused() -> None:
    assert log_probs_of(np.float32([-1, -2]).tobytes(), 2).tolist() == [-1, -2]
    with pytest.raises(EngineError, match="brought 3 tokens and the junior's log probability of 2"):
        log_probs_of(np.float32([-1, -2]).tobytes(), 3)
