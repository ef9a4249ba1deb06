"""``tandem plan``: its verdict, its table, its flags, and what it says of a wrong command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tandem_plugin.cli import app
from tandem_plugin.lab.planning import devices
from tandem_plugin.lab.planning.devices import Card

SIZES = {
    "model_type": "qwen3",
    "num_hidden_layers": 36,
    "hidden_size": 2560,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 9728,
    "vocab_size": 151936,
    "max_position_embeddings": 262144,
    "tie_word_embeddings": True,
}
MACHINE = ("--gpus", 2, "--memory", 79)


@pytest.fixture
def senior(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(SIZES))
    return tmp_path


def run(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["plan", *map(str, arguments)])
    return result.exit_code, result.stdout, result.stderr


def asked(*arguments: object) -> dict[str, Any]:
    code, out, err = run(*arguments, "--json")
    assert err == ""
    found: dict[str, Any] = json.loads(out)
    assert code == (0 if found.get("fits") else 1)
    return found


def test_a_plan_says_that_it_fits_and_with_which_flags(senior: Path) -> None:
    code, out, err = run("--senior", senior, *MACHINE)
    assert (code, err) == (0, "")
    assert out.startswith("It fits.\n")
    assert "4,022,468,096 parameters (from config.json)" in out
    assert "together" in out
    assert "\n  actor_rollout_ref.rollout.gpu_memory_utilization=0.69\n" in out
    assert "* An estimate:" in out


def test_every_number_is_there_as_json(senior: Path) -> None:
    found = asked("--senior", senior, *MACHINE)
    assert found["fits"] is True
    assert found["engine"]["senior"] == found["engine"]["junior"] == 2 * 4_022_468_096
    assert found["engine"]["kv_blocks"] == (
        found["engine"]["kv_cache"] // found["engine"]["kv_block_bytes"]
    )
    assert set(found["phases"]) == {"generating", "weight sync", "training"}
    assert all(sum(parts.values()) <= found["gpu_bytes"] for parts in found["phases"].values())


def test_exit_code_tells_that_it_does_not_fit(senior: Path) -> None:
    code, out, _ = run("--senior", senior, "--gpus", 1, "--memory", 40)
    assert code == 1
    assert out.startswith("It does not fit. An update with one sequence of 4,024 tokens needs ")
    assert asked("--senior", senior, "--gpus", 1, "--memory", 40)["fits"] is False


@pytest.mark.parametrize("user", ["verl", "openrlhf", "rollout"])
def test_each_user_gets_flags_of_its_own(senior: Path, user: str) -> None:
    found = asked("--senior", senior, *MACHINE, "--to", user)
    starts = {"verl": "actor_rollout_ref.", "openrlhf": "--actor.", "rollout": "--max-tokens"}
    assert found["flags"][0].startswith(starts[user])
    assert (found["training"] is None) is (user == "rollout")


def test_drafting_is_planned_with_its_buffers(senior: Path) -> None:
    same = ("--senior", senior, *MACHINE, "--offload", "none", "--tensor-parallel", 1)
    lockstep, found = asked(*same), asked(*same, "--mode", "speculative", "--drafts", 2)
    assert found["engine"]["drafts"] > lockstep["engine"]["drafts"] == 0
    assert found["engine"]["kv_blocks"] < lockstep["engine"]["kv_blocks"]
    assert any(flag.endswith("drafts=2") for flag in found["flags"])


def test_layers_with_a_window_are_named(tmp_path: Path) -> None:
    types = ["sliding_attention", "full_attention"] * 18
    (tmp_path / "config.json").write_text(json.dumps(SIZES | {"layer_types": types}))
    notes = " ".join(asked("--senior", tmp_path, *MACHINE)["notes"])
    assert "18 of the senior's 36 layers attend to a window only" in notes
    assert "18 of the junior's 36 layers attend to a window only" in notes


def test_the_machines_own_gpus_are_planned_for(
    senior: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cards = (Card("H100", 80 * 2**30, 79 * 2**30, "580.1"), Card("H100", 79 * 2**30, 0, "580.1"))
    monkeypatch.setattr(devices, "graphics_cards", lambda: cards)
    found = asked("--senior", senior)
    assert (found["gpus"], found["gpu_bytes"]) == (2, 79 * 2**30)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "There is no NVIDIA GPU here to plan for"),
        ((*MACHINE, "--drafts", 2), "add --mode speculative, or leave --drafts out"),
        (
            (*MACHINE, "--mode", "speculative", "--drafts", 99),
            "--drafts 99 are too many: give at most 32",
        ),
        (
            (*MACHINE, "--to", "openrlhf", "--max-num-seqs", 64),
            "OpenRLHF gives its engines neither",
        ),
        ((*MACHINE, "--n", 3, "--mini-batch", 1), "which do not divide over 2 GPUs"),
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
    monkeypatch.setattr(devices, "graphics_cards", lambda: ())
    code, out, err = run("--senior", senior, *arguments, *(["--json"] if as_json else []))
    assert code == 1
    assert said in (json.loads(out)["error"] if as_json else err)
