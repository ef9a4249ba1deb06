"""``tandem plan``: its table, its verdict, and what it says of a wrong command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from planned_models import QWEN3_4B, checkpoint
from typer.testing import CliRunner

from tandem_plugin.cli import app
from tandem_plugin.lab.planning import machine
from tandem_plugin.lab.planning.machine import Card

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


def test_a_plan_says_what_fits(senior: Path) -> None:
    code, out, err = run("--senior", senior, *MACHINE)
    assert (code, err) == (0, "")
    assert "4,022,468,096" in out
    assert "(from config.json)" in out
    assert "sequences of 4,096 at once" in out
    assert "It does not fit" not in out


def test_every_number_is_there_as_json(senior: Path) -> None:
    found = asked("--senior", senior, *MACHINE, "--utilization", 0.5, "--tensor-parallel", 2)
    weights = found["senior"]["weights"]
    assert weights == found["junior"]["weights"] == 4_022_468_096
    assert found["kv_cache_bytes"] == round(79 * 2**30 * 0.5) - 2 * weights
    # Two models of 36 layers, 4 of 8 KV heads of 128, keys and values, bfloat16, blocks of 16.
    assert found["kv_block_bytes"] == 2 * 36 * 2 * 4 * 128 * 2 * 16
    assert found["kv_blocks"] == found["kv_cache_bytes"] // found["kv_block_bytes"]
    assert found["sequences_at_once"] == (found["kv_blocks"] - 1) // (4096 // 16)
    given = asked("--senior", senior, *MACHINE, "--kv-memory", 2, "--tokens", 128)
    assert given["kv_cache_bytes"] == 2 * 2**30


@pytest.mark.parametrize("machine", [("--memory", 10), ("--memory", 80, "--tokens", 262145)])
def test_exit_code_tells_that_it_does_not_fit(senior: Path, machine: tuple[object, ...]) -> None:
    """Weights alone are too many, or a sequence is longer than the models read."""
    code, out, _ = run("--senior", senior, *machine)
    assert code == 1
    assert "It does not fit" in out
    assert asked("--senior", senior, *machine)["fits"] is False


def test_layers_with_a_window_are_named(tmp_path: Path) -> None:
    types = ["sliding_attention", "full_attention"] * 18
    windowed = checkpoint(tmp_path / "windowed", QWEN3_4B | {"layer_types": types})
    _, out, _ = run("--senior", windowed, *MACHINE)
    assert "18 of the senior's 36 layers attend to a window only" in out
    assert "18 of the junior's 36 layers attend to a window only" in out


def test_the_machines_own_gpus_are_planned_for(
    senior: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cards = (Card("H100", 80 * 2**30, 79 * 2**30, "580.1"), Card("H100", 79 * 2**30, 0, "580.1"))
    monkeypatch.setattr(machine, "graphics_cards", lambda: cards)
    found = asked("--senior", senior)
    assert found == asked("--senior", senior, *MACHINE)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "There is no NVIDIA GPU here to plan for"),
        ((*MACHINE, "--junior", "nowhere/at/all"), "There is no checkpoint at 'nowhere/at/all'"),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_what_is_wrong_is_a_sentence(
    senior: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[object, ...],
    said: str,
    as_json: bool,
) -> None:
    monkeypatch.setattr(machine, "graphics_cards", lambda: ())
    code, out, err = run("--senior", senior, *arguments, *(["--json"] if as_json else []))
    assert code == 1
    assert said in (json.loads(out)["error"] if as_json else err)
