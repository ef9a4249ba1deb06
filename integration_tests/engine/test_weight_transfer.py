"""vLLM's own weight transfer: the senior is updated while the engine pauses, the junior never."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support import traffic, worker
from support.checked_engine import CheckedEngine
from support.engine import async_engine
from support.reference import Reference
from support.speculation import ENGINES, needs_drafting
from support.weight_transfer import ARGUMENTS, chunks

from tandem_plugin.config import DEFAULT_DRAFT_TOKENS

pytestmark = [needs_drafting, pytest.mark.long]  # the life cycle of vLLM 0.29
SETTINGS = {"schedule": "word", "cap": 4}
SCHEDULES: list[dict[str, Any]] = [
    {"schedule": "word"},
    {"schedule": "token"},
    {"schedule": "junior"},
    {"schedule": "solo"},
]
SENIORS = {"senior": "senior", "other senior": "junior"}
"""Checkpoints of one shape."""


@pytest.fixture(scope="module", params=ENGINES, ids="-".join)
def engine(
    request: pytest.FixtureRequest,
    checkpoints: dict[str, Path],
    tokenizer: Any,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[CheckedEngine]:
    """A junior of another shape than the seniors."""
    (runner, mode), record = request.param, tmp_path_factory.mktemp("record")
    tandem = {**SETTINGS, "mode": mode, "junior": checkpoints["other"], "record": record}
    references = {
        senior: Reference(checkpoints[name], checkpoints["other"])
        for senior, name in SENIORS.items()
    }
    spare = 2 * (DEFAULT_DRAFT_TOKENS + 1) if mode == "speculative" else 1
    with async_engine(
        runner, checkpoints["senior"], tandem, async_scheduling=False, **ARGUMENTS
    ) as running:
        yield CheckedEngine(running, record, tokenizer, SETTINGS, spare, references)


def update(engine: CheckedEngine, updates: Sequence[dict[str, Any]], *, layerwise: bool) -> Any:
    """One session, from the handshake to its end."""
    from vllm.distributed.weight_transfer.base import (
        WeightTransferInitRequest,
        WeightTransferUpdateRequest,
    )

    async def session(llm: Any) -> None:
        await llm.init_weight_transfer_engine(WeightTransferInitRequest({"layerwise": layerwise}))
        await llm.start_weight_update()
        for one in updates:
            await llm.update_weights(WeightTransferUpdateRequest(one))
        await llm.finish_weight_update()

    return session(engine.running.engine)


def jobs(engine: CheckedEngine, name: str, count: int = 8, length: int = 10) -> list[traffic.Job]:
    return traffic.greedy_jobs(name, count, engine.tokenizer, length, SCHEDULES, gap=0.0)


@pytest.mark.parametrize("layerwise", [True, False], ids=["layerwise", "in-place"])
def test_each_update_makes_the_senior_another_and_leaves_every_bit_of_the_junior(
    engine: CheckedEngine, checkpoints: dict[str, Path], tmp_path: Path, layerwise: bool
) -> None:
    """Three chunks that cut through layers; the last update makes it what a fresh engine is."""
    run, llm = engine.running.run, engine.running.engine
    fresh, junior = engine.call(worker.senior_digest), engine.call(worker.junior_digest)
    for number, senior in enumerate(("other senior", "senior", "other senior", "senior")):
        run(llm.pause_generation())
        run(update(engine, chunks(checkpoints[SENIORS[senior]], tmp_path, 3), layerwise=layerwise))
        run(llm.resume_generation())
        assert engine.call(worker.junior_digest) == junior
        assert (engine.call(worker.senior_digest) == fresh) is (senior == "senior")
        sent = jobs(engine, f"{number}-{layerwise}")
        responses = engine.send(sent)
        engine.check_greedy(responses, senior)
        engine.check_records(sent, responses)
        (other,) = SENIORS.keys() - {senior}
        assert len(engine.differing(responses, other)) > 4


@pytest.mark.parametrize("mode", ["keep", "wait", "abort"])
def test_requests_in_flight_keep_their_authors_while_the_senior_is_updated(
    engine: CheckedEngine, checkpoints: dict[str, Path], tmp_path: Path, mode: str
) -> None:
    run, llm = engine.running.run, engine.running.engine
    sent = jobs(engine, f"{mode} in flight", 12, 40)

    async def paused_in_flight() -> list[traffic.Response]:
        sending = asyncio.create_task(traffic.send(llm, sent, 300))
        await _tokens(llm, 8)
        await llm.pause_generation(mode=mode)
        assert await llm.is_paused()
        await update(
            engine, chunks(checkpoints[SENIORS["other senior"]], tmp_path, 3), layerwise=True
        )
        await llm.resume_generation()
        return await sending

    junior = engine.call(worker.junior_digest)
    responses = run(paused_in_flight())
    run(update(engine, chunks(checkpoints["senior"], tmp_path, 3), layerwise=True))
    run(llm.reset_prefix_cache())
    engine.send(jobs(engine, f"after {mode}", 1))  # the engine tells its runner of the last ends
    assert engine.call(worker.junior_digest) == junior
    engine.check_records(sent, responses)
    ended = {response.finish_reason for response in responses}
    assert ended == ({"abort"} if mode == "abort" else {"length"})
    of_the_junior = [one for one in responses if one.job.tandem["schedule"] == "junior"]
    engine.check_greedy(of_the_junior)
    # Only a request that was kept has tokens of both seniors.
    assert bool(engine.differing(responses)) is (mode == "keep")


async def _tokens(llm: Any, count: int) -> None:
    """Wait until one more request has this many tokens."""
    from vllm import SamplingParams

    params = SamplingParams(max_tokens=2 * count, ignore_eos=True)
    async for output in llm.generate({"prompt_token_ids": [5, 6]}, params, f"pace-{id(params)}"):
        if len(output.outputs[0].token_ids) >= count:
            return


def test_an_update_of_the_draft_model_is_rejected_and_the_junior_stays(
    engine: CheckedEngine, checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    """In lockstep vLLM itself knows no draft model."""
    junior, call = engine.call(worker.junior_digest), engine.running.engine.collective_rpc
    (chunk,) = chunks(checkpoints["other"], tmp_path, 1)

    async def update_of_the_draft() -> None:
        await call("start_draft_weight_update")
        await call("update_weights", kwargs={"update_info": chunk})

    with pytest.raises(Exception, match=r"draft-weights-sent|draft model|get_draft_model"):
        engine.running.run(update_of_the_draft())
    assert engine.call(worker.junior_digest) == junior
    sent = jobs(engine, "after the draft")
    engine.check_greedy(engine.send(sent))
