"""A table of drafts by batch size: the same tokens, in rounds of other lengths, or of none."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import traffic, worker
from support.boundary_ids import word_boundaries
from support.checked_engine import CheckedEngine
from support.engine import AsyncEngine, async_engine, engine_settings, on_runner
from support.models import make_model
from support.records import recorded
from support.reference import Reference, algorithm_1
from support.requests import PROMPTS
from support.speculation import needs_drafting

from tandem_plugin.engine.speculative.draft_stats import DraftStats
from tandem_plugin.engine.wire_names import RPC_DRAFT_STATS

pytestmark = [needs_drafting, pytest.mark.long]

CAP, MOST, LENGTH = 4, 6, 32
TABLE = {1: MOST, 3: 2, 6: 1, 9: 0}


SCHEDULES: list[dict[str, Any]] = [
    {},
    {"p": 0.3, "cap": 9},
    {"schedule": "token"},
    {"schedule": "junior"},
    {"schedule": "solo"},
]


@pytest.fixture(scope="module", params=[False, True], ids=["synchronous", "asynchronous"])
def setup(
    request: pytest.FixtureRequest,
    checkpoints: dict[str, Path],
    tokenizer: Any,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[CheckedEngine]:
    """An engine whose junior is far cheaper than its senior and agrees with it in nothing."""
    folder, record = tmp_path_factory.mktemp("pair"), tmp_path_factory.mktemp("record")
    sizes = {"hidden": 32, "layers": 1, "heads": 1, "kv_heads": 1}
    junior = make_model(folder / "junior", seed=5, tokenizer=tokenizer, **sizes)
    tandem = {
        "cap": CAP, "junior": junior, "mode": "speculative", "drafts": TABLE, "record": record,
    }  # fmt: skip
    senior = checkpoints["senior"]
    with async_engine("v2", senior, tandem, async_scheduling=request.param) as running:
        references = {"senior": Reference(senior, junior)}
        yield CheckedEngine(running, record, tokenizer, {"cap": CAP}, 2 * (MOST + 1), references)


def test_lengths_that_change_at_every_step_change_no_token_and_no_author(
    setup: CheckedEngine, tokenizer: Any
) -> None:
    """0 is one of them: rounds without drafts follow rounds with some, and each other."""
    before = len(setup.call(worker.noted_steps))
    setup.call(worker.note_steps)
    setup.call(worker.vary_drafts)
    try:
        jobs = traffic.greedy_jobs("varied", 16, tokenizer, LENGTH, SCHEDULES, gap=0.05)
        responses = setup.send(jobs)
        sampled = traffic.random_jobs(
            16, tokenizer, 3, longest=LENGTH, arrival=0.05, seeded=True, drafted=True
        )
        others = setup.send(sampled)
        steps = setup.call(worker.noted_steps)[before:]
    finally:
        setup.call(worker.mend_speculation)
    assert {asked for _, _, asked, _ in steps} == set(TABLE.values())
    for response in responses:
        authors = setup.authors(response)()
        expected = setup.references["senior"].greedy(response.job.prompt, LENGTH, authors)
        assert response.token_ids == expected
    setup.check_records(jobs + sampled, responses + others)


async def at_once(engine: Any, jobs: list[traffic.Job]) -> list[traffic.Response]:
    """Send jobs whose first step has them all."""
    await engine.pause_generation(mode="keep")
    sending = asyncio.create_task(traffic.send(engine, jobs, patience=900))
    await asyncio.sleep(2)
    await engine.resume_generation()
    return await sending


def test_each_step_drafts_what_the_table_says_of_its_batch_size_and_repeats(
    setup: CheckedEngine, tokenizer: Any
) -> None:
    """Ten requests of other lengths at once, sampled, twice: batches of ten down to one."""
    before = len(setup.call(worker.noted_steps))
    setup.call(worker.note_steps)
    written, steps = [], []
    try:
        for turn in range(2):
            jobs = []
            for row in range(10):
                prompt = tokenizer(PROMPTS[row % len(PROMPTS)]).input_ids
                sampling = {"max_tokens": 12 + 4 * row, "ignore_eos": True, "seed": row}
                tandem = {"seed": row, "p": 0.3}
                jobs.append(traffic.Job(f"{turn}-{row}", prompt, tandem, sampling, 0.0, None))
            responses = setup.running.run(at_once(setup.running.engine, jobs))
            written.append([response.token_ids for response in responses])
            steps += setup.call(worker.noted_steps)[before + len(steps) :]
    finally:
        setup.call(worker.mend_speculation)
    lengths = [max(k for k in TABLE if k <= size) for size in range(1, 11)]
    assert all(asked == TABLE[lengths[size - 1]] for _, size, asked, _ in steps), steps
    assert {asked for _, _, asked, _ in steps} == set(TABLE.values())
    # What a step checks, the one before asked for: of all requests alike, the last of a response
    # aside, which ends at its longest length.
    checked = {n for _, _, _, numbers in steps for n in numbers}
    assert set(TABLE.values()) - {0} <= checked
    assert written[0] == written[1]


BUDGET, REQUESTS = 64, 12
"""Tokens of a step, of which vLLM gives a request two more than its drafts."""


@pytest.mark.parametrize("asynchronous", [False, True])
def test_no_request_waits_for_the_drafts_of_others_in_a_table_that_fits(
    checkpoints: dict[str, Path], tokenizer: Any, asynchronous: bool
) -> None:
    """A budget that just fits: 7 requests with 5 drafts each, and one more with as many."""
    senior, junior = checkpoints["senior"], checkpoints["other"]
    table = {1: 5, 8: 3, 10: 1}
    tandem = {"cap": CAP, "junior": junior, "mode": "speculative", "drafts": table, "p": 0.1}
    boundaries, reference = word_boundaries(tokenizer), Reference(senior, junior)
    options = {"max_num_batched_tokens": BUDGET, "max_num_seqs": REQUESTS}
    jobs = []
    for seed in range(REQUESTS):
        prompt = tokenizer(PROMPTS[seed % len(PROMPTS)]).input_ids
        sampling = {"max_tokens": LENGTH, "temperature": 0.0, "ignore_eos": True}
        jobs.append(traffic.Job(f"room-{seed}", prompt, {"seed": seed}, sampling, 0.0, None))
    with async_engine("v2", senior, tandem, async_scheduling=asynchronous, **options) as running:

        def call(function: Any) -> Any:
            return running.run(running.engine.collective_rpc(function))[0]

        before = len(call(worker.noted_steps))
        try:
            call(worker.note_steps)
            responses = running.run(traffic.send(running.engine, jobs, patience=900))
            steps = call(worker.noted_steps)[before:]
        finally:
            call(worker.mend_speculation)
    for response in responses:
        asked = response.job.tandem
        assert asked is not None
        loop = algorithm_1(asked["seed"], 0.1, CAP, boundaries)
        assert response.token_ids == reference.greedy(response.job.prompt, LENGTH, loop)
    assert max(scheduled for _, scheduled, _, _ in steps) == REQUESTS, steps
    if not asynchronous:  # else those that are about to end wait as well
        whole = [scheduled for ran, scheduled, _, _ in steps if ran == REQUESTS]
        assert whole.count(REQUESTS) >= len(whole) - 2, steps


def counters(running: AsyncEngine) -> dict[str, int]:
    """The engine's counters of drafting."""
    (found,) = running.run(running.engine.collective_rpc(RPC_DRAFT_STATS))
    return dict(found)


def test_an_llm_says_what_became_of_its_drafts(
    checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    """The sum of what its own record says of each request."""
    from vllm import SamplingParams

    from tandem_plugin.engine import TandemLLM

    tandem = {"mode": "speculative", "junior": str(checkpoints["other"]), "record": str(tmp_path)}
    with on_runner("v2"):
        llm = TandemLLM(str(checkpoints["senior"]), tandem=tandem, **engine_settings(None))
        try:
            assert llm.draft_stats() == DraftStats()
            params = SamplingParams(temperature=1.0, max_tokens=12, ignore_eos=True)
            outputs = llm.generate(PROMPTS, params, tandem=7, use_tqdm=False)
            llm.generate(PROMPTS[0], params, tandem="off", use_tqdm=False)
            seeds = [output.outputs[0].tandem_seed for output in outputs]
            rows = recorded(tmp_path, seeds)
            each = [DraftStats(**rows[seed]["tandem_draft_stats"]) for seed in seeds]
            assert llm.draft_stats() == sum(each, DraftStats())
            assert llm.draft_stats().rounds > 0
        finally:
            llm.llm_engine.engine_core.shutdown()
