"""OpenRLHF's own trainer in tandem: one flag, and what it then trains on."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openrlhf", reason="OpenRLHF is not installed: make test-openrlhf")

import torch
from support.openrlhf_run import OpenRLHFBench, OpenRLHFRun

from tandem_plugin import Rule, TandemConfig, TandemRules, Vocabulary
from tandem_plugin.seeds import derive_seed

pytestmark = pytest.mark.timeout(1200)
SEED, STEPS, PROMPTS, SAMPLES = 7, 2, 4, 4
FLAGS = ["--tandem.schedule", "word", "--tandem.cap", "6", f"--tandem.seed={SEED}"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, tokenizer: Any) -> dict[str, Path]:
    """Less peaked than the engine's tests have them: trainer and engine compute in bfloat16."""
    from support.models import make_model

    folder = tmp_path_factory.mktemp("models")
    for seed, name in enumerate(("senior", "junior")):
        make_model(folder / name, seed=seed, tokenizer=tokenizer, spread=0.01)
    return {name: folder / name for name in ("senior", "junior")}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, models: dict[str, Path]) -> OpenRLHFBench:
    return OpenRLHFBench.make(tmp_path_factory.mktemp("openrlhf"), models["senior"])


@pytest.fixture(scope="module")
def trained(
    bench: OpenRLHFBench, models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[OpenRLHFRun, Path]:
    """Two synchronous steps with importance correction; micro-batches of one response."""
    captured = tmp_path_factory.mktemp("captured")
    run = bench.run(
        *FLAGS,
        f"--tandem.junior={models['junior']}",
        f"--tandem.record={captured / 'engine'}",
        *("--train.micro_batch_size", "1", "--ckpt.save_steps", "2"),
        *("--ckpt.path", str(bench.folder / "checkpoints")),
        hooks="capture_openrlhf",
        environment={"TANDEM_TEST_CAPTURE": str(captured)},
        name="trained",
    )
    assert run.exit_code == 0, run.log[-3000:]
    assert len(run.steps) == STEPS
    return run, captured


@pytest.fixture(scope="module")
def rule(models: dict[str, Path]) -> Rule:
    config = TandemConfig.from_mapping({"schedule": "word", "cap": 6})
    return TandemRules(config, Vocabulary.from_path(models["senior"])).default


def batches(captured: Path) -> list[list[dict[str, Any]]]:
    count = len(list(captured.glob("rows-*.json")))
    return [json.loads((captured / f"rows-{step}.json").read_text()) for step in range(count)]


def losses(captured: Path) -> list[dict[str, torch.Tensor]]:
    count = len(list(captured.glob("loss-*.pt")))
    return [torch.load(captured / f"loss-{i}.pt") for i in range(count)]


def replayed(row: dict[str, Any], rule: Rule) -> list[int]:
    """The mask that the row must have: one bit for each token but the first."""
    mask = [0] * len(row["tokens"])
    for seed, start, stop in row["passages"]:
        mask[start:stop] = rule.replay(row["tokens"][start:stop], seed).tolist()
    return mask[1:]


def assert_masks_are_the_replay(captured: Path, rule: Rule) -> None:
    """Every mask that reached the loss, in any order, has the bits of some response's replay."""
    rows = itertools.chain.from_iterable(batches(captured))
    masks = [loss["mask"][0].int().tolist() for loss in losses(captured)]
    assert Counter(map(tuple, masks)) == Counter(tuple(replayed(row, rule)) for row in rows)


def test_engine_and_actor_agree_on_the_seniors_tokens_at_every_step(
    trained: tuple[OpenRLHFRun, Path],
) -> None:
    """Holds only if composite, authors, positions, mask and weight sync are all right."""
    assert [abs(step["vllm_kl"]) <= 1e-4 for step in trained[0].steps] == [True] * STEPS
    assert {step["is_filter_ratio"] for step in trained[0].steps} == {0.0}


def test_log_says_that_tandem_is_on(trained: tuple[OpenRLHFRun, Path], rule: Rule) -> None:
    lines = [line for line in trained[0].log.splitlines() if "tandem is on: schedule=word" in line]
    assert len(lines) == 1
    for part in ("cap=6", f"seed={SEED}", f"fingerprint={rule.fingerprint}"):
        assert part in lines[0]


def test_mask_bits_that_reached_the_loss_are_the_replay(
    trained: tuple[OpenRLHFRun, Path], rule: Rule
) -> None:
    _, captured = trained
    assert [len(rows) for rows in batches(captured)] == [PROMPTS * SAMPLES] * STEPS
    assert_masks_are_the_replay(captured, rule)


def test_replay_is_the_engines_own_record(trained: tuple[OpenRLHFRun, Path], rule: Rule) -> None:
    _, captured = trained
    lines = [
        json.loads(line)
        for file in (captured / "engine").glob("*.jsonl")
        for line in file.read_text().splitlines()
    ]
    recorded = {line["tandem_seed"]: line for line in lines}
    for row in itertools.chain.from_iterable(batches(captured)):
        ((seed, start, stop),) = row["passages"]
        assert recorded[seed]["response_ids"] == row["tokens"][start:stop]
        assert recorded[seed]["authorship"] == rule.replay(row["tokens"][start:stop], seed).tolist()
        assert recorded[seed]["tandem_fingerprint"] == row["fingerprint"] == rule.fingerprint


def test_juniors_tokens_contribute_exactly_zero_and_every_seniors_token_has_the_reward(
    trained: tuple[OpenRLHFRun, Path],
) -> None:
    for loss in losses(trained[1]):
        mask = loss["mask"].bool()
        assert loss["gradient"][~mask].abs().sum() == 0
        assert loss["rollout_log_probs"][~mask].abs().sum() == 0
        assert loss["advantages"][mask].unique().numel() <= 1
        assert (loss["gradient"][mask] != 0).equal(loss["advantages"][mask] != 0)


def test_seeds_follow_from_the_runs_seed_and_each_prompts_place(
    trained: tuple[OpenRLHFRun, Path],
) -> None:
    for step, rows in enumerate(batches(trained[1])):
        expected = seeds_of(range(step * PROMPTS, (step + 1) * PROMPTS))
        assert {row["passages"][0][0] for row in rows} == expected


def test_metrics_and_lengths_are_those_of_the_whole_responses(
    trained: tuple[OpenRLHFRun, Path], rule: Rule
) -> None:
    run, captured = trained
    for step, rows in zip(run.steps, batches(captured), strict=True):
        lengths, bits = [], []
        for row in rows:
            ((seed, start, stop),) = row["passages"]
            lengths.append(stop - start)
            bits.append(rule.replay(row["tokens"][start:stop], seed).tolist())
        assert [row["length"] for row in rows] == lengths
        assert step["rollout/response_length_mean"] == pytest.approx(sum(lengths) / len(lengths))
        assert step["tandem/senior_share"] == pytest.approx(sum(map(sum, bits)) / sum(lengths))
        handoffs = sum(a != b for row in bits for a, b in itertools.pairwise(row))
        assert step["tandem/handoffs_per_response"] == pytest.approx(handoffs / len(bits))
        assert step["tandem/responses_without_senior"] == sum(not any(row) for row in bits)


def seeds_of(numbers: range) -> set[int]:
    """The seeds of the first calls for these prompts of a run."""
    places = itertools.product(numbers, range(SAMPLES))
    return {derive_seed(SEED, "training", number, sample, 0) for number, sample in places}


def test_a_resumed_run_goes_on_with_the_seeds_that_come_next(
    trained: tuple[OpenRLHFRun, Path], bench: OpenRLHFBench, models: dict[str, Path],
    rule: Rule, tmp_path: Path,
) -> None:  # fmt: skip
    run = bench.run(
        *FLAGS,
        f"--tandem.junior={models['junior']}",
        *("--train.micro_batch_size", "1", "--train.num_episodes", "2"),
        *("--ckpt.path", str(bench.folder / "checkpoints"), "--ckpt.load_enable"),
        hooks="capture_openrlhf",
        environment={"TANDEM_TEST_CAPTURE": str(tmp_path)},
        name="resumed",
    )
    assert run.exit_code == 0, run.log[-3000:]
    assert len(run.steps) == STEPS  # those of the second episode
    assert [abs(step["vllm_kl"]) <= 1e-4 for step in run.steps] == [True] * STEPS
    assert_masks_are_the_replay(tmp_path, rule)
    for step, rows in enumerate(batches(tmp_path), STEPS):
        expected = seeds_of(range(step * PROMPTS, (step + 1) * PROMPTS))
        assert {row["passages"][0][0] for row in rows} == expected


def test_all_models_in_one_place_with_zero_3(
    bench: OpenRLHFBench, models: dict[str, Path], rule: Rule, tmp_path: Path
) -> None:
    run = bench.run(
        *FLAGS,
        f"--tandem.junior={models['junior']}",
        *("--train.colocate_all", "--ds.zero_stage", "3", "--data.max_samples", "4"),
        *("--train.micro_batch_size", "1"),
        hooks="capture_openrlhf",
        environment={"TANDEM_TEST_CAPTURE": str(tmp_path)},
        name="colocated",
    )
    assert run.exit_code == 0, run.log[-3000:]
    assert [abs(step["vllm_kl"]) <= 1e-4 for step in run.steps] == [True]
    assert_masks_are_the_replay(tmp_path, rule)


def test_a_users_agent_of_two_turns_with_zero_0(
    bench: OpenRLHFBench, models: dict[str, Path], rule: Rule, tmp_path: Path
) -> None:
    """Each turn has a seed of its own; what the environment says is never trained on."""
    run = bench.run(
        *FLAGS,
        f"--tandem.junior={models['junior']}",
        *("--train.agent_func_path", str(bench.folder / "agent.py")),
        *("--ds.zero_stage", "0", "--data.max_samples", "4", "--train.micro_batch_size", "1"),
        hooks="capture_openrlhf",
        environment={"TANDEM_TEST_CAPTURE": str(tmp_path)},
        name="agent",
    )
    assert run.exit_code == 0, run.log[-3000:]
    assert [abs(step["vllm_kl"]) <= 1e-4 for step in run.steps] == [True]
    assert_masks_are_the_replay(tmp_path, rule)
    (rows,) = batches(tmp_path)
    for row in rows:
        (first, _, stop), (second, start, _) = row["passages"]
        assert first != second
        assert start > stop  # the environment's sentence lies between
    assert {row["passages"][0][0] for row in rows} == seeds_of(range(PROMPTS))


def test_responses_of_the_junior_alone_neither_crash_nor_train(
    bench: OpenRLHFBench, models: dict[str, Path], tmp_path: Path
) -> None:
    """A schedule that gives many responses to the junior; micro-batches of one response."""
    run = bench.run(
        *("--tandem.schedule", "chunk", "--tandem.n", "24", "--tandem.p", "0.5"),
        f"--tandem.seed={SEED}",
        f"--tandem.junior={models['junior']}",
        *("--train.micro_batch_size", "1", "--rollout.n_samples_per_prompt", "8"),
        *("--train.batch_size", "32", "--algo.kl.init_coef", "0.01"),
        hooks="capture_openrlhf",
        environment={"TANDEM_TEST_CAPTURE": str(tmp_path)},
        name="empty",
    )
    assert run.exit_code == 0, run.log[-3000:]
    assert len(run.steps) == STEPS
    for step in run.steps:
        assert step["tandem/responses_without_senior"] > 0
        assert all(value == value and value != "nan" for value in step.values()), step
    empty = [loss for loss in losses(tmp_path) if not loss["mask"].any()]
    assert len(empty) == sum(step["tandem/responses_without_senior"] for step in run.steps)
    assert all(loss["gradient"].abs().sum() == 0 for loss in empty)


def test_team_keeps_its_schedule_through_partial_rollouts(
    bench: OpenRLHFBench, models: dict[str, Path], tmp_path: Path, rule: Rule
) -> None:
    """Asynchronous: generation is paused for each weight sync and resumed under new weights."""
    run = bench.run(
        *FLAGS,
        f"--tandem.junior={models['junior']}",
        f"--tandem.record={tmp_path / 'engine'}",
        "--train.async_enable",
        "--train.partial_rollout_enable",
        *("--rollout.max_new_tokens", "64", "--data.max_len", "192"),
        hooks="capture_openrlhf",
        environment={"TANDEM_TEST_CAPTURE": str(tmp_path)},
        name="async",
    )
    assert run.exit_code == 0, run.log[-3000:]
    assert len(run.steps) == STEPS
    recorded = {}
    for file in (tmp_path / "engine").glob("*.jsonl"):
        for line in file.read_text().splitlines():
            row = json.loads(line)
            recorded[row["tandem_seed"]] = row["authorship"]
    for row in itertools.chain.from_iterable(batches(tmp_path)):
        ((seed, start, stop),) = row["passages"]
        assert recorded[seed] == rule.replay(row["tokens"][start:stop], seed).tolist()


def test_environment_alone_turns_the_unchanged_command_on(
    bench: OpenRLHFBench, models: dict[str, Path]
) -> None:
    """OpenRLHF's own command, with the reference in the loss, the team evaluated, and the reward
    that `tandem path reward-openrlhf` names."""
    from tandem_plugin.grading.rewards import openrlhf_reward

    settings = {
        "schedule": "word",
        "cap": 6,
        "junior": str(models["junior"]),
        "validation": "team",
    }
    run = bench.run(
        *("--algo.kl.use_loss", "--algo.kl.estimator", "k3", "--algo.kl.init_coef", "0.01"),
        *("--eval.dataset", str(bench.folder / "prompts.jsonl"), "--eval.steps", "1"),
        *("--eval.n_samples_per_prompt", "2"),
        *("--reward.remote_url", openrlhf_reward.__file__),
        command="openrlhf.cli.train_ppo_ray",
        environment={
            "TANDEM_CONFIG": json.dumps(settings),
            "RAY_RUNTIME_ENV_HOOK": "tandem_openrlhf.ray_hook.amend",
        },
        name="environment",
    )
    assert run.exit_code == 0, run.log[-3000:]
    assert [0 < step["tandem/senior_share"] < 1 for step in run.steps] == [True] * STEPS
    assert [abs(step["vllm_kl"]) <= 1e-4 for step in run.steps] == [True] * STEPS
    assert len(run.evaluations) == STEPS
    outcomes = ("correct", "incorrect", "no_answer", "timeout", "error")
    for step in run.steps:  # every response was graded, and the log says how
        assert sum(step[f"outcome_{name}"] for name in outcomes) == pytest.approx(1)
        assert step["outcome_error"] == 0
