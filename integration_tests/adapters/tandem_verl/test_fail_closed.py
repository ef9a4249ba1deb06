"""A verl run that asks for tandem and cannot have it stops by itself, says why, updates nothing."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("verl", reason="verl is not installed")

from support.trainer_run import assert_stopped
from support.verl_run import TANDEM, VerlBench

pytestmark = pytest.mark.timeout(1200)
BENCH = VerlBench


def later(*row: Any) -> Any:
    """A row of a long test."""
    return pytest.param(*row, marks=pytest.mark.long)


# Whole in every respect, and of the run's own rules: only a replay tells.
REPLAY = "[authorship-replay-differs]"
STOPPED = [
    later({"environment": {"VLLM_PLUGINS": ""}}, "[engine-not-in-tandem]"),
    # Only the engine plugin is alive: it refuses requests that say nothing about tandem.
    later({"environment": {"VERL_USE_EXTERNAL_PLUGINS": "none"}}, "[trainer-adapter-inactive]"),
    ({"fault": "complemented_authorship"}, REPLAY),
    later({"fault": "cut_authorship"}, "[authorship-length-differs]"),
    later({"fault": "late_mask"}, "[mask-changed-after-check]"),
    # Trainer V1 only logs what a trajectory raises; the adapter brings it to the trainer.
    later({"fault": "foreign_fingerprint"}, "[request-rules-differ]"),
    later({"fault": "broken_adapter"}, "the verl adapter of tandem-plugin could not be activated"),
]


@pytest.mark.parametrize(("broken", "sentence"), STOPPED)
def test_run_that_is_not_in_tandem_stops(
    bench: VerlBench, broken: dict[str, Any], sentence: str
) -> None:
    run = bench.run(f"{TANDEM}.schedule=word", **broken, watch=sentence, name="stopped")
    assert_stopped(run, sentence)


@pytest.mark.long
def test_setting_that_does_not_go_with_tandem(bench: VerlBench) -> None:
    run = bench.run(
        f"{TANDEM}.schedule=word",
        "trainer.use_v1=False",
        watch="[verl-trainer-not-v1]",
        name="setting",
    )
    assert_stopped(run, "[verl-trainer-not-v1]")
    assert "ray init" not in run.log
