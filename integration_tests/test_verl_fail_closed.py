"""A verl run that asks for tandem and cannot have it stops by itself, says why, updates nothing."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("verl", reason="verl is not installed")

from support.trainer_run import assert_stopped
from support.verl_run import ENGINE, TANDEM, VerlBench

pytestmark = pytest.mark.timeout(1200)
BENCH = VerlBench


def later(*row: Any) -> Any:
    """A row of a long test."""
    return pytest.param(*row, marks=pytest.mark.long)


# Whole in every respect, and of the run's own rules: only a replay tells.
REPLAY = "is not what its tokens and seeds replay to"
STOPPED = [
    later({"environment": {"VLLM_PLUGINS": ""}}, "the vLLM engine does not run in tandem"),
    # Only the engine plugin is alive: it refuses requests that say nothing about tandem.
    later(
        {"environment": {"VERL_USE_EXTERNAL_PLUGINS": "none"}},
        "the trainer's tandem adapter is not active",
    ),
    ({"hook": "complement_authorship"}, REPLAY),
    later({"hook": "shift_authorship"}, REPLAY),
    later(
        {"hook": "cut_authorship"},
        "entries of authorship: something between the agent loop and the trainer truncated",
    ),
    later({"hook": "late_mask"}, "changed between the trainer's check and the update"),
    # Trainer V1 only logs what a trajectory raises; the adapter brings it to the trainer.
    later(
        {"hook": "foreign_fingerprint"},
        "A trajectory failed in tandem: FingerprintError: The request was made for the rules",
    ),
    later({"hook": "break_adapter"}, "the verl adapter of tandem-plugin could not be activated"),
]


@pytest.mark.parametrize(("broken", "sentence"), STOPPED)
def test_run_that_is_not_in_tandem_stops(
    bench: VerlBench, broken: dict[str, Any], sentence: str
) -> None:
    run = bench.run(f"{TANDEM}.schedule=word", **broken, watch=sentence, name="stopped")
    assert_stopped(run, sentence)


@pytest.mark.long
@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("trainer.use_v1=False", "use_v1=False: tandem supports only verl's trainer V1"),
        (f"+{ENGINE}.speculative_config.method=ngram", "draft tokens would have no author"),
    ],
)
def test_setting_that_does_not_go_with_tandem(
    bench: VerlBench, override: str, sentence: str
) -> None:
    run = bench.run(f"{TANDEM}.schedule=word", override, watch=sentence, name="setting")
    assert_stopped(run, sentence)
    assert "ray init" not in run.log
