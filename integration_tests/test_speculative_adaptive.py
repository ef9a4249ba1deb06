"""Drafts whose number follows the load: the same tokens, in rounds of other lengths, or of none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support import traffic, worker
from support.boundary_ids import step_boundaries, word_boundaries
from support.engine import AsyncEngine, async_engine, engine_settings, on_runner
from support.models import make_model
from support.records import recorded
from support.reference import Reference, algorithm_1
from support.speculation import needs_drafting

from tandem_plugin.engine.names import TELL_OF_DRAFTS
from tandem_plugin.engine.speculative.draft_stats import DraftStats

pytestmark = [needs_drafting, pytest.mark.long]

CAP, MOST, LENGTH = 4, 6, 32
PROMPTS = ["import numpy\n", "class Foo(object):\n    def", "return x of the tokens"]


SCHEDULES: list[dict[str, Any]] = [
    {},
    {"p": 0.3, "cap": 9},
    {"schedule": "token"},
    {"schedule": "junior"},
    {"schedule": "solo"},
]


@dataclass
class Setup:
    """An engine whose drafts follow the load, and what it takes to check it."""

    running: AsyncEngine
    reference: Reference
    record: Path

    def call(self, function: Any, *args: Any) -> Any:
        """What a function returns in the engine's worker."""
        return self.running.run(self.running.engine.collective_rpc(function, args=args))[0]


@pytest.fixture(scope="module", params=[False, True], ids=["synchronous", "asynchronous"])
def setup(
    request: pytest.FixtureRequest,
    checkpoints: dict[str, Path],
    tokenizer: Any,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Setup]:
    """An engine whose junior is far cheaper than its senior and agrees with it in nothing."""
    folder, record = tmp_path_factory.mktemp("pair"), tmp_path_factory.mktemp("record")
    sizes = {"hidden": 32, "layers": 1, "heads": 1, "kv_heads": 1}
    junior = make_model(folder / "junior", seed=5, tokenizer=tokenizer, **sizes)
    tandem = {
        "cap": CAP, "junior": junior, "mode": "speculative", "num_draft_tokens": MOST,
        "adaptive_drafts": True, "record": record,
    }  # fmt: skip
    senior = checkpoints["senior"]
    with async_engine("v2", senior, tandem, async_scheduling=request.param) as running:
        yield Setup(running, Reference(senior, junior), record)


def test_lengths_that_change_at_every_step_change_no_token_and_no_author(
    setup: Setup, tokenizer: Any
) -> None:
    """0 is one of them: rounds without drafts follow rounds with some, and each other."""
    count = len(setup.call(worker.varied_lengths))
    setup.call(worker.vary_drafts)
    try:
        jobs = traffic.greedy_jobs("varied", 16, tokenizer, LENGTH, SCHEDULES, gap=0.05)
        responses = setup.running.run(traffic.send(setup.running.engine, jobs, patience=900))
        sampled = traffic.random_jobs(
            16, tokenizer, 3, longest=LENGTH, arrival=0.05, seeded=True, drafted=True
        )
        others = setup.running.run(traffic.send(setup.running.engine, sampled, patience=900))
        last = traffic.Job("last", [5, 6], None, {"max_tokens": 2}, 0.0, None)
        setup.running.run(traffic.send(setup.running.engine, [last], patience=300))
        lengths = setup.call(worker.varied_lengths)[count:]
    finally:
        setup.call(worker.mend_speculation)
    assert set(lengths) == {0, 1, 2, 4, MOST}
    words, steps = word_boundaries(tokenizer), step_boundaries(tokenizer)
    for response in responses:
        authors = traffic.authors_by_plain_loop(response.job.tandem, {"cap": CAP}, words, steps)
        expected = setup.reference.greedy(response.job.prompt, LENGTH, authors())
        assert response.token_ids == expected
    rules = traffic.make_rules(tokenizer, {"cap": CAP})
    report = traffic.check(
        jobs + sampled, responses + others, rules, setup.record, spare=2 * (MOST + 1)
    )
    assert (report.lost, report.mismatches) == ([], [])


def test_fewer_tokens_are_drafted_where_few_hold_and_the_responses_stay(
    setup: Setup, tokenizer: Any
) -> None:
    """On a machine whose steps take what is said here: no test depends on this one's speed."""
    running, reference = setup.running, setup.reference
    setup.call(worker.give_lengths_a_price, 1.0, 0.1)
    means = []
    try:
        # The turns between are what the engine learns by: rounds are remembered for a while, and
        # every length is looked at before it is known.
        for turn, p in enumerate((0.1, 0.9, 0.9, 0.9)):
            before = len(setup.call(worker.varied_lengths))
            jobs = []
            for seed in range(turn * 100, turn * 100 + 12):
                prompt = tokenizer(PROMPTS[seed % len(PROMPTS)]).input_ids
                sampling = {"max_tokens": LENGTH, "temperature": 0.0, "ignore_eos": True}
                tandem = {"seed": seed, "p": p}
                jobs.append(traffic.Job(f"adaptive-{seed}", prompt, tandem, sampling, 0.0, None))
            for response in running.run(traffic.send(running.engine, jobs, patience=900)):
                asked = response.job.tandem
                assert asked is not None
                loop = algorithm_1(asked["seed"], p, CAP, word_boundaries(tokenizer))
                expected = reference.greedy(response.job.prompt, LENGTH, loop)
                assert response.token_ids == expected
            chosen = setup.call(worker.varied_lengths)[before:]
            means.append(sum(chosen) / len(chosen))
    finally:
        setup.call(worker.mend_speculation)
    # The junior's own drafts, nearly all of the first, all stand; the senior, who writes nearly all
    # of the others, takes almost none.
    assert means[-1] < means[0] / 2, means


BUDGET, REQUESTS = 64, 12
"""Tokens of a step, of which vLLM gives a request two more than its drafts."""


@pytest.mark.parametrize("asynchronous", [False, True])
def test_no_drafts_are_asked_for_that_a_step_has_no_room_for(
    checkpoints: dict[str, Path], tokenizer: Any, tmp_path: Path, asynchronous: bool
) -> None:
    """Else some requests would wait, and steps never be alike; the longest come with room again."""
    senior, junior = checkpoints["senior"], checkpoints["other"]
    tandem = {
        "cap": CAP, "junior": junior, "mode": "speculative", "num_draft_tokens": MOST,
        "adaptive_drafts": True, "record": tmp_path, "p": 0.1,
    }  # fmt: skip
    boundaries, reference = word_boundaries(tokenizer), Reference(senior, junior)
    options = {"max_num_batched_tokens": BUDGET, "max_num_seqs": 16}

    def steps(running: AsyncEngine, turn: int) -> list[tuple[int, int, int]]:
        jobs = []
        for row in range(REQUESTS):
            prompt = tokenizer(PROMPTS[row % len(PROMPTS)]).input_ids
            length = LENGTH if row % 2 else 2 * LENGTH
            sampling = {"max_tokens": length, "temperature": 0.0, "ignore_eos": True}
            seed = turn * REQUESTS + row
            jobs.append(traffic.Job(f"room-{seed}", prompt, {"seed": seed}, sampling, 0.0, None))
        before = len(call(worker.noted_steps))
        for response in running.run(traffic.send(running.engine, jobs, patience=900)):
            asked, length = response.job.tandem, response.job.sampling["max_tokens"]
            assert asked is not None
            loop = algorithm_1(asked["seed"], 0.1, CAP, boundaries)
            assert response.token_ids == reference.greedy(response.job.prompt, length, loop)
        return list(call(worker.noted_steps))[before:]

    with async_engine("v2", senior, tandem, async_scheduling=asynchronous, **options) as running:

        def call(function: Any, *args: Any) -> Any:
            return running.run(running.engine.collective_rpc(function, args=args))[0]

        try:
            # Drafts cost next to nothing here, so that the most there is room for are the best.
            call(worker.give_lengths_a_price, 1.0, 0.001)
            call(worker.note_steps)
            found = steps(running, 0)
            call(worker.always_draft_the_most)
            others = steps(running, 1)
        finally:
            call(worker.mend_speculation)
    if not asynchronous:  # else those that are about to end wait as well
        assert all(scheduled == ran for ran, scheduled, _ in found), found
    assert all(not asked or ran * (asked + 2) <= BUDGET for ran, _, asked in found)
    assert max(asked for ran, _, asked in found if ran == REQUESTS) == 2
    assert MOST in {asked for ran, _, asked in found if ran * (MOST + 2) <= BUDGET}
    assert any(scheduled < ran for ran, scheduled, _ in others)


def counters(running: AsyncEngine) -> dict[str, int]:
    """The engine's counters of drafting."""
    (found,) = running.run(running.engine.collective_rpc(TELL_OF_DRAFTS))
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
