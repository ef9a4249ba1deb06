"""TRL's asynchronous trainer in tandem, against a plain ``vllm serve``: subclasses, no patch."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl.scripts", reason="TRL is not installed")

from support.records import all_records
from support.server import Server, vllm_server
from support.trainer_run import assert_stopped
from support.trl_async_run import LORA, run_async
from support.trl_run import TRLRun
from support.trl_tools import log_probs_of_both, settle_server
from support.weight_transfer import SERVER_OPTIONS

from tandem_plugin.seeds import derive_seed

pytestmark = pytest.mark.timeout(900)
SEED = 7
RULES = {"schedule": "word", "cap": 3}
OPTIONS = (
    # vLLM's runner V1 cannot draw with a request's own seed for parts of a prompt on a CPU.
    *("--no-enable-chunked-prefill", "--max-num-batched-tokens", "4096"),
    *("--enforce-eager", "--dtype", "float32", "--max-model-len", "1024"),
    *("--gpu-memory-utilization", "0.1", "--logprobs-mode", "processed_logprobs"),
)
ENVIRONMENT = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("record")


@pytest.fixture(scope="module")
def server(
    checkpoints: dict[str, Path], record: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    own = {**RULES, "junior": str(checkpoints["junior"]), "record": str(record), "measure_every": 1}
    named = ("--served-model-name", str(checkpoints["senior"]), "team")
    with vllm_server(
        checkpoints["senior"],
        own,
        tmp_path_factory.mktemp("server") / "log",
        *(*OPTIONS, *SERVER_OPTIONS, *named),
        as_module=True,
        environment=ENVIRONMENT,
    ) as running:
        yield running


@pytest.fixture(scope="module")
def settings(checkpoints: dict[str, Path]) -> dict[str, Any]:
    return {**RULES, "seed": SEED, "measure_every": 1, "junior": str(checkpoints["junior"])}


def check(run: TRLRun, server: Server, record: Path, first: int = 0) -> Counter[int]:
    """Hold what was trained to the engine's record; returns how many samples have N trained turns.

    first: the number of the first prompt, over all runs that this one resumes.

    A turn that TRL tokenizes again ends, for training, where the conversation's text differs.
    """
    assert run.exit_code == 0, run.log[-3000:]
    settle_server(server)
    records = {row["tandem_seed"]: row for row in all_records(record)}
    admitted: Counter[tuple[int, float]] = Counter()
    seen: set[int] = set()
    for one in run.caught()["samples"]:
        seeds = {
            derive_seed(SEED, "training", first + one["group"], sample, call)
            for sample in range(4)
            for call in range(4)
        }
        mask = [0] * len(one["ids"])
        for seed, start, stop in one["segments"]:
            assert seed in seeds
            assert seed not in seen
            seen.add(seed)
            where = slice(start + one["prompt"], stop + one["prompt"])
            written = records[seed]
            assert one["ids"][where] == written["response_ids"][: stop - start]
            mask[where] = [int(bit) for bit in written["authorship"][: stop - start]]
        assert one["mask"] == mask
        pairs = zip(one["ids"], one["mask"], one["old"], strict=True)
        admitted.update((token, old) for token, bit, old in pairs if bit)
    losses = Counter((label, old) for label, old in run.caught()["losses"])
    assert losses
    assert losses <= admitted
    assert run.steps[0]["ratio"] == pytest.approx(1, abs=1e-4)
    assert run.steps[0]["kl"] == pytest.approx(0, abs=1e-6)
    assert all(0 < step["tandem/senior_share"] < 1 for step in run.steps)
    return Counter(len(one["segments"]) for one in run.caught()["samples"])


def test_turns_with_tools_train_on_the_seniors_tokens_and_syncs_reach_the_senior_alone(
    server: Server,
    settings: dict[str, Any],
    record: Path,
    checkpoints: dict[str, Path],
    tmp_path: Path,
) -> None:
    run = run_async(tmp_path, "tools", checkpoints["senior"], server.url, settings)
    turns = check(run, server, record)
    assert sum(count for number, count in turns.items() if number > 1) > 3
    assert any("tandem/overlap" in step for step in run.steps)
    assert sorted((run.folder / "rollouts").glob("*.jsonl"))
    for log_probs, expected in log_probs_of_both(
        server, run.folder / "senior", checkpoints["junior"]
    ):
        assert log_probs == pytest.approx(expected, abs=1e-4)
    changed = log_probs_of_both(server, checkpoints["senior"], checkpoints["junior"])
    assert max(abs(a - b) for found, own in changed for a, b in zip(found, own, strict=True)) > 1e-3


@pytest.mark.long
def test_resumed_run_goes_on_with_the_prompts_and_seeds_that_come_next(
    server: Server,
    settings: dict[str, Any],
    record: Path,
    checkpoints: dict[str, Path],
    tmp_path: Path,
) -> None:
    saved = {"save_strategy": "steps", "save_steps": 2, "max_steps": 2}
    model = checkpoints["senior"]
    run = run_async(tmp_path, "stopped", model, server.url, settings, arguments=saved)
    check(run, server, record)
    checkpoint = run.folder / "out" / "checkpoint-2"
    first = json.loads((checkpoint / "rollout_state.json").read_text())["prompt_index"]
    assert first > 0
    more = {"resumed": str(checkpoint), "arguments": {"max_steps": 3}}
    resumed = run_async(tmp_path, "resumed", model, server.url, {**settings, "p": 0.5}, **more)
    check(resumed, server, record, first)
    assert "with changes: p=0.5 (was null)" in resumed.log


@pytest.mark.long
def test_environments_train_on_the_seniors_tokens(
    server: Server,
    settings: dict[str, Any],
    record: Path,
    checkpoints: dict[str, Path],
    tmp_path: Path,
) -> None:
    """Another run of the same server, whose first sync brings the senior back to its start."""
    own = {**settings, "seed": SEED}
    model = checkpoints["senior"]
    run = run_async(tmp_path, "environment", model, server.url, own, environment=True)
    assert sum(check(run, server, record).values()) >= 24
    assert any("rewards/Adder" in step for step in run.steps)


@pytest.mark.long
def test_server_with_other_rules_stops_the_run_at_its_start(
    server: Server, settings: dict[str, Any], checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    """Not after the minutes for which TRL repeats what a server rejects.

    A request brings its schedule's parameters along; boundaries are the engine's.
    """
    run = run_async(
        tmp_path,
        "rules",
        checkpoints["senior"],
        server.url,
        {**settings, "boundaries": "every"},
        watch="[server-rejects-tandem]",
    )
    assert_stopped(run, "[server-rejects-tandem]")


@pytest.mark.long
def test_adapters_are_the_seniors_and_their_base_the_juniors(
    settings: dict[str, Any], checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    own = {name: value for name, value in settings.items() if name != "junior"}
    record = tmp_path / "record"
    lora = ("--enable-lora", "--max-lora-rank", "8", "--max-loras", "8")
    model = checkpoints["senior"]
    with vllm_server(
        model,
        {**RULES, "record": str(record), "measure_every": 1},
        tmp_path / "log",
        *(*OPTIONS, *lora, "--served-model-name", str(model), "team"),
        as_module=True,
        environment=ENVIRONMENT,
    ) as server:
        adapter = {"r": 4, "lora_alpha": 64, "lora_dropout": 0.0, "target_modules": "all-linear"}
        run = run_async(
            tmp_path,
            "lora",
            model,
            server.url,
            own,
            lora={**adapter, "task_type": "CAUSAL_LM"},
            arguments={"learning_rate": 1e-2},
        )
        check(run, server, record)
        pairs = log_probs_of_both(server, model, model, f"{LORA}-v4")
        (senior, base), (junior, _) = pairs
        assert junior == pytest.approx(pairs[1][1], abs=1e-4)
        assert max(abs(a - b) for a, b in zip(senior, base, strict=True)) > 1e-2
