"""An OpenRLHF run that asks for tandem and cannot have it stops, says why, updates nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openrlhf.utils", reason="OpenRLHF is not installed: make test-openrlhf")

from support.openrlhf_run import OpenRLHFBench
from support.trainer_run import assert_stopped

pytestmark = [pytest.mark.timeout(1200), pytest.mark.long]
BENCH = OpenRLHFBench
FLAGS = ["--tandem.schedule", "word"]


LOSES = {"RAY_RUNTIME_ENV_HOOK": "support.ray_hooks.lose"}
NOT_READY = "[worker-setup-hook-not-called]"


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        ({"environment": {"VLLM_PLUGINS": "none"}}, "[engine-not-in-tandem]"),
        ({"fault": "foreign_rules"}, "[request-rules-differ]"),
        ({"fault": "cut_masks"}, "[row-field-length-differs]"),
        ({"environment": LOSES}, NOT_READY),
    ],
)
def test_run_that_is_not_in_tandem_stops(
    bench: OpenRLHFBench, broken: dict[str, Any], sentence: str
) -> None:
    assert_stopped(bench.run(*FLAGS, **broken, watch=sentence, name="stopped"), sentence)


def test_engine_that_cannot_start(bench: OpenRLHFBench, tmp_path: Path) -> None:
    """OpenRLHF's trainer alone would wait five minutes for it."""
    # The driver does not know the longest sequence of the engine.
    sentence = "[junior-engine-incompatible]"
    junior = tmp_path / "junior"
    shutil.copytree(bench.model, junior)
    config = json.loads((junior / "config.json").read_text())
    (junior / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 8}))
    run = bench.run(*FLAGS, f"--tandem.junior={junior}", watch=sentence, name="start")
    assert_stopped(run, sentence)


def test_settings_for_openrlhfs_own_command(bench: OpenRLHFBench) -> None:
    """Whoever sets the variable alone is told of the command that reads it."""
    sentence = "[trainer-command-without-tandem]"
    run = bench.run(
        command="openrlhf.cli.train_ppo_ray",
        environment={"TANDEM_CONFIG": '{"schedule": "word"}'},
        watch=sentence,
        name="command",
    )
    assert_stopped(run, sentence)
