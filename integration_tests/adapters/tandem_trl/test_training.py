"""TRL's own trainer in tandem: one argument, and what it then trains on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl.scripts", reason="TRL is not installed")

from readme import one_flag
from support.records import recorded
from support.trainer_run import assert_stopped
from support.trl_run import TRLBench, TRLRun

from tandem_plugin import Rule, TandemConfig, TandemRules, Vocabulary
from tandem_plugin._draws import response_draws

pytestmark = pytest.mark.timeout(900)
BENCH, STEPS, SAVED, SEED = TRLBench, 4, 2, 7
ALONE = 0.25
"""The share of the responses that the senior writes from beginning to end."""

# Batches that are generated for two updates, each of two micro-batches, and walked through twice.
BATCHES = {
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 2,
    "steps_per_generation": 4,
    "num_iterations": 2,
    "learning_rate": 1e-3,
    "max_steps": STEPS,
    "save_strategy": "steps",
    "save_steps": SAVED,
    "eval_strategy": "steps",
    "eval_steps": SAVED,
}


@pytest.fixture(scope="module")
def settings(checkpoints: dict[str, Path]) -> dict[str, Any]:
    junior = str(checkpoints["junior"])
    (call,) = one_flag("trl")
    of_readme = eval(
        call,
        {
            "GRPOTrainer": lambda rollout_func: rollout_func,
            "tandem_rollouts": lambda **settings: settings,
        },
    )
    own = {"seed": SEED, "junior": junior, "measure_every": 1}
    return {**of_readme, "cap": 6, "alone": ALONE, **own}


@pytest.fixture(scope="module")
def rule(checkpoints: dict[str, Path]) -> Rule:
    config = TandemConfig.from_mapping({"schedule": "word", "cap": 6, "alone": ALONE})
    return TandemRules(config, Vocabulary.from_path(checkpoints["senior"])).default


@pytest.fixture(scope="module")
def trained(
    bench: TRLBench, settings: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> tuple[TRLRun, Path]:
    record = tmp_path_factory.mktemp("record")
    run = bench.run({**settings, "record": str(record)}, name="trained", **BATCHES)
    assert run.exit_code == 0, run.log[-3000:]
    return run, record


def is_alone(row: dict[str, Any]) -> bool:
    """By the draw of the response's own seed."""
    return bool(response_draws([row["tandem_seed"]])[0] < ALONE)


def rollouts(run: TRLRun) -> list[dict[str, Any]]:
    files = sorted((run.folder / "rollouts").glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_engine_and_trainer_agree_on_the_seniors_tokens_at_every_step(
    trained: tuple[TRLRun, Path],
) -> None:
    """Holds only if authors, positions, mask and weight sync are all right."""
    steps = trained[0].steps
    assert len(steps) == STEPS
    measured = [one["sampling/sampling_logp_difference/max"] for one in steps if "reward" in one]
    assert max(measured) <= 1e-4
    assert all(one["grad_norm"] > 0 for one in steps)


def test_masks_are_the_replay_and_the_engines_record(
    trained: tuple[TRLRun, Path], rule: Rule
) -> None:
    run, record = trained
    rows = rollouts(run)
    records = recorded(record, [row["tandem_seed"] for row in rows])
    for row in rows:
        assert rule.replay(row["response_ids"], row["tandem_seed"]).tolist() == row["authorship"]
        assert records[row["tandem_seed"]]["authorship"] == row["authorship"]
        assert row["tandem_fingerprint"] == rule.fingerprint
    assert len({row["tandem_seed"] for row in rows}) == len(rows) == 16
    together = [row["authorship"] for row in rows if not is_alone(row)]
    assert 0 < len(together) < len(rows)
    assert all(all(row["authorship"]) for row in rows if is_alone(row))
    assert 0.3 < sum(map(sum, together)) / sum(map(len, together)) < 0.7


def test_dump_has_the_reward_of_each_response(trained: tuple[TRLRun, Path]) -> None:
    for row in rollouts(trained[0]):
        text = row["output"].replace("<|im_end|>", "").replace("<|endoftext|>", "")
        assert row["score"] == pytest.approx(text.count("e") / 10)


def test_log_has_the_teams_metrics_and_says_that_tandem_is_on(
    trained: tuple[TRLRun, Path],
) -> None:
    run, _ = trained
    assert "tandem is on: schedule=word" in run.log
    rows = rollouts(run)
    (first, *_) = [one for one in run.steps if "tandem/senior_share" in one]
    rows = [row for row in rows if row["step"] == 1]
    bits = [bit for row in rows for bit in row["authorship"]]
    assert first["tandem/senior_share"] == pytest.approx(sum(bits) / len(bits))
    assert first["tandem/alone_share"] == pytest.approx(sum(map(is_alone, rows)) / len(rows))
    assert first["tandem/junior_cross_entropy"] > 0
    assert 0 < first["tandem/overlap"] < 1


def test_the_senior_alone_answers_evaluations(trained: tuple[TRLRun, Path]) -> None:
    run, record = trained
    lines = [line for file in record.glob("*.jsonl") for line in file.read_text().splitlines()]
    assert len(lines) == 16  # those of evaluations are not the team's
    assert sum("eval_reward" in one for one in run.metrics) == STEPS // SAVED


@pytest.mark.long
def test_resumed_run_has_the_seeds_of_one_that_was_not_stopped(
    bench: TRLBench, settings: dict[str, Any], trained: tuple[TRLRun, Path]
) -> None:
    whole = {"gradient_accumulation_steps": 2, "steps_per_generation": 2, "max_steps": STEPS}
    one = {**whole, "save_strategy": "steps", "save_steps": SAVED}
    run = bench.run(settings, name="whole", **one)
    checkpoint = run.folder / "out" / f"checkpoint-{SAVED}"
    changed = {**settings, "max_unknown_share": 0.2}
    resumed = bench.run(changed, name="resumed", resume_from_checkpoint=str(checkpoint), **one)
    assert resumed.exit_code == 0, resumed.log[-3000:]
    assert "max_unknown_share=0.2 (was 0.1)" in resumed.log
    for step in range(SAVED + 1, STEPS + 1):
        seeds, expected = (
            [(row["input"], row["tandem_seed"]) for row in each.rollouts(step)]
            for each in (resumed, run)
        )
        assert seeds == expected
    assert not (resumed.folder / "rollouts" / f"{SAVED}.jsonl").exists()


@pytest.mark.parametrize(
    ("sabotage", "code"),
    [
        ("without_mask", "mask-changed-after-check"),
        pytest.param("foreign_fingerprint", "request-rules-differ", marks=pytest.mark.long),
        pytest.param("complemented_mask", "mask-changed-after-check", marks=pytest.mark.long),
        pytest.param("second_trainer", "trl-engine-not-in-tandem", marks=pytest.mark.long),
    ],
)
def test_wrong_run_stops_before_its_first_update(
    bench: TRLBench, settings: dict[str, Any], sabotage: str, code: str
) -> None:
    run = bench.run(settings, sabotage=sabotage, name=sabotage, watch=f"[{code}", max_steps=1)
    assert_stopped(run, f"[{code}")


@pytest.mark.long
def test_engine_that_does_not_know_tandem_stops_the_run(
    bench: TRLBench, settings: dict[str, Any]
) -> None:
    run = bench.run(
        settings,
        name="no-plugin",
        watch="[engine-not-in-tandem]",
        environment={"VLLM_PLUGINS": ""},
        max_steps=1,
    )
    assert_stopped(run, "[engine-not-in-tandem]")


@pytest.mark.long
def test_adapter_is_sent_to_an_engine_that_has_its_base_once(
    bench: TRLBench, settings: dict[str, Any]
) -> None:
    own = {name: value for name, value in settings.items() if name != "junior"}
    lora = {"r": 4, "lora_alpha": 64, "target_modules": "all-linear", "task_type": "CAUSAL_LM"}
    run = bench.run(own, lora=lora, name="lora", learning_rate=1e-2, max_steps=3)
    assert run.exit_code == 0, run.log[-3000:]
    overlaps = [step["tandem/overlap"] for step in run.steps]
    assert overlaps[0] == pytest.approx(1, abs=1e-6)  # the adapter begins as nothing
    assert max(overlaps[1:]) < 0.95  # the senior leaves its base, which stays the junior
    assert max(step["sampling/sampling_logp_difference/max"] for step in run.steps) <= 1e-4


@pytest.mark.long
def test_adapter_that_trains_single_tokens_is_merged(
    bench: TRLBench, settings: dict[str, Any]
) -> None:
    own = {name: value for name, value in settings.items() if name != "junior"}
    lora = {"r": 4, "target_modules": ["q_proj"], "task_type": "CAUSAL_LM"}
    lora["trainable_token_indices"] = [5, 17, 40, 90]
    run = bench.run(own, lora=lora, name="tokens", learning_rate=1e-2, max_steps=2)
    assert run.exit_code == 0, run.log[-3000:]
    assert "tandem: syncs send all weights with the adapter merged" in run.log
    assert max(step["sampling/sampling_logp_difference/max"] for step in run.steps) <= 1e-4
    assert [step["tandem/overlap"] < 0.999 for step in run.steps] == [False, True]


@pytest.mark.long
def test_rloo_trains_on_the_seniors_tokens(
    bench: TRLBench, settings: dict[str, Any], tmp_path: Path
) -> None:
    # A larger rate clips every response in the second iteration: RLOO's ratio is of all tokens.
    batches = {"per_device_train_batch_size": 8, "num_iterations": 2, "beta": 0.1, "max_steps": 3}
    run = bench.run(
        {**settings, "record": str(tmp_path)},
        name="rloo",
        tools="rloo",
        learning_rate=1e-6,
        **batches,
    )
    assert run.exit_code == 0, run.log[-3000:]
    rows = rollouts(run)
    records = recorded(tmp_path, [row["tandem_seed"] for row in rows])
    written = [records[row["tandem_seed"]] for row in rows]
    authors = {tuple(one["response_ids"]): list(map(int, one["authorship"])) for one in written}
    losses = run.caught()["losses"]
    assert len(losses) == 24
    assert all(authors[tuple(ids)] == mask for ids, mask in losses)
    assert all(step["grad_norm"] > 0 for step in run.steps)


@pytest.mark.gpu(gib=10)
def test_two_steps_on_a_gpu_train_on_what_their_engine_wrote(
    bench: TRLBench, settings: dict[str, Any], rule: Rule
) -> None:
    """Beside an engine as users have it: in bfloat16, compiled."""
    run = bench.run(settings, name="gpu", max_steps=2, timeout=300)
    assert run.exit_code == 0, run.log[-3000:]
    assert len(run.steps) == 2
    assert all(step["grad_norm"] > 0 for step in run.steps)
    assert max(step["sampling/sampling_logp_difference/mean"] for step in run.steps) <= 0.1
    for row in rollouts(run):
        assert rule.replay(row["response_ids"], row["tandem_seed"]).tolist() == row["authorship"]
