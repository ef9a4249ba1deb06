"""``tandem plan``: its numbers and its verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from planned_models import PARAMETERS, QWEN3_4B, checkpoint
from typer.testing import CliRunner

from tandem_plugin.cli import app

MACHINE = ("--memory", 79)


@pytest.fixture
def senior(tmp_path: Path) -> Path:
    return checkpoint(tmp_path / "model", QWEN3_4B)


def run(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["plan", *map(str, arguments)])
    return result.exit_code, result.stdout, result.stderr


def asked(*arguments: object) -> dict[str, Any]:
    code, out, err = run(*arguments, "--json")
    assert err == ""
    found: dict[str, Any] = json.loads(out)
    assert code == (0 if found.get("fits") else 1)
    return found


def test_every_number_is_there_as_json(senior: Path) -> None:
    found = asked(
        "--senior", senior, *MACHINE, "--gpu-memory-utilization", 0.5, "--tensor-parallel-size", 2
    )
    weights = found["senior"]["weights"]
    assert weights == found["junior"]["weights"] == PARAMETERS
    assert found["kv_cache_bytes"] == round(79 * 2**30 * 0.5) - 2 * weights
    # Two models of 36 layers, 4 of 8 KV heads of 128, keys and values, bfloat16, blocks of 16.
    assert found["kv_block_bytes"] == 2 * 36 * 2 * 4 * 128 * 2 * 16
    assert found["kv_blocks"] == found["kv_cache_bytes"] // found["kv_block_bytes"]
    assert found["sequences_at_once"] == (found["kv_blocks"] - 1) // (4096 // 16)


@pytest.mark.parametrize(
    ("machine", "fits"),
    [(MACHINE, True), (("--memory", 5), False), ((*MACHINE, "--max-model-len", 262145), False)],
)
def test_exit_code_tells_whether_it_fits(
    senior: Path, machine: tuple[object, ...], fits: bool
) -> None:
    """Weights alone are too many, or a sequence is longer than the models read."""
    code, out, _ = run("--senior", senior, *machine)
    assert (code == 0, "It does not fit" not in out) == (fits, fits)
    assert f"{PARAMETERS:,} parameters" in out
    assert asked("--senior", senior, *machine)["fits"] is fits
