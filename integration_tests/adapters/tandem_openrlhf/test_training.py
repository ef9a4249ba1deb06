"""OpenRLHF's own trainer in tandem: one flag, and what it then trains on."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

pytest.importorskip("openrlhf.utils", reason="OpenRLHF is not installed: make test-openrlhf")

from support.openrlhf_run import OpenRLHFRun
from support.openrlhf_setup import (
    COMMAND,
    NOISE,
    PROMPTS,
    SAMPLES,
    STEPS,
    OpenRLHFSetup,
    assert_masks_are_the_replay,
    batches,
    losses,
    seeds_of,
)
from support.reading import Readers
from support.records import all_records

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def trained(
    openrlhf: OpenRLHFSetup, tmp_path_factory: pytest.TempPathFactory
) -> tuple[OpenRLHFRun, Path]:
    """Two synchronous steps with importance correction; micro-batches of one response."""
    captured = tmp_path_factory.mktemp("captured")
    run = openrlhf.bench.run(
        *openrlhf.flags,
        f"--tandem.record={captured / 'engine'}",
        *("--tandem.measure_every", "1"),
        *("--train.micro_batch_size", "1", "--ckpt.save_steps", "2"),
        *("--ckpt.path", str(openrlhf.bench.folder / "checkpoints")),
        command=COMMAND,
        hooks="capture_openrlhf",
        environment={"TANDEM_TEST_CAPTURE": str(captured)},
        name="trained",
    )
    assert run.exit_code == 0, run.log[-3000:]
    assert len(run.steps) == STEPS
    return run, captured


def test_engine_and_actor_agree_on_the_seniors_tokens_at_every_step(
    trained: tuple[OpenRLHFRun, Path],
) -> None:
    """Holds only if composite, authors, positions, mask and weight sync are all right."""
    assert [abs(step["vllm_kl"]) <= NOISE for step in trained[0].steps] == [True] * STEPS
    assert {step["is_filter_ratio"] for step in trained[0].steps} == {0.0}


def test_mask_bits_that_reached_the_loss_are_the_replay(
    trained: tuple[OpenRLHFRun, Path], openrlhf: OpenRLHFSetup
) -> None:
    _, captured = trained
    assert [len(rows) for rows in batches(captured)] == [PROMPTS * SAMPLES] * STEPS
    assert_masks_are_the_replay(captured, openrlhf.rule)


def test_replay_is_the_engines_own_record(
    trained: tuple[OpenRLHFRun, Path], openrlhf: OpenRLHFSetup
) -> None:
    _, captured = trained
    recorded = {line["tandem_seed"]: line for line in all_records(captured / "engine")}
    for row in itertools.chain.from_iterable(batches(captured)):
        ((seed, start, stop),) = row["segments"]
        assert recorded[seed]["response_ids"] == row["tokens"][start:stop]
        assert (
            recorded[seed]["authorship"]
            == openrlhf.rule.replay(row["tokens"][start:stop], seed).tolist()
        )
        assert (
            recorded[seed]["tandem_fingerprint"] == row["fingerprint"] == openrlhf.rule.fingerprint
        )


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
        assert {row["segments"][0][0] for row in rows} == expected


def test_metrics_and_lengths_are_those_of_the_whole_responses(
    trained: tuple[OpenRLHFRun, Path], openrlhf: OpenRLHFSetup
) -> None:
    run, captured = trained
    for step, rows in zip(run.steps, batches(captured), strict=True):
        lengths, bits = [], []
        for row in rows:
            ((seed, start, stop),) = row["segments"]
            lengths.append(stop - start)
            bits.append(openrlhf.rule.replay(row["tokens"][start:stop], seed).tolist())
        assert [row["length"] for row in rows] == lengths
        assert step["rollout/response_length_mean"] == pytest.approx(sum(lengths) / len(lengths))
        assert step["tandem/senior_share"] == pytest.approx(sum(map(sum, bits)) / sum(lengths))
        handoffs = sum(a != b for row in bits for a, b in itertools.pairwise(row))
        assert step["tandem/handoffs_per_response"] == pytest.approx(handoffs / len(bits))
        assert step["tandem/responses_without_senior"] == sum(not any(row) for row in bits)


def test_measures_of_the_first_step_are_those_of_a_plain_reading(
    trained: tuple[OpenRLHFRun, Path], openrlhf: OpenRLHFSetup
) -> None:
    """In the engine's bfloat16; the first responses are by the checkpoint."""
    run, captured = trained
    folder = Path(openrlhf.junior.partition("=")[2]).parent
    readers = Readers.of(folder / "senior", folder / "junior", "bfloat16")
    rows = []
    for row in batches(captured)[0]:
        ((seed, start, stop),) = row["segments"]
        response = row["tokens"][start:stop]
        rows.append((row["tokens"][:start], response, openrlhf.rule.replay(response, seed)))
    expected = readers.means((*tokens, authors.tolist()) for *tokens, authors in rows)
    assert {name: run.steps[0][name] for name in expected} == pytest.approx(expected, abs=1e-3)


@pytest.mark.long
def test_a_resumed_run_goes_on_with_the_seeds_that_come_next(
    trained: tuple[OpenRLHFRun, Path], openrlhf: OpenRLHFSetup, tmp_path: Path,
) -> None:  # fmt: skip
    run = openrlhf.bench.run(
        *openrlhf.flags,
        *("--train.micro_batch_size", "1", "--train.num_episodes", "2"),
        *("--ckpt.path", str(openrlhf.bench.folder / "checkpoints"), "--ckpt.load_enable"),
        *("--tandem.max_unknown_share", "0.2"),
        hooks="capture_openrlhf",
        environment={"TANDEM_TEST_CAPTURE": str(tmp_path)},
        name="resumed",
    )
    assert run.exit_code == 0, run.log[-3000:]
    assert "max_unknown_share=0.2 (was 0.1)" in run.log
    assert len(run.steps) == STEPS  # those of the second episode
    assert [abs(step["vllm_kl"]) <= NOISE for step in run.steps] == [True] * STEPS
    assert_masks_are_the_replay(tmp_path, openrlhf.rule)
    for step, rows in enumerate(batches(tmp_path), STEPS):
        expected = seeds_of(range(step * PROMPTS, (step + 1) * PROMPTS))
        assert {row["segments"][0][0] for row in rows} == expected


@pytest.mark.gpu(gib=16)
def test_two_steps_on_a_gpu_train_on_what_their_engine_wrote(
    openrlhf: OpenRLHFSetup, tmp_path: Path
) -> None:
    """All models on one device."""
    run = openrlhf.bench.run(
        *openrlhf.flags,
        *("--train.colocate_all", "--train.micro_batch_size", "1"),
        hooks="capture_openrlhf",
        environment={"TANDEM_TEST_CAPTURE": str(tmp_path)},
        timeout=420,  # DeepSpeed may compile its optimizer first
    )
    assert run.exit_code == 0, run.log[-3000:]
    assert len(run.steps) == STEPS
    assert_masks_are_the_replay(tmp_path, openrlhf.rule)
    assert max(abs(step["vllm_kl"]) for step in run.steps) <= 1e-3
