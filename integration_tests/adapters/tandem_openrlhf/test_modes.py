"""OpenRLHF's own trainer in tandem, in each of the ways that it can be run."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
import torch

pytest.importorskip("openrlhf.utils", reason="OpenRLHF is not installed: make test-openrlhf")

import support
from support.commands import TANDEM
from support.commands import run as command
from support.openrlhf_run import OpenRLHFRun
from support.openrlhf_setup import (
    NOISE,
    PROMPTS,
    SAMPLES,
    STEPS,
    OpenRLHFSetup,
    advantages,
    assert_masks_are_the_replay,
    batches,
    imitations,
    losses,
    replayed,
    seeds_of,
)
from support.records import all_records
from support.reward_server import reward_server

from tandem_plugin._draws import draws
from tandem_plugin.seeds import derive_seed
from tandem_plugin.training.validation_log import CHANGE, JUNIOR_ALONE

pytestmark = [pytest.mark.timeout(1200), pytest.mark.long]
LAMBDA_JUN, KL_COEFFICIENT = 0.2, 0.01
SERVER_AGENT = str(Path(support.__file__).with_name("openrlhf_server_agent.py"))
GROUP = 4
"""Responses to a prompt where many are the junior's alone."""
CHUNK, P = 12, 0.2


def by_the_junior(seed: int, prompt: int, sample: int) -> bool:
    """Whether the junior writes a whole response by the schedule ``chunk``, however long it is."""
    of_response = draws(derive_seed(seed, "training", prompt, sample, 0), 64)
    return all(draw >= P for draw in of_response[::CHUNK])


LONELY = next(
    seed for seed in count() if all(by_the_junior(seed, 0, sample) for sample in range(GROUP))
)
"""A seed by which the junior alone answers the first prompt of a run."""


def test_all_models_in_one_place_with_zero_3(openrlhf: OpenRLHFSetup, tmp_path: Path) -> None:
    run = openrlhf.bench.run(
        *openrlhf.flags,
        *("--train.colocate_all", "--ds.zero_stage", "3", "--data.max_samples", "4"),
        *("--train.micro_batch_size", "1"),
        hooks="capture_openrlhf",
        environment={"TANDEM_TEST_CAPTURE": str(tmp_path)},
        name="colocated",
    )
    assert run.exit_code == 0, run.log[-3000:]
    assert [abs(step["vllm_kl"]) <= NOISE for step in run.steps] == [True]
    assert_masks_are_the_replay(tmp_path, openrlhf.rule)


def test_a_users_agent_of_two_turns_with_zero_0(openrlhf: OpenRLHFSetup, tmp_path: Path) -> None:
    """Each turn has a seed of its own; what the environment says is neither trained on nor
    imitated; the junior's tokens are imitated with the asked weight."""
    run = openrlhf.bench.run(
        *openrlhf.flags,
        *("--tandem.lambda_jun", str(LAMBDA_JUN)),
        *("--train.agent_func_path", str(openrlhf.bench.folder / "agent.py")),
        *("--ds.zero_stage", "0", "--data.max_samples", "4", "--train.micro_batch_size", "1"),
        hooks="capture_openrlhf",
        environment={"TANDEM_TEST_CAPTURE": str(tmp_path)},
        name="agent",
    )
    assert run.exit_code == 0, run.log[-3000:]
    assert [abs(step["vllm_kl"]) <= NOISE for step in run.steps] == [True]
    assert_masks_are_the_replay(tmp_path, openrlhf.rule)
    (rows,) = batches(tmp_path)
    for row in rows:
        (first, _, stop), (second, start, _) = row["segments"]
        assert first != second
        assert start > stop  # the environment's sentence lies between
    assert {row["segments"][0][0] for row in rows} == seeds_of(range(PROMPTS))

    written = sum(stop - start for row in rows for _, start, stop in row["segments"])
    masks = [replayed(row, openrlhf.rule) for row in rows]
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


def test_an_agent_that_serves_all_prompts_by_its_first_engine(
    openrlhf: OpenRLHFSetup, tmp_path: Path
) -> None:
    """As OpenRLHF's OpenAI-server agent: calls of all prompts come through one engine's wrapper."""
    rollouts = tmp_path / "rollouts"
    run = openrlhf.bench.run(
        *openrlhf.flags,
        f"--tandem.rollouts={rollouts}",
        *("--train.agent_func_path", SERVER_AGENT),
        *("--data.max_samples", "4", "--train.micro_batch_size", "1"),
        hooks="capture_openrlhf",
        environment={"TANDEM_TEST_CAPTURE": str(tmp_path / "captured")},
        name="server-agent",
    )
    assert run.exit_code == 0, run.log[-3000:]
    assert [abs(step["vllm_kl"]) <= NOISE for step in run.steps] == [True]
    assert_masks_are_the_replay(tmp_path / "captured", openrlhf.rule)
    (rows,) = batches(tmp_path / "captured")
    seeds = [seed for row in rows for seed, _, _ in row["segments"]]
    assert len(rows) == PROMPTS * SAMPLES
    assert len(set(seeds)) == len(seeds) == 2 * len(rows)
    replay = [*TANDEM, "replay", str(rollouts), "--tokenizer", str(openrlhf.bench.model)]
    assert json.loads(command([*replay, "--json"]).stdout)["ok"] is True


@dataclass(frozen=True)
class Judged:
    """A run whose rewards a server gave, with the reference in them."""

    run: OpenRLHFRun
    captured: Path
    given: list[float]
    """What the server answered."""


@pytest.fixture(scope="module")
def judged(openrlhf: OpenRLHFSetup, tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """A schedule that gives many responses to the junior; micro-batches of one response."""
    captured = tmp_path_factory.mktemp("judged")
    with reward_server() as (address, given):
        run = openrlhf.bench.run(
            *("--tandem.schedule", "chunk", f"--tandem.n={CHUNK}", f"--tandem.p={P}"),
            f"--tandem.seed={LONELY}",
            openrlhf.junior,
            *("--train.micro_batch_size", "1", "--rollout.n_samples_per_prompt", str(GROUP)),
            *("--train.batch_size", str(PROMPTS * GROUP)),
            *("--algo.kl.init_coef", str(KL_COEFFICIENT)),
            *("--reward.remote_url", address),
            hooks="capture_openrlhf",
            environment={"TANDEM_TEST_CAPTURE": str(captured)},
            name="judged",
        )
    assert run.exit_code == 0, run.log[-3000:]
    assert len(run.steps) == STEPS
    return Judged(run, captured, given)


def test_responses_of_the_junior_alone_neither_crash_nor_train(judged: Judged) -> None:
    run = judged.run
    for step in run.steps:
        assert step["tandem/responses_without_senior"] > 0
        assert all(value == value and value != "nan" for value in step.values()), step
    assert run.steps[0]["tandem/prompts_without_senior"] >= 1
    empty = [loss for loss in losses(judged.captured) if not loss["mask"].any()]
    assert len(empty) == sum(step["tandem/responses_without_senior"] for step in run.steps)
    assert all(loss["gradient"].abs().sum() == 0 for loss in empty)


def test_a_reward_servers_answer_reaches_every_token_of_the_seniors(judged: Judged) -> None:
    """Its share of the group's, less the reference's penalty for the senior's later tokens."""
    assert [abs(step["vllm_kl"]) <= NOISE for step in judged.run.steps] == [True] * STEPS
    rows = list(itertools.chain.from_iterable(advantages(judged.captured)))
    assert Counter(float(row["reward"]) for row in rows) == Counter(judged.given)
    for group in zip(*[iter(rows)] * GROUP, strict=True):
        rewards = torch.stack([row["reward"] for row in group])
        shares = (rewards - rewards.mean()) / (rewards.std() + 1e-9)
        for row, share in zip(group, shares, strict=True):
            mask = row["mask"]
            penalty = KL_COEFFICIENT * (row["kl"] * mask).flip(0).cumsum(0).flip(0)
            expected = (share - penalty)[mask].tolist()
            assert row["advantages"][mask].tolist() == pytest.approx(expected, abs=1e-5)
    assert any((row["kl"] * row["mask"]).abs().max() > 1e-4 for row in rows)  # it left the start
    assert any(row["advantages"][row["mask"]].abs().gt(0.5).any() for row in rows)


def test_team_keeps_its_schedule_through_partial_rollouts(
    openrlhf: OpenRLHFSetup, tmp_path: Path
) -> None:
    """Asynchronous: generation is paused for each weight sync and resumed under new weights."""
    run = openrlhf.bench.run(
        *openrlhf.flags,
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
    rows = all_records(tmp_path / "engine")
    recorded = {row["tandem_seed"]: row["authorship"] for row in rows}
    for row in itertools.chain.from_iterable(batches(tmp_path)):
        ((seed, start, stop),) = row["segments"]
        assert recorded[seed] == openrlhf.rule.replay(row["tokens"][start:stop], seed).tolist()


def test_command_brings_tandem_into_a_submitted_job_beside_another_hook(
    openrlhf: OpenRLHFSetup, tmp_path: Path
) -> None:
    """A Ray that was started without tandem's variables, to which a job is submitted with the
    settings in its runtime environment, where a hook of somebody else's amends it; with the
    reference in the loss, senior, team and once the junior evaluated apart, and the reward that
    `tandem path reward-openrlhf` names."""
    from tandem_plugin.grading.rewards import openrlhf_reward

    settings = {
        "schedule": "word",
        "cap": 6,
        "junior": openrlhf.junior.partition("=")[2],
        "validation": "all",
    }
    variables = {"TANDEM_TEST_CAPTURE": str(tmp_path)}
    asked = {"TANDEM_CONFIG": json.dumps(settings)}
    with openrlhf.bench.cluster(hooks="capture_openrlhf", environment=variables) as address:
        run = openrlhf.bench.run(
            *("--algo.kl.use_loss", "--algo.kl.estimator", "k3", "--algo.kl.init_coef", "0.01"),
            *("--eval.dataset", str(openrlhf.bench.folder / "prompts.jsonl"), "--eval.steps", "1"),
            *("--eval.n_samples_per_prompt", "2", "--train.micro_batch_size", "1"),
            *("--reward.remote_url", openrlhf_reward.__file__),
            environment={
                **asked,
                # What Ray's job manager tells the entry point of a job that it starts.
                "RAY_JOB_CONFIG_JSON_ENV_VAR": json.dumps({"runtime_env": {"env_vars": asked}}),
                "RAY_RUNTIME_ENV_HOOK": "support.ray_hooks.keep",
                "RAY_ADDRESS": address,
            },
            name="cluster",
        )
    assert run.exit_code == 0, run.log[-3000:]
    assert f"Connecting to existing Ray cluster at address: {address}" in run.log
    assert "another hook amends the runtime environment" in run.log
    assert_masks_are_the_replay(tmp_path, openrlhf.rule)
    assert [0 < step["tandem/senior_share"] < 1 for step in run.steps] == [True] * STEPS
    assert [abs(step["vllm_kl"]) <= NOISE for step in run.steps] == [True] * STEPS
    assert len(run.evaluations) == STEPS
    for number, scores in enumerate(run.evaluations):
        seniors = {name for name in scores if name.startswith("eval_")}
        assert seniors
        expected = seniors | {f"team/{name}" for name in seniors} | {CHANGE, JUNIOR_ALONE}
        if number == 0:
            expected |= {f"junior/{name}" for name in seniors}
        assert scores.keys() == expected
    assert len({scores[JUNIOR_ALONE] for scores in run.evaluations}) == 1
    outcomes = ("correct", "incorrect", "copied", "no_answer", "timeout", "error")
    for step in run.steps:  # every response was graded, and the log says how
        assert sum(step[f"outcome_{name}"] for name in outcomes) == pytest.approx(1)
        assert step["outcome_error"] == 0
