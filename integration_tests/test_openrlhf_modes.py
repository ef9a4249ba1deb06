"""OpenRLHF's own trainer in tandem, in each of the ways that it can be run."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openrlhf", reason="OpenRLHF is not installed: make test-openrlhf")

import torch
from support.openrlhf_setup import (
    NOISE,
    PROMPTS,
    SEED,
    STEPS,
    OpenRLHFSetup,
    assert_masks_are_the_replay,
    batches,
    imitations,
    losses,
    replayed,
    seeds_of,
)

pytestmark = pytest.mark.timeout(1200)
LAMBDA_JUN = 0.2


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory, tokenizer: Any) -> OpenRLHFSetup:
    return OpenRLHFSetup.make(tmp_path_factory.mktemp("openrlhf"), tokenizer)


def test_all_models_in_one_place_with_zero_3(setup: OpenRLHFSetup, tmp_path: Path) -> None:
    run = setup.bench.run(
        *setup.flags,
        *("--train.colocate_all", "--ds.zero_stage", "3", "--data.max_samples", "4"),
        *("--train.micro_batch_size", "1"),
        hooks="capture_openrlhf",
        environment={"TANDEM_TEST_CAPTURE": str(tmp_path)},
        name="colocated",
    )
    assert run.exit_code == 0, run.log[-3000:]
    assert [abs(step["vllm_kl"]) <= NOISE for step in run.steps] == [True]
    assert_masks_are_the_replay(tmp_path, setup.rule)


def test_a_users_agent_of_two_turns_with_zero_0(setup: OpenRLHFSetup, tmp_path: Path) -> None:
    """Each turn has a seed of its own; what the environment says is neither trained on nor
    imitated; the junior's tokens are imitated with the asked weight."""
    run = setup.bench.run(
        *setup.flags,
        *("--tandem.lambda_jun", str(LAMBDA_JUN)),
        *("--train.agent_func_path", str(setup.bench.folder / "agent.py")),
        *("--ds.zero_stage", "0", "--data.max_samples", "4", "--train.micro_batch_size", "1"),
        hooks="capture_openrlhf",
        environment={"TANDEM_TEST_CAPTURE": str(tmp_path)},
        name="agent",
    )
    assert run.exit_code == 0, run.log[-3000:]
    assert [abs(step["vllm_kl"]) <= NOISE for step in run.steps] == [True]
    assert_masks_are_the_replay(tmp_path, setup.rule)
    (rows,) = batches(tmp_path)
    for row in rows:
        (first, _, stop), (second, start, _) = row["passages"]
        assert first != second
        assert start > stop  # the environment's sentence lies between
    assert {row["passages"][0][0] for row in rows} == seeds_of(range(PROMPTS))

    written = sum(stop - start for row in rows for _, start, stop in row["passages"])
    masks = [replayed(row, setup.rule) for row in rows]
    imitated = imitations(tmp_path)
    assert len(imitated) == len(rows)
    of_junior = sum(int(one["mask"].sum()) for one in imitated)
    assert of_junior == written - sum(map(sum, masks)) > 0
    for one, loss in zip(imitated, losses(tmp_path), strict=True):
        assert not (one["mask"].bool() & loss["mask"].bool()).any()
        # OpenRLHF divides both the count and, later, the loss by the number of micro-batches.
        expected = -LAMBDA_JUN / of_junior * len(rows) * one["mask"]
        torch.testing.assert_close(one["gradient"], expected.to(one["gradient"].dtype))
    (step,) = run.steps
    mean = sum(one["loss"] for one in imitated) / len(imitated)
    assert step["junior_imitation_loss"] == pytest.approx(mean, rel=1e-3)
    assert mean > 1  # nats: these models are far from each other


def test_responses_of_the_junior_alone_neither_crash_nor_train(
    setup: OpenRLHFSetup, tmp_path: Path
) -> None:
    """A schedule that gives many responses to the junior; micro-batches of one response."""
    run = setup.bench.run(
        *("--tandem.schedule", "chunk", "--tandem.n", "48", "--tandem.p", "0.5"),
        f"--tandem.seed={SEED}",
        setup.junior,
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
    setup: OpenRLHFSetup, tmp_path: Path
) -> None:
    """Asynchronous: generation is paused for each weight sync and resumed under new weights."""
    run = setup.bench.run(
        *setup.flags,
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
        assert recorded[seed] == setup.rule.replay(row["tokens"][start:stop], seed).tolist()


def test_environment_alone_turns_the_unchanged_command_on(setup: OpenRLHFSetup) -> None:
    """OpenRLHF's own command, with the reference in the loss, the team evaluated, and the reward
    that `tandem path reward-openrlhf` names."""
    from tandem_plugin.grading.rewards import openrlhf_reward

    settings = {
        "schedule": "word",
        "cap": 6,
        "junior": setup.junior.partition("=")[2],
        "validation": "team",
    }
    run = setup.bench.run(
        *("--algo.kl.use_loss", "--algo.kl.estimator", "k3", "--algo.kl.init_coef", "0.01"),
        *("--eval.dataset", str(setup.bench.folder / "prompts.jsonl"), "--eval.steps", "1"),
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
    assert [abs(step["vllm_kl"]) <= NOISE for step in run.steps] == [True] * STEPS
    assert len(run.evaluations) == STEPS
    outcomes = ("correct", "incorrect", "no_answer", "timeout", "error")
    for step in run.steps:  # every response was graded, and the log says how
        assert sum(step[f"outcome_{name}"] for name in outcomes) == pytest.approx(1)
        assert step["outcome_error"] == 0
