"""An engine that was shut down leaves nothing of its junior behind in its process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.drafting import has_drafting
from support.engine import RUNNERS, v2_variables

ENGINES = [*((runner, "lockstep") for runner in RUNNERS)]
if has_drafting():
    ENGINES.append(("v2", "speculative"))


@pytest.mark.parametrize(("runner", "mode"), ENGINES)
def test_the_first_engines_junior_is_gone_when_a_second_one_has_started(
    runner: str, mode: str, checkpoints: dict[str, Path]
) -> None:
    variables = v2_variables() if runner == "v2" else {"VLLM_USE_V2_MODEL_RUNNER": "0"}
    command = [sys.executable, "-m", "support.two_engines"]
    done = subprocess.run(
        [*command, str(checkpoints["senior"]), str(checkpoints["other"]), mode],
        env={**os.environ, **variables},
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert found["tokens"][0] == found["tokens"][1]
    assert not found["first_juniors_alive"]
