"""A verl run that asks for tandem and cannot have it stops by itself, says why, updates nothing."""

from __future__ import annotations

import pytest

pytest.importorskip("verl", reason="verl is not installed")

from support.trainer_run import assert_stopped
from support.verl_run import ENGINE, TANDEM, VerlBench

pytestmark = pytest.mark.timeout(1200)
BENCH = VerlBench


def test_engine_plugin_disabled(bench: VerlBench) -> None:
    sentence = "the vLLM engine does not run in tandem"
    run = bench.run(
        f"{TANDEM}.schedule=word", environment={"VLLM_PLUGINS": ""}, watch=sentence, name="engine"
    )
    assert_stopped(run, sentence)


def test_adapter_disabled(bench: VerlBench) -> None:
    """Only the engine plugin is alive: it refuses requests that say nothing about tandem."""
    sentence = "the trainer's tandem adapter is not active"
    run = bench.run(
        f"{TANDEM}.schedule=word",
        environment={"VERL_USE_EXTERNAL_PLUGINS": "none"},
        watch=sentence,
        name="adapter",
    )
    assert_stopped(run, sentence)


@pytest.mark.long
def test_authorship_truncated_on_its_way(bench: VerlBench) -> None:
    sentence = "entries of authorship: something between the agent loop and the trainer cut"
    run = bench.run(
        f"{TANDEM}.schedule=word", hook="cut_authorship", watch=sentence, name="truncated"
    )
    assert_stopped(run, sentence)


@pytest.mark.parametrize(
    "hook",
    ["complement_authorship", pytest.param("shift_authorship", marks=pytest.mark.long)],
)
def test_mask_that_is_not_what_the_trainer_replays(bench: VerlBench, hook: str) -> None:
    """Whole in every respect, and of the run's own rules: only a replay tells."""
    sentence = "is not what its tokens and seeds replay to"
    run = bench.run(f"{TANDEM}.schedule=word", hook=hook, watch=sentence, name=hook)
    assert_stopped(run, sentence)


@pytest.mark.long
def test_mask_that_changes_between_the_check_and_the_update(bench: VerlBench) -> None:
    sentence = "changed between the trainer's check and the update"
    run = bench.run(f"{TANDEM}.schedule=word", hook="late_mask", watch=sentence, name="late")
    assert_stopped(run, sentence)


@pytest.mark.long
def test_requests_that_the_engine_refuses(bench: VerlBench) -> None:
    """Trainer V1 only logs what a trajectory raises; the adapter brings it to the trainer."""
    sentence = "A trajectory failed in tandem: FingerprintError: The request was made for the rules"
    run = bench.run(
        f"{TANDEM}.schedule=word", hook="foreign_fingerprint", watch=sentence, name="refused"
    )
    assert_stopped(run, sentence)


@pytest.mark.long
def test_adapter_that_cannot_be_imported(bench: VerlBench) -> None:
    sentence = "the verl adapter of tandem-plugin could not be put in place"
    run = bench.run(f"{TANDEM}.schedule=word", hook="break_adapter", watch=sentence, name="import")
    assert_stopped(run, sentence)


@pytest.mark.long
@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("trainer.use_v1=False", "use_v1=False: tandem runs in verl's trainer V1 alone"),
        (f"+{ENGINE}.speculative_config.method=ngram", "draft tokens would have no author"),
        ("actor_rollout_ref.model.lora.rank=8", "that an adapter is sent was shown with"),
    ],
)
def test_setting_that_does_not_go_with_tandem(
    bench: VerlBench, override: str, sentence: str
) -> None:
    run = bench.run(f"{TANDEM}.schedule=word", override, watch=sentence, name="setting")
    assert_stopped(run, sentence)
    assert "ray init" not in run.log
