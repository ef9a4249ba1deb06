"""Tandem engines under CUDA graphs, in both modes and on both model runners.

Without a GPU by ``support/graphs``: vLLM captures and replays as on one, piecewise where prompts
and decoding mix, and whole steps where all decode.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import vllm
from packaging.version import Version
from support import gpu_worker, traffic, worker
from support.checked_engine import TIGHT, CheckedEngine
from support.device import graph_arguments, is_gpu, on_gpu
from support.engine import Restarted, async_engine
from support.graphs import with_graphs
from support.metrics import metric
from support.parity import reference_of
from support.speculation import needs_drafting

from tandem_plugin.config import DEFAULT_DRAFT_TOKENS

pytestmark = pytest.mark.skipif(
    Version(vllm.__version__) < Version("0.29"),
    reason="the stand-in for CUDA graphs fits vLLM 0.29 and newer",
)

TANDEM = {"schedule": "word", "cap": 4}
SCHEDULES: list[dict[str, Any]] = [
    {},
    {"p": 0.3, "cap": 9},
    {"schedule": "token"},
    {"schedule": "junior"},
    {"schedule": "solo"},
]
WHOLE = "FULL_AND_PIECEWISE"
LONG = pytest.mark.long
# A junior of the senior's width fits exactly into the memory that the senior's graphs gave back.
ENGINES = [
    # As users have them: what shows most comes first.
    on_gpu("v2", "lockstep", "other", WHOLE, "bfloat16"),
    on_gpu("v2", "speculative", "other", WHOLE, "bfloat16", gib=5),
    on_gpu("v2", "streams", "junior", WHOLE, "bfloat16"),
    on_gpu("v1", "lockstep", "junior", WHOLE, "bfloat16"),
    on_gpu("v2", "lockstep", "junior", "eager", "float32", marks=[LONG]),
    on_gpu("v2", "speculative", "junior", "PIECEWISE", "float32", gib=5, marks=[LONG]),
    on_gpu("v1", "lockstep", "other", WHOLE, "float32", marks=[LONG]),
    ("v1", "lockstep", "junior", WHOLE, "float32"),
    pytest.param(("v2", "lockstep", "other", WHOLE, "float32"), marks=LONG),
    # Juniors of the senior's shape, which would share its attention metadata.
    ("v1", "streams", "junior", WHOLE, "float32"),
    pytest.param(("v2", "streams", "junior", WHOLE, "float32"), marks=LONG),
    pytest.param(("v2", "streams", "other", WHOLE, "float32"), marks=LONG),
    pytest.param(("v2", "speculative", "other", WHOLE, "float32"), marks=[needs_drafting, LONG]),
    # Drafts of another number at every batch size, or none.
    pytest.param(("v2", "table", "other", WHOLE, "float32"), marks=[needs_drafting, LONG]),
    pytest.param(("v1", "lockstep", "other", "PIECEWISE", "float32"), marks=LONG),
]


@dataclass
class Setup(CheckedEngine):
    """An engine under CUDA graphs."""

    runner: str = ""
    mode: str = ""
    kinds: tuple[str, ...] = ()
    """Of graphs."""

    def replays(self) -> dict[str, int]:
        """How many graphs of each kind that this engine has were replayed since its start."""
        if is_gpu():
            return {"any": self.call(gpu_worker.replays)} if self.kinds != ("eager",) else {}
        counts: dict[str, int] = self.call(worker.graph_replays)
        kinds = [*self.kinds, "ROUND"] if self.mode == "speculative" else self.kinds
        return {kind: counts[kind] for kind in kinds}


@pytest.fixture(scope="module", params=ENGINES, ids="-".join)
def engines(
    request: pytest.FixtureRequest,
    checkpoints: dict[str, Path],
    tokenizer: Any,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Restarted[Setup]]:
    runner, mode, junior, kinds, dtype = request.param
    record = tmp_path_factory.mktemp("record")
    # Every step is measured, so that a host that waits for it is noticed.
    tandem = {**TANDEM, "junior": checkpoints[junior], "record": record, "mode": mode}
    tandem["measure_every"] = 1
    if mode == "streams":
        tandem |= {"mode": "lockstep", "junior_stream": True}
    if mode == "table":
        mode = "speculative"
        tandem |= {"mode": mode, "drafts": {1: DEFAULT_DRAFT_TOKENS, 3: 2, 5: 1, 7: 0}}
    references = {
        senior: reference_of(checkpoints[senior], checkpoints[junior], dtype)
        for senior in ("senior", "junior")
    }
    spare = 2 * (DEFAULT_DRAFT_TOKENS + 1) if mode == "speculative" else 1

    @contextmanager
    def start() -> Iterator[Setup]:
        with (
            nullcontext(graph_arguments(kinds)) if is_gpu() else with_graphs(kinds) as graphs,
            async_engine(
                runner,
                checkpoints["senior"],
                tandem,
                async_scheduling=None if is_gpu() else runner == "v2",
                **{**TIGHT, "dtype": dtype, **graphs},
            ) as running,
        ):
            checked = running, record, tokenizer, TANDEM, spare, references
            setup = Setup(*checked, runner, mode, tuple(kinds.split("_AND_")))
            if is_gpu():
                setup.call(gpu_worker.count_replays)
            yield setup

    found = Restarted(start, lambda setup: setup.running.engine.errored)
    yield found
    found.close()


@pytest.fixture
def setup(engines: Restarted[Setup]) -> Setup:
    return engines.get()


@pytest.fixture
def _stand_in() -> None:
    if is_gpu():
        pytest.skip("exact only on the stand-in for CUDA graphs")


def greedy_jobs(setup: Setup, name: str, count: int, length: int, gap: float) -> list[traffic.Job]:
    """Greedy jobs of different prompts, seeds and schedules that arrive one after the other."""
    return traffic.greedy_jobs(name, count, setup.tokenizer, length, SCHEDULES, gap=gap)


def test_greedy_responses_equal_a_hugging_face_loop_where_prompts_and_decoding_mix(
    setup: Setup,
) -> None:
    """Twenty requests in eight places: prompts come in while others decode, and some decode alone.

    Batches are padded to the sizes that graphs were captured for.
    """
    before = setup.replays()
    jobs = greedy_jobs(setup, "mixed", 20, 12, gap=0.02)
    responses = setup.send(jobs)
    assert [len(response.token_ids) for response in responses] == [12] * len(jobs)
    setup.check_greedy(responses)
    setup.check_records(jobs, responses)
    assert all(count > before[kind] for kind, count in setup.replays().items())


def test_whole_graphs_run_the_junior_on_its_own_stream_where_it_is_asked_for(setup: Setup) -> None:
    if setup.mode == "speculative":
        pytest.skip("its models run at different steps")
    asked = setup.mode == "streams"
    assert setup.call(worker.has_junior_stream) is asked
    if not is_gpu():
        assert (setup.call(worker.forked_captures) > 0) is asked


def test_preempted_requests_resume_with_their_authors(setup: Setup) -> None:
    before = metric("vllm:num_preemptions_total")
    jobs = greedy_jobs(setup, "preempted", 8, 100 if setup.runner == "v1" else 60, gap=0.0)
    for job in jobs:
        job.prompt = (job.prompt * 60)[:50]
    responses = setup.send(jobs)
    assert metric("vllm:num_preemptions_total") > before
    setup.check_greedy(responses, straying=1)
    setup.check_records(jobs, responses)


def test_prompts_longer_than_a_step_are_prefilled_while_others_decode(setup: Setup) -> None:
    jobs = greedy_jobs(setup, "chunked", 6, 12, gap=0.05)
    for i, job in enumerate(jobs[1::2]):
        job.prompt = (job.prompt * 200)[: 140 + i]
    responses = setup.send(jobs)
    setup.check_greedy(responses, straying=1)
    setup.check_records(jobs, responses)


def test_each_weight_sync_reaches_the_graphs(setup: Setup, checkpoints: dict[str, Path]) -> None:
    """They compute with the memory of the senior's parameters, whatever is loaded into it."""
    for number, (senior, processed) in enumerate([("junior", False), ("senior", True)]):
        setup.call(worker.sync, str(checkpoints[senior]), 5, processed)
        setup.reset_prefix_cache()
        responses = setup.send(greedy_jobs(setup, f"{number} synced", 8, 10, gap=0.02))
        setup.check_greedy(responses, senior)
        other = {"senior": "junior", "junior": "senior"}[senior]
        assert len(setup.differing(responses, other)) > 4


@pytest.mark.usefixtures("_stand_in")
def test_prompt_logprobs_are_the_seniors_while_others_decode(setup: Setup) -> None:
    from vllm import SamplingParams

    async def prompt_logprobs(prompt: list[int]) -> list[Any]:
        params = SamplingParams(
            max_tokens=1,
            prompt_logprobs=0,
            extra_args={"tandem": {"seed": 1, "schedule": "junior"}},
        )
        await asyncio.sleep(0.3)
        async for output in setup.running.engine.generate(
            {"prompt_token_ids": prompt}, params, f"prompt-{len(prompt)}"
        ):
            found = output.prompt_logprobs
        return found

    async def beside(jobs: list[traffic.Job], prompts: list[list[int]]) -> list[list[Any]]:
        others = asyncio.create_task(traffic.send(setup.running.engine, jobs, patience=600))
        found = await asyncio.gather(*[prompt_logprobs(prompt) for prompt in prompts])
        await others
        return found

    jobs = greedy_jobs(setup, "decoding", 4, 40, gap=0.0)
    prompts = [jobs[0].prompt * 9 + [n] for n in (7, 8)]
    prompts = [prompt[-90 - 10 * i :] for i, prompt in enumerate(prompts)]
    for prompt, found in zip(prompts, setup.running.run(beside(jobs, prompts)), strict=True):
        for t in range(1, len(prompt)):
            logits = setup.references["senior"].logits(True, prompt[:t])
            expected = float(logits.log_softmax(-1)[prompt[t]])
            assert found[t][prompt[t]].logprob == pytest.approx(expected, abs=2e-4)


def test_random_traffic_keeps_every_authorship(setup: Setup) -> None:
    """Sampling parameters, lengths, arrivals and aborts at random, on schedules of all kinds."""
    count = 300 if is_gpu() else 120 if setup.runner == "v1" else 24
    jobs = traffic.random_jobs(
        count, setup.tokenizer, 5, longest=20, arrival=0.01, seeded=setup.runner == "v2",
        drafted=setup.mode == "speculative",
    )  # fmt: skip
    responses = setup.send(jobs)
    setup.check_records(jobs, responses)


@pytest.fixture
def joined_afterwards(setup: Setup) -> Iterator[None]:
    """Lockstep as it must not be: the senior's hidden states are read after the junior ran."""
    setup.call(worker.join_afterwards)
    yield
    setup.call(worker.join_as_before)


@pytest.mark.usefixtures("_stand_in", "joined_afterwards")
def test_an_engine_that_reads_the_seniors_states_after_the_juniors_graphs_is_noticed(
    setup: Setup,
) -> None:
    if setup.mode == "speculative":
        pytest.skip("its models run at different steps")
    responses = setup.send(greedy_jobs(setup, "joined afterwards", 8, 8, gap=0.02))
    of_the_senior = [r for r in responses if r.job.tandem.get("schedule") == "solo"]
    assert of_the_senior
    assert len(setup.differing(of_the_senior)) == len(of_the_senior)


@pytest.fixture
def _noticed(setup: Setup) -> None:
    """From now on a step that waits for the device is an error, as it is on the stand-in."""
    if is_gpu() and setup.runner == "v1":
        pytest.skip("on Model Runner V1 a step's authors come from the host")
    if is_gpu():
        setup.call(gpu_worker.refuse_waiting)


@pytest.mark.usefixtures("_noticed")
def test_no_step_waits_for_the_device(setup: Setup) -> None:
    jobs = greedy_jobs(setup, "not waiting", 16, 12, gap=0.02)
    responses = setup.send(jobs)
    setup.check_greedy(responses)
    setup.check_records(jobs, responses)


def test_a_step_that_waits_for_the_device_is_noticed(
    setup: Setup, request: pytest.FixtureRequest
) -> None:
    """The last test of an engine, which ends by it."""
    setup.call(worker.wait_for_the_authors)
    request.getfixturevalue("_noticed")
    jobs = greedy_jobs(setup, "waiting", 1, 2, gap=0.0)
    with pytest.raises(Exception, match="EngineCore encountered an issue"):
        setup.send(jobs)
