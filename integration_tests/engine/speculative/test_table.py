"""A table of drafts by batch size: the same tokens, in rounds of other lengths, or of none."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import traffic, worker
from support.checked_engine import CheckedEngine
from support.engine import async_engine
from support.models import make_model
from support.reference import Reference
from support.requests import PROMPTS
from support.speculation import needs_drafting

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
