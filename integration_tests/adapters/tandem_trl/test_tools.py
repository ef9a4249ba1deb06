"""TRL's trainer in tandem with tools and environments: its own loop, the senior's tokens alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl.scripts", reason="TRL is not installed")

from support.records import all_records
from support.trainer_run import assert_stopped
from support.trl_run import TRLBench, TRLRun
from support.trl_tools import expected_of

pytestmark = pytest.mark.timeout(900)
BENCH, SEED = TRLBench, 7
BATCHES = {"per_device_train_batch_size": 8, "max_steps": 2, "learning_rate": 1e-3}
TURNS = {
    "max_completion_length": 144,
    "vllm_max_model_length": 768,
    "generation_kwargs": {"max_tokens": 8},
}


@pytest.fixture(scope="module")
def settings(checkpoints: dict[str, Path]) -> dict[str, Any]:
    junior = str(checkpoints["junior"])
    return {"schedule": "word", "cap": 3, "seed": SEED, "junior": junior, "measure_every": 1}


@pytest.fixture(scope="module")
def marker(tokenizer: Any) -> list[int]:
    return list(tokenizer("<|im_start|>assistant\n").input_ids)


def checked(run: TRLRun, record: Path, marker: list[int]) -> list[int]:
    """Hold a run's masks to the engine's record; returns the turns of each response of training."""
    assert run.exit_code == 0, run.log[-3000:]
    records = {row["tandem_seed"]: row for row in all_records(record)}
    turns, trained, of_step = [], [], dict[tuple[str, int], int]()
    for one in run.caught()["generated"]:
        place = one["phase"], one["step"]
        number = of_step[place] = of_step.get(place, -1) + 1
        if one["phase"] == "validation":  # by the senior alone
            assert all(set(mask) <= {0, 1} and 1 in mask for mask in one["masks"])
            continue
        found = expected_of(one, SEED, number, records, marker)
        assert one["masks"] == [mask for mask, _ in found]
        for log_probs, mask in zip(one["log_probs"], one["masks"], strict=True):
            assert [p != 0 for p in log_probs] == [bit == 1 for bit in mask]
        turns += [count for _, count in found]
        trained += [list(pair) for pair in zip(one["completions"], one["masks"], strict=True)]
    losses = run.caught()["losses"]
    assert losses
    assert all(row in trained for row in losses)
    differences = [s["sampling/sampling_logp_difference/max"] for s in run.steps if "reward" in s]
    assert max(differences) <= 1e-4
    assert all(step["grad_norm"] > 0 for step in run.steps)
    return turns


def test_tools_train_on_the_seniors_tokens_of_every_turn(
    bench: TRLBench, settings: dict[str, Any], marker: list[int], tmp_path: Path
) -> None:
    """Cut turns, overlong and failing tools; batches generated for two updates, each twice."""
    batches = {"gradient_accumulation_steps": 2, "steps_per_generation": 4, "num_iterations": 2}
    run = bench.run(
        {**settings, "record": str(tmp_path)},
        name="tools",
        tools="tools",
        mask_truncated_completions=True,
        **BATCHES | batches | TURNS | {"per_device_train_batch_size": 4, "max_steps": 5},
    )
    turns = checked(run, tmp_path, marker)
    assert len(turns) == 32
    assert min(turns) == 1
    assert max(turns) >= 3
    (first, *_) = run.steps
    assert first["tools/call_frequency"] > 0.5
    assert 0 < first["tools/failure_frequency"] < 1
    rows = run.rollouts(1)
    assert any(len(row["tandem_segments"]) > 1 for row in rows)


@pytest.mark.long
def test_environments_and_gmpo_train_on_the_seniors_tokens(
    bench: TRLBench, settings: dict[str, Any], marker: list[int], tmp_path: Path
) -> None:
    """One environment of two has tools; the senior alone answers evaluations, tools included."""
    run = bench.run(
        {**settings, "record": str(tmp_path)},
        name="environments",
        tools="environments",
        eval_strategy="steps",
        eval_steps=1,
        **BATCHES | TURNS,
    )
    turns = checked(run, tmp_path, marker)
    assert turns.count(1) >= 4
    assert max(turns) >= 2
    assert any("rewards/Adder/mean" in step for step in run.steps)
    assert sum("eval_reward" in one for one in run.metrics) == 2


def test_of_equal_siblings_the_one_that_continues_keeps_its_own_seeds(
    bench: TRLBench, settings: dict[str, Any], marker: list[int], tmp_path: Path
) -> None:
    """Nothing but its row tells such a prompt from its sibling's."""
    own = {name: value for name, value in settings.items() if name != "junior"}
    cold = {"temperature": 1e-3, "max_steps": 1}
    run = bench.run(
        {**own, "record": str(tmp_path)},
        name="siblings",
        tools="siblings",
        **BATCHES | TURNS | cold,
    )
    assert run.exit_code == 0, run.log[-3000:]
    records = {row["tandem_seed"]: row for row in all_records(tmp_path)}
    (one,) = run.caught()["generated"]
    found = expected_of(one, SEED, 0, records, marker)
    assert one["masks"] == [mask for mask, _ in found]
    firsts = [tuple(response[:8]) for response in one["completions"]]
    pairs = [
        (a, b)
        for a in range(8)
        for b in range(8)
        if firsts[a] == firsts[b] and found[a][1] == 1 and found[b][1] > 1
    ]
    assert pairs
    assert any(one["masks"][a][:8] != one["masks"][b][:8] for a, b in pairs)


@pytest.mark.parametrize(
    ("sabotage", "code"),
    [
        pytest.param("without_rows", "trl-prompt-without-row", marks=pytest.mark.long),
        ("rotated_rows", "trained-token-without-call"),
        pytest.param("without_tool_loop", "row-not-checked", marks=pytest.mark.long),
    ],
)
def test_wrong_tool_loop_stops_the_run_before_its_first_update(
    bench: TRLBench, settings: dict[str, Any], sabotage: str, code: str
) -> None:
    run = bench.run(
        settings,
        sabotage=sabotage,
        name=sabotage,
        tools="tools",
        watch=f"[{code}",
        **BATCHES | TURNS,
    )
    assert_stopped(run, f"[{code}")
