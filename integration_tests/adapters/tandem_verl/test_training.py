"""verl's own trainer in tandem: one flag, and what it then trains on."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl", reason="verl is not installed")

import torch
from readme import one_flag
from support.grpo import GRPOReference, relative_error
from support.reading import Readers
from support.verl_run import TANDEM, VerlBench, VerlRun

from tandem_plugin import Rule
from tandem_plugin.seeds import derive_seed

pytestmark = pytest.mark.timeout(1200)
BENCH = VerlBench
STEPS, SAVED, SEED, EPOCHS = 4, 2, 7, 2
VALIDATED = (SAVED, STEPS)


Trained = tuple[VerlRun, Path]
"""A run, and what it captured."""

LONG = [
    f"{TANDEM}.validation=both",
    "actor_rollout_ref.actor.loss_agg_mode=token-mean",
    f"trainer.total_training_steps={STEPS}",
    f"trainer.test_freq={SAVED}",
]


@pytest.fixture(scope="module")
def flags(checkpoints: dict[str, Path]) -> list[str]:
    return [
        *one_flag("verl"),
        f"{TANDEM}.cap=6",
        f"{TANDEM}.seed={SEED}",
        f"{TANDEM}.junior={checkpoints['junior']}",
        f"{TANDEM}.measure_every=1",
        f"actor_rollout_ref.actor.ppo_epochs={EPOCHS}",
        # Far enough in the first of two epochs for the second to clip some tokens.
        "actor_rollout_ref.actor.optim.lr=2e-3",
    ]


@pytest.fixture(scope="module")
def trained(
    bench: VerlBench, flags: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Trained:
    """Token-mean, saved half way; senior and team validate there and at the end."""
    captured = tmp_path_factory.mktemp("captured")
    run = bench.run(
        *flags,
        *LONG,
        f"trainer.save_freq={SAVED}",
        hook=["capture_update", "fixed_noise"],
        environment={"TANDEM_TEST_CAPTURE": str(captured)},
        name="trained",
    )
    assert run.exit_code == 0, run.log[-3000:]
    return run, captured


@pytest.fixture(scope="module")
def resumed(bench: VerlBench, flags: list[str], trained: Trained) -> VerlRun:
    """The same from the checkpoint of its middle."""
    checkpoint = trained[0].folder / "checkpoints" / f"global_step_{SAVED}"
    run = bench.run(
        *flags,
        *LONG,
        "trainer.resume_mode=resume_path",
        f"trainer.resume_from_path={checkpoint}",
        f"{TANDEM}.max_unknown_share=0.2",
        hook="fixed_noise",
        name="resumed",
    )
    assert run.exit_code == 0, run.log[-3000:]
    return run


@pytest.mark.lane
def test_rollout_and_actor_agree_on_every_trained_token_at_every_step(
    trained: Trained,
) -> None:
    """Holds only if composite, authors, positions, mask and weight sync are all right."""
    differences = [step["training/rollout_probs_diff_max"] for step in trained[0].steps]
    assert len(differences) == STEPS
    assert max(differences) <= 1e-6


def test_log_says_that_tandem_is_on(trained: Trained, rule: Rule) -> None:
    run, _ = trained
    lines = [line for line in run.log.splitlines() if "tandem is on: schedule=word p=0.5" in line]
    assert len(lines) == 1
    for part in ("cap=6", "validation=both", f"fingerprint={rule.fingerprint}"):
        assert part in lines[0]


def test_dump_replays(trained: Trained, rule: Rule) -> None:
    run, _ = trained
    rows = [row for step in run.steps for row in run.rollouts(step["training/global_step"])]
    for step in VALIDATED:
        rows += run.rollouts(step, "validation/team")
    assert len(rows) == 8 * len(run.steps) + 2 * len(VALIDATED)
    assert len({row["tandem_seed"] for row in rows}) == len(rows)
    for row in rows:
        replayed = rule.replay(row["response_ids"], row["tandem_seed"])
        assert replayed.tolist() == row["authorship"]
        assert row["tandem_fingerprint"] == rule.fingerprint
        assert 0 <= row["score"] <= 1


def test_seeds_are_those_of_the_runs_seed_and_each_prompts_place(
    trained: Trained,
) -> None:
    run, _ = trained
    places = [("row", row, session) for row in range(4) for session in range(2)]
    for step in run.steps:
        number = step["training/global_step"]
        dumped = {row["tandem_seed"] for row in run.rollouts(number)}
        assert dumped == {derive_seed(SEED, "training", number, *p, 0) for p in places}


def test_metrics_are_those_of_the_dump(trained: Trained) -> None:
    run, _ = trained
    for step in run.steps:
        bits = [row["authorship"] for row in run.rollouts(step["training/global_step"])]
        handoffs = sum(a != b for row in bits for a, b in itertools.pairwise(row))
        tokens = sum(map(len, bits))
        assert step["tandem/senior_share"] == pytest.approx(sum(map(sum, bits)) / tokens)
        assert step["tandem/handoffs_per_response"] == pytest.approx(handoffs / len(bits))
        assert step["tandem/spans_per_response"] == pytest.approx(handoffs / len(bits) + 1)
        assert step["tandem/responses_without_senior"] == sum(not any(row) for row in bits)


def test_measures_are_those_of_a_plain_reading_of_the_dump(
    trained: Trained, bench: VerlBench, checkpoints: dict[str, Path]
) -> None:
    """Of the first step, whose responses are by the checkpoint; validation comes in between."""
    run, _ = trained
    rollouts = run.rollouts(1)
    prompt_of = GRPOReference(bench.model, rollouts).prompt
    readers = Readers.of(bench.model, checkpoints["junior"])
    expected = readers.means(
        (prompt_of(row), row["response_ids"], row["authorship"]) for row in rollouts
    )
    assert {name: run.steps[0][name] for name in expected} == pytest.approx(expected, abs=1e-5)
    for step in run.steps[1:]:  # the senior learns: other numbers
        assert all(step[name] != run.steps[0][name] for name in expected)


def test_gradient_is_that_of_the_masked_loss(trained: Trained, bench: VerlBench) -> None:
    """Both epochs of the first step: at ratio 1, and where the ratio is clipped."""
    run, captured = trained
    reference = GRPOReference(bench.model, run.rollouts(1))
    for epoch in range(EPOCHS):
        step = torch.load(captured / f"step-{epoch}.pt")
        expected = reference.gradients("token-mean", step["parameters"])
        assert relative_error(step["gradients"], expected) <= 1e-5
        assert (0 < reference.clipped_share() < 1) is (epoch > 0)


def test_junior_tokens_contribute_exactly_zero(trained: Trained) -> None:
    run, captured = trained
    masks = Counter()
    for file in sorted(captured.glob("loss-*.pt"))[:2]:  # both micro-batches of the first epoch
        loss = torch.load(file)
        mask = loss["response_mask"].bool()
        assert loss["gradient"][~mask].abs().max() == 0
        assert (loss["gradient"][mask] != 0).equal(loss["advantages"][mask] != 0)
        for row in mask.int().tolist():
            masks[tuple(row + [0] * (32 - len(row)))] += 1
    authorship = [row["authorship"] for row in run.rollouts(1)]
    assert masks == Counter(tuple(bits + [0] * (32 - len(bits))) for bits in authorship)


def test_junior_in_the_engine_is_the_same_bit_by_bit_after_training(
    trained: Trained,
) -> None:
    run, captured = trained
    lines = [line.split() for line in (captured / "engine.txt").read_text().splitlines()]
    assert len({junior for _, junior in lines}) == 1
    # Dummy weights, the first sync, and one after each step.
    assert len({senior for senior, _ in lines}) >= 2 + len(run.steps)


def test_senior_and_team_validate_apart(trained: Trained) -> None:
    run, _ = trained
    for step in VALIDATED:
        means = {}
        for answerer in ("senior", "team"):
            rows = run.rollouts(step, f"validation/{answerer}")
            assert [row["answered_by"] for row in rows] == [answerer] * 2
            assert [row["authorship"] is not None for row in rows] == [answerer == "team"] * 2
            assert [row["tandem_seed"] is not None for row in rows] == [answerer == "team"] * 2
            means[answerer] = sum(row["score"] for row in rows) / 2
        (metrics,) = [one for one in run.steps if one["training/global_step"] == step]
        assert metrics["val-core/tiny/acc/mean@1"] == pytest.approx(means["senior"])
        assert metrics["team/val-core/tiny/acc/mean@1"] == pytest.approx(means["team"])


@pytest.mark.long
def test_resumed_run_goes_on_with_the_same_authors(
    trained: Trained, resumed: VerlRun, rule: Rule
) -> None:
    """The same prompts, seeds and, under equal noise, tokens: weights and data go on as saved."""
    assert "max_unknown_share=0.2 (was 0.1)" in resumed.log
    later = [step["training/global_step"] for step in resumed.steps]
    assert later == list(range(SAVED + 1, STEPS + 1))
    for step in later:
        for kind in ("rollouts", "validation/team")[: 2 if step in VALIDATED else 1]:
            ours, theirs = by_seed(resumed, step, kind), by_seed(trained[0], step, kind)
            assert ours.keys() == theirs.keys()
            for seed, row in ours.items():
                assert row["input"] == theirs[seed]["input"]
                assert row["tandem_fingerprint"] == rule.fingerprint
                assert row["authorship"] == rule.replay(row["response_ids"], seed).tolist()
                assert row["response_ids"] == theirs[seed]["response_ids"]
                assert row["authorship"] == theirs[seed]["authorship"]
    for step, before in zip(resumed.steps, trained[0].steps[SAVED:], strict=True):
        assert step["tandem/senior_share"] == before["tandem/senior_share"]


def by_seed(run: VerlRun, step: int, kind: str) -> dict[int, dict[str, Any]]:
    return {row["tandem_seed"]: row for row in run.rollouts(step, kind)}


@pytest.mark.gpu(gib=12)
def test_two_steps_on_a_gpu_train_on_what_their_engine_wrote(
    checkpoints: dict[str, Path], rule: Rule, tmp_path: Path
) -> None:
    """FSDP2 beside an engine as users have it: in bfloat16, compiled, asleep while it trains."""
    bench = VerlBench.make(tmp_path, checkpoints["senior"], device="cuda")
    run = bench.run(
        *(f"{TANDEM}.schedule=word", f"{TANDEM}.cap=6", f"{TANDEM}.seed={SEED}"),
        f"{TANDEM}.junior={checkpoints['junior']}",
        timeout=300,
    )
    assert run.exit_code == 0, run.log[-3000:]
    assert len(run.steps) == 2
    for number, step in enumerate(run.steps, 1):
        rows = run.rollouts(number)
        replayed = [rule.replay(row["response_ids"], row["tandem_seed"]).tolist() for row in rows]
        assert [row["authorship"] for row in rows] == replayed
        assert step["training/rollout_probs_diff_mean"] <= 1e-2
        assert 0 < step["tandem/senior_share"] < 1
