"""TRL's trainer with a plain ``vllm serve`` in tandem: one request for each prompt."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl.scripts", reason="TRL is not installed")

from support.records import all_records
from support.server import Server, vllm_server
from support.trainer_run import assert_stopped
from support.trl_run import TRLBench, TRLRun
from support.trl_tools import expected_of, log_probs_of_both, settle_server
from support.weight_transfer import SERVER_OPTIONS

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]
BENCH, SEED = TRLBench, 7
RULES = {"schedule": "word", "cap": 3}
OPTIONS = (
    # vLLM's runner V1 cannot draw with a request's own seed for parts of a prompt on a CPU.
    *("--no-enable-chunked-prefill", "--max-num-batched-tokens", "4096"),
    *("--enforce-eager", "--dtype", "float32", "--max-model-len", "1024"),
    *("--gpu-memory-utilization", "0.1", "--logprobs-mode", "processed_logprobs"),
)
DEVELOPMENT = {"VLLM_SERVER_DEV_MODE": "1"}
BATCHES = {"per_device_train_batch_size": 8, "learning_rate": 1e-3, "max_completion_length": 144}
TURNS = {"generation_kwargs": {"max_tokens": 8}}


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("record")


@pytest.fixture(scope="module")
def server(
    checkpoints: dict[str, Path], record: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    settings = {**RULES, "junior": str(checkpoints["junior"]), "record": str(record)}
    log = tmp_path_factory.mktemp("server") / "log"
    with vllm_server(
        checkpoints["senior"],
        {**settings, "measure_every": 1},
        log,
        *OPTIONS,
        *SERVER_OPTIONS,
        as_module=True,
        environment=DEVELOPMENT,
    ) as running:
        yield running


@pytest.fixture(scope="module")
def settings(checkpoints: dict[str, Path]) -> dict[str, Any]:
    return {**RULES, "junior": str(checkpoints["junior"]), "seed": SEED, "measure_every": 1}


def expected(run: TRLRun, server: Server, record: Path, tokenizer: Any, rank: int = 0) -> Any:
    """What a rank generated, with its masks by the engine's record and its numbers of turns."""
    settle_server(server)
    records = {row["tandem_seed"]: row for row in all_records(record)}
    marker = tokenizer("<|im_start|>assistant\n").input_ids
    return [
        (one, expected_of(one, SEED, 0, records, marker, rank * len(one["completions"])))
        for one in run.caught(rank)["generated"]
    ]


def test_each_prompt_is_a_request_of_its_own_and_syncs_reach_the_senior_alone(
    bench: TRLBench,
    settings: dict[str, Any],
    server: Server,
    record: Path,
    tokenizer: Any,
    checkpoints: dict[str, Path],
) -> None:
    run = bench.run(
        settings, name="server", tools="tools", server=server.url, max_steps=3, **BATCHES | TURNS
    )
    assert run.exit_code == 0, run.log[-3000:]
    turns = []
    for one, found in expected(run, server, record, tokenizer):
        assert one["masks"] == [mask for mask, _ in found]
        turns += [count for _, count in found]
    assert len(turns) == 24
    assert turns.count(1) < 20
    differences = [step["sampling/sampling_logp_difference/max"] for step in run.steps]
    assert max(differences) <= 1e-4  # after two syncs of all weights
    assert all(step["grad_norm"] > 0 for step in run.steps)
    assert [step["tandem/overlap"] < 1 for step in run.steps] == [True] * 3
    (senior, start), (junior, own) = log_probs_of_both(
        server, checkpoints["senior"], checkpoints["junior"]
    )
    assert junior == pytest.approx(own, abs=1e-4)
    assert max(abs(a - b) for a, b in zip(senior, start, strict=True)) > 1e-3  # it was trained


def test_two_processes_train_on_their_own_rows(
    bench: TRLBench, settings: dict[str, Any], server: Server, record: Path, tokenizer: Any
) -> None:
    """A group lies across both."""
    own = {**settings, "seed": SEED}
    sizes = {"per_device_train_batch_size": 2, "ddp_backend": "gloo", "max_steps": 2}
    run = bench.run(
        own, name="two", tools="none", server=server.url, processes=2, **BATCHES | sizes
    )
    assert run.exit_code == 0, run.log[-3000:]
    for rank in range(2):
        for one, found in expected(run, server, record, tokenizer, rank):
            assert len(one["completions"]) == 2
            assert one["masks"] == [mask for mask, _ in found]


def test_server_with_other_rules_stops_the_run_at_its_start(
    bench: TRLBench, settings: dict[str, Any], server: Server
) -> None:
    other = {**settings, "boundaries": "every"}  # parameters come with a request
    run = bench.run(
        other, name="rules", server=server.url, watch="[server-rejects-tandem]", max_steps=1
    )
    assert_stopped(run, "[server-rejects-tandem]")


def test_plain_server_stops_the_run_at_its_start(
    bench: TRLBench,
    settings: dict[str, Any],
    checkpoints: dict[str, Path],
    tmp_path: Path,
) -> None:
    with vllm_server(
        checkpoints["senior"],
        None,
        tmp_path / "log",
        *OPTIONS,
        as_module=True,
        environment=DEVELOPMENT,
    ) as plain:
        run = bench.run(
            settings, name="plain", server=plain.url, watch="[server-not-in-tandem]", max_steps=1
        )
    assert_stopped(run, "[server-not-in-tandem]")
