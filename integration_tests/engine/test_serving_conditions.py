"""Exact under load: preemption, chunked prefill, prefix hits, aborts, pauses, every parameter."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support import traffic, worker
from support.checked_engine import TIGHT, CheckedEngine
from support.engine import async_engine
from support.metrics import metric
from support.reference import Reference
from support.speculation import needs_drafting

pytestmark = pytest.mark.long

DRAFTS = 4
SETTINGS = {"schedule": "word", "cap": 4}
SCHEDULES: list[dict[str, Any]] = [{}, {"p": 0.3, "cap": 9}, {"schedule": "token"}]
ALONE: list[dict[str, Any]] = [{"schedule": "junior"}, {"schedule": "solo"}]
LONG = [needs_drafting, pytest.mark.long]
ENGINES = [
    ("v1", "lockstep", "synchronous"),
    # Without asynchronous scheduling it is what test_engine.py runs.
    ("v2", "lockstep", "asynchronous"),
    pytest.param(("v2", "speculative", "synchronous"), marks=LONG),
    pytest.param(("v2", "speculative", "asynchronous"), marks=LONG),
]


@dataclass
class Setup(CheckedEngine):
    """An engine with little memory."""

    runner: str = ""
    mode: str = ""

    def jobs(self, name: str, count: int, length: int, *more: dict[str, Any]) -> list[traffic.Job]:
        """Greedy jobs at once; more: further schedules than those that choose by boundaries."""
        schedules = [*SCHEDULES, *more]
        return traffic.greedy_jobs(name, count, self.tokenizer, length, schedules, gap=0.0)


@pytest.fixture(scope="module", params=ENGINES, ids="-".join)
def setup(
    request: pytest.FixtureRequest,
    checkpoints: dict[str, Path],
    tokenizer: Any,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Setup]:
    runner, mode, scheduling = request.param
    is_async = scheduling == "asynchronous"
    senior, junior = checkpoints["senior"], checkpoints["other"]
    record = tmp_path_factory.mktemp("record")
    tandem = {**SETTINGS, "junior": junior, "record": record, "mode": mode}
    if mode == "speculative":
        tandem["drafts"] = DRAFTS
    spare = 2 * (DRAFTS + 1) if mode == "speculative" else int(is_async)
    references = {"senior": Reference(senior, junior)}
    with async_engine(runner, senior, tandem, async_scheduling=is_async, **TIGHT) as running:
        yield Setup(running, record, tokenizer, SETTINGS, spare, references, runner, mode)


def test_random_traffic_keeps_every_authorship(setup: Setup) -> None:
    """Sampling parameters, lengths, arrivals and aborts at random, on schedules of all kinds."""
    count, longest = (160, 60) if setup.runner == "v1" else (32, 24)
    before = metric("vllm:num_preemptions_total")
    hits = metric("vllm:prefix_cache_hits_total")
    jobs = traffic.random_jobs(
        count, setup.tokenizer, 1, longest=longest, arrival=0.01, seeded=setup.runner != "v1",
        drafted=setup.mode == "speculative",
    )  # fmt: skip
    responses = setup.send(jobs)
    report = setup.report(jobs, responses)
    assert (report.lost, report.mismatches) == ([], [])
    assert report.aborted > 0
    assert {"length", "stop"} <= set(report.finished)
    assert metric("vllm:prefix_cache_hits_total") > hits
    assert metric("vllm:num_preemptions_total") > before
    plain = list(traffic.plain_greedy(responses))[:12]
    assert plain
    setup.check_greedy(plain, straying=len(plain) // 10 + 1)


def test_preempted_requests_resume_with_their_authors(setup: Setup) -> None:
    before = metric("vllm:num_preemptions_total")
    jobs = setup.jobs("preempted", 8, 150 if setup.runner == "v1" else 100, *ALONE)
    responses = setup.send(jobs)
    assert metric("vllm:num_preemptions_total") > before
    setup.check_greedy(responses, straying=1)
    setup.check_records(jobs, responses)


def test_a_prompt_longer_than_a_step_is_prefilled_in_chunks(setup: Setup) -> None:
    jobs = setup.jobs("chunked", 4, 12, *ALONE)
    for i, job in enumerate(jobs):
        job.prompt = (job.prompt * 200)[: 150 + i]
    assert len(jobs[0].prompt) > 2 * TIGHT["max_num_batched_tokens"]
    responses = setup.send(jobs)
    setup.check_greedy(responses, straying=1)
    setup.check_records(jobs, responses)


def test_a_cached_prompt_but_for_its_last_token_begins_with_its_author(setup: Setup) -> None:
    """vLLM pads such a request with placeholders for drafts where others are decoding."""
    block, hits = TIGHT["block_size"], metric("vllm:prefix_cache_hits_total")
    (first,) = setup.jobs("cached", 1, 2)
    first.prompt = (first.prompt * 200)[: 2 * block + 1]
    setup.send([first])
    decoding, jobs = setup.jobs("decoding", 2, 40), setup.jobs("again cached", 12, 6, *ALONE)
    for i, job in enumerate(jobs):
        job.prompt, job.delay = first.prompt[:], 0.5 + 0.2 * i
    responses = setup.send([*decoding, *jobs])
    assert metric("vllm:prefix_cache_hits_total") >= hits + 2 * block * len(jobs)
    setup.check_greedy(responses, straying=1)
    setup.check_records([*decoding, *jobs], responses)


def test_a_response_goes_on_up_to_the_longest_that_the_engine_reads(setup: Setup) -> None:
    """Where drafts no longer fit, tokens that nobody drafted come from their author."""
    jobs = setup.jobs("longest", 3, 400)
    for job in jobs:
        job.prompt = (job.prompt * 300)[:232]
        job.sampling["max_tokens"] = None
    responses = setup.send(jobs)
    assert [len(r.job.prompt) + len(r.token_ids) for r in responses] == [256] * len(jobs)
    setup.check_greedy(responses, straying=1)
    setup.check_records(jobs, responses)


def test_an_aborted_request_sent_again_is_written_as_if_nothing_had_happened(setup: Setup) -> None:
    jobs = setup.jobs("aborted", 4, 24)
    for job in jobs:
        job.abort_after = 5
    cut = setup.send(jobs)
    assert all(len(response.token_ids) < 24 for response in cut)
    for job in jobs:
        job.abort_after, job.name = None, "second-" + job.name
    whole = setup.send(jobs)
    setup.check_greedy(whole, straying=1)
    for first, second in zip(cut, whole, strict=True):
        assert second.token_ids[: len(first.token_ids)] == first.token_ids


@pytest.mark.parametrize("how", ["keep", "wait", "abort"])
def test_generation_goes_on_after_a_pause(setup: Setup, how: str) -> None:
    """keep freezes what runs and lets it go on; wait lets it finish; abort ends it."""
    engine, jobs, late = (
        setup.running.engine, setup.jobs(f"{how} pause", 3, 40), setup.jobs(f"{how} late", 2, 8),
    )  # fmt: skip

    async def paused() -> tuple[list[traffic.Response], list[traffic.Response]]:
        running = asyncio.create_task(traffic.send(engine, jobs, patience=300))
        await asyncio.sleep(0.3)
        await engine.pause_generation(mode=how, clear_cache=how != "keep")
        waiting = asyncio.create_task(traffic.send(engine, late, patience=300))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        await engine.resume_generation()
        return await running, await waiting

    responses, later = setup.running.run(paused())
    if how == "abort":
        responses = [response for response in responses if response.token_ids]
    else:
        assert [len(response.token_ids) for response in responses] == [40] * 3
    setup.check_greedy([*responses, *later], straying=1)


def test_a_weight_sync_in_the_middle_of_responses_leaves_their_authors(
    setup: Setup, checkpoints: dict[str, Path]
) -> None:
    engine, jobs = setup.running.engine, setup.jobs("synced", 3, 40)
    for job in jobs:
        job.sampling["temperature"] = 1.0

    async def digests() -> tuple[Any, Any]:
        found = [
            await engine.collective_rpc(one) for one in (worker.senior_digest, worker.junior_digest)
        ]
        return found[0], found[1]

    async def synced() -> list[traffic.Response]:
        running = asyncio.create_task(traffic.send(engine, jobs, patience=300))
        await asyncio.sleep(0.3)
        await engine.pause_generation(mode="keep", clear_cache=False)
        senior, junior = await digests()
        await engine.collective_rpc(worker.sync, args=(str(checkpoints["junior"]), 7))
        await engine.reset_prefix_cache()
        other, kept = await digests()
        assert (other != senior, kept == junior) == (True, True)
        await engine.resume_generation()
        responses = await running
        await engine.collective_rpc(worker.sync, args=(str(checkpoints["senior"]), 7))
        await engine.reset_prefix_cache()
        assert await digests() == (senior, junior)
        return responses

    responses = setup.running.run(synced())
    setup.send(setup.jobs("behind the sync", 1, 2))
    setup.check_records(jobs, responses)
    assert [len(response.token_ids) for response in responses] == [40] * 3


def test_structured_output_and_authors_go_together(setup: Setup) -> None:
    from vllm.sampling_params import StructuredOutputsParams

    if setup.mode == "speculative":
        pytest.skip("it is rejected there")
    pattern = r"[ab]{3}-[0-9]{4}"
    jobs = setup.jobs("structured", 6, 24)
    for job in jobs:
        job.sampling |= {"temperature": 1.0, "ignore_eos": False}
        job.sampling["structured_outputs"] = StructuredOutputsParams(regex=pattern)
    responses = setup.send(jobs)
    for response in responses:
        text = setup.tokenizer.decode(response.token_ids, skip_special_tokens=True)
        assert re.fullmatch(pattern, text), text
    setup.check_records(jobs, responses)
