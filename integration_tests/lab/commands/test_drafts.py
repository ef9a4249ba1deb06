"""``tandem drafts`` on engines: it times lockstep and drafts, and prints what it found."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from support.commands import TANDEM
from support.engine import ONE_PROCESS, on_runner
from support.speculation import needs_drafting

from tandem_plugin.config import TandemConfig

pytestmark = [needs_drafting, pytest.mark.long, pytest.mark.engine]


def test_the_table_that_is_printed_follows_from_the_speeds_and_starts_an_engine(
    checkpoints: dict[str, Path],
) -> None:
    options = {"enforce_eager": "true", "max_model_len": "128", "max_num_seqs": "4",
               "dtype": "float32", "distributed_executor_backend": ONE_PROCESS}  # fmt: skip
    command = [*TANDEM, "drafts", "--json"]
    command += ["--senior", str(checkpoints["senior"]), "--junior", str(checkpoints["other"])]
    command += ["--drafts", "2", "--batches", "1,3,8", "--max-tokens", "6"]
    command += [part for name, value in options.items() for part in ("--engine", f"{name}={value}")]
    with on_runner("v2"):
        done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    speeds = found["tokens_per_second"]
    assert set(speeds) == {"1", "3"}, "8 is more than may run at once"
    assert all(set(of) == {"0", "2"} and min(of.values()) > 0 for of in speeds.values())
    assert found["drafts"]["1"] == (2 if speeds["1"]["2"] > speeds["1"]["0"] else 0)
    assert "batch 3, 2 drafts: " in done.stderr
    if any(found["drafts"].values()):
        TandemConfig.from_mapping({"mode": "speculative", "drafts": found["drafts"]})
