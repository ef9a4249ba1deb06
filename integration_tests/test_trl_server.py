"""TRL's trainer with a plain ``vllm serve`` in tandem: one request for each prompt."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="TRL is not installed")

from support.records import all_records
from support.reference import Reference
from support.server import Server, vllm_server
from support.trainer_run import assert_stopped
from support.trl_run import TRLBench, TRLRun
from support.trl_tools import expected_of
from support.weight_transfer import SERVER_OPTIONS

pytestmark = pytest.mark.timeout(900)
BENCH, SEED = TRLBench, 7
RULES = {"schedule": "word", "cap": 3}
OPTIONS = (
    *("--enforce-eager", "--dtype", "float32", "--max-model-len", "768"),
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
    settle(server)
    records = {row["tandem_seed"]: row for row in all_records(record)}
    marker = tokenizer("<|im_start|>assistant\n").input_ids
    return [
        (one, expected_of(one, SEED, 0, records, marker, rank * len(one["completions"])))
        for one in run.caught(rank)["generated"]
    ]


def settle(server: Server) -> None:
    """The engine records a request at the step after its last one."""
    body = {"model": "team", "prompt": [5, 6], "max_tokens": 2, "vllm_xargs": {"tandem": "off"}}
    assert server.post("/v1/completions", body)[0] == 200


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
    for author, log_probs, by_reference in junior_and_senior(server, checkpoints):
        worst = max(abs(a - b) for a, b in zip(log_probs, by_reference[False], strict=True))
        other = max(abs(a - b) for a, b in zip(log_probs, by_reference[True], strict=True))
        if author == "junior":
            assert worst <= 1e-4
        else:  # which was trained, and is not its start any more
            assert other > 1e-3


def junior_and_senior(server: Server, checkpoints: dict[str, Path]) -> Iterator[Any]:
    """Of a response by each author alone: the engine's log-probabilities, and both models'."""
    reference = Reference(checkpoints["senior"], checkpoints["junior"])
    prompt = [5, 6, 7, 8]
    for author, schedule in (("junior", "junior"), ("senior", "solo")):
        body = {"model": "team", "prompt": prompt, "max_tokens": 24, "logprobs": 0}
        extra = {"vllm_xargs": {"tandem": f'{{"seed": 3, "schedule": "{schedule}"}}'}}
        asked = {"return_token_ids": True, "ignore_eos": True}
        status, answer = server.post("/v1/completions", body | asked | extra)
        assert status == 200, answer
        (choice,) = answer["choices"]
        ids = choice["token_ids"]
        own = {
            model: [float(row.log_softmax(-1)[i]) for row, i in zip(logits, ids, strict=True)]
            for model, logits in reference.both(prompt, ids).items()
        }
        yield author, choice["logprobs"]["token_logprobs"], own


@pytest.mark.long
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
    other = {**settings, "cap": 4}
    run = bench.run(
        other, name="rules", server=server.url, watch="[server-rejects-tandem]", max_steps=1
    )
    assert_stopped(run, "[server-rejects-tandem]")


@pytest.mark.long
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
