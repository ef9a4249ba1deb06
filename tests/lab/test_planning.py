"""What an engine on a CPU takes of the memory that is free."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from planned_models import PARAMETERS, QWEN3_2B, QWEN3_4B, checkpoint
from refused import refused

from tandem_plugin.lab import planning
from tandem_plugin.lab.planning import cpu_arguments

GIB = 2**30
TOKEN = 2 * 28 * 2 * 8 * 128 * 2
"""Bytes of a token in the KV caches of two models of 28 layers."""


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(checkpoint(tmp_path / "model", QWEN3_2B))


def free(monkeypatch: pytest.MonkeyPatch, gib: float) -> None:
    monkeypatch.setattr(planning, "free_memory", lambda: int(gib * GIB))


def test_the_cache_leaves_room_for_weights_and_for_other_programs(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    free(monkeypatch, 40)
    chosen, said = cpu_arguments([model, model], {}, 2048)
    weights = 4 * 2 * PARAMETERS
    assert 0 < chosen["kv_cache_memory_bytes"] < 40 * GIB - weights
    assert chosen["kv_cache_memory_bytes"] >= 40960 * TOKEN, "a sequence of the model's length"
    assert "max_model_len" not in chosen
    assert "40.0 GiB are free" in said
    assert "--engine kv_cache_memory_bytes=BYTES" in said


def test_a_small_machine_reads_shorter_sequences_and_says_so(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    free(monkeypatch, 18)
    chosen, said = cpu_arguments([model, model], {}, 2048)
    length = chosen["max_model_len"]
    assert 2048 < length < 40960
    assert length * TOKEN <= chosen["kv_cache_memory_bytes"] < 18 * GIB
    assert f"reads up to {length:,} tokens" in said


def test_no_more_is_taken_than_requests_can_use(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    free(monkeypatch, 900)
    chosen, _ = cpu_arguments([model], {"max_num_seqs": 4, "max_model_len": 1024}, 512)
    assert chosen["kv_cache_memory_bytes"] == (4 * 1024 + 128) * TOKEN // 2


def test_a_machine_without_room_is_refused_with_numbers(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    free(monkeypatch, 12)
    with refused("plan-memory-too-small", available=12.0):
        cpu_arguments([model, model], {}, 2048)


@pytest.mark.parametrize(
    "given", [{"kv_cache_memory_bytes": 1}, {"gpu_memory_utilization": 0.5}, {"environment": "1"}]
)
def test_what_the_user_chose_stays(
    model: str, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]
) -> None:
    free(monkeypatch, 40)
    if "environment" in given:
        monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", given.pop("environment"))
    assert cpu_arguments([model], given, 2048) == ({}, "")


def test_models_of_unknown_sizes_get_a_part_of_what_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = str(checkpoint(tmp_path / "other", QWEN3_4B, parameters=0))
    free(monkeypatch, 6)
    chosen, said = cpu_arguments([other], {}, 2048)
    assert chosen == {"kv_cache_memory_bytes": int(0.7 * 4 * GIB / 2)}
    assert said
