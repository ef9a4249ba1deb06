"""``tandem plan``: its numbers and its verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from planned_models import PARAMETERS, QWEN3_4B, QWEN3_VL_8B, checkpoint, shard
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
        *("--senior", senior, *MACHINE, "--max-model-len", 4096),
        *("--gpu-memory-utilization", 0.5, "--tensor-parallel-size", 2),
    )
    weights = found["senior"]["weights"]
    assert weights == found["junior"]["weights"] == PARAMETERS
    assert found["kv_cache_bytes"] == round(79 * 2**30 * 0.5) - 2 * weights
    # Two models of 36 layers, 4 of 8 KV heads of 128, keys and values, bfloat16, blocks of 16.
    assert found["kv_block_bytes"] == 2 * 36 * 2 * 4 * 128 * 2 * 16
    assert found["kv_blocks"] == found["kv_cache_bytes"] // found["kv_block_bytes"]
    assert found["sequence_tokens"] == 4096
    assert found["sequences_at_once"] == (found["kv_blocks"] - 1) // (4096 // 16)


def test_images_take_from_the_cache_what_encodings_and_embeddings_need(tmp_path: Path) -> None:
    senior = checkpoint(tmp_path / "model", QWEN3_VL_8B)
    machine = ("--senior", senior, *MACHINE, "--max-model-len", 4096, "--images")
    found = asked(*machine, "--max-num-batched-tokens", 16_384)
    # Both models' hidden states of three layers of the tower and its last, in bfloat16.
    assert found["encoder_cache_bytes"] == found["embeddings_bytes"] == 16_384 * 2 * 4 * 4096 * 2
    left = round(79 * 2**30 * 0.9) - 2 * 2 * PARAMETERS - 2 * found["encoder_cache_bytes"]
    assert found["kv_cache_bytes"] == left
    assert asked(*machine)["encoder_cache_bytes"] == found["encoder_cache_bytes"] // 2
    _, out, _ = run(*machine)
    assert "encodings of images       0.50 GiB, and 0.50 of embeddings" in out


@pytest.mark.parametrize(
    ("machine", "fits"),
    [
        ((*MACHINE, "--max-model-len", 4096), True),
        (("--memory", 5), False),
        ((*MACHINE, "--max-model-len", 262145), False),
    ],
)
def test_exit_code_tells_whether_it_fits(
    senior: Path, machine: tuple[object, ...], fits: bool
) -> None:
    """Weights alone are too many, or a sequence is longer than the models read."""
    code, out, _ = run("--senior", senior, *machine)
    assert (code == 0, "It does not fit" not in out) == (fits, fits)
    assert f"{PARAMETERS:,} parameters" in out
    assert asked("--senior", senior, *machine)["fits"] is fits


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((*MACHINE,), "the longest sequence that does has "),
        (("--memory", 5), "the weights leave no room for a sequence"),
        (("--memory", 500, "--max-model-len", 262145), "the models read at most 262,144 tokens"),
    ],
)
def test_what_does_not_fit_is_said_with_what_would(
    senior: Path, arguments: tuple[object, ...], says: str
) -> None:
    """Without a length it is the models' own, as in vLLM."""
    code, out, _ = run("--senior", senior, *arguments)
    assert code == 1
    assert says in out.splitlines()[-1]


def test_length_is_the_models_own_and_what_is_advised_fits(tmp_path: Path) -> None:
    small = checkpoint(tmp_path / "small", QWEN3_4B | {"max_position_embeddings": 2048})
    assert asked("--senior", small, "--memory", 24)["sequence_tokens"] == 2048
    _, out, _ = run("--senior", small, *MACHINE, "--max-model-len", 4096)
    assert out.splitlines()[-1] == (
        "It does not fit: the models read at most 2,048 tokens. Use --max-model-len 2048 or less."
    )


def test_flags_are_those_of_each_program(senior: Path) -> None:
    machine = ("--senior", senior, *MACHINE, "--max-model-len", 4096)
    found = asked(*machine, "--tensor-parallel-size", 2)["flags"]
    assert found["vllm serve"] == (
        "--max-model-len 4096 --gpu-memory-utilization 0.9 --tensor-parallel-size 2"
    )
    assert found["TRL"].startswith("--vllm_max_model_length 4096 --vllm_gpu_memory_utilization 0.9")
    assert found["OpenRLHF"].startswith("--data.max_len 4096 --vllm.gpu_memory_utilization 0.9")
    assert found["SkyRL"] == (
        "generator.inference_engine.engine_init_kwargs.max_model_len=4096 "
        "generator.inference_engine.gpu_memory_utilization=0.9 "
        "generator.inference_engine.tensor_parallel_size=2"
    )
    assert found["tandem rollout, eval"].startswith("--engine max_model_len=4096 --engine gpu_")
    assert found["verl"].startswith("actor_rollout_ref.rollout.max_model_len=4096 ")
    _, out, _ = run(*machine)
    assert "  vllm serve" in out
    assert "tensor" not in out
    assert asked("--senior", senior, "--memory", 5)["flags"] == {}


def test_gpus_that_do_not_divide_the_heads_are_refused_as_by_vllm(senior: Path) -> None:
    code, _, err = run("--senior", senior, *MACHINE, "--tensor-parallel-size", 3)
    assert code == 1
    assert "The 32 attention heads" in err
    assert "[plan-heads-not-divisible]" in err


def test_memory_in_mib_is_refused_with_what_it_is_in_gib(senior: Path) -> None:
    code, _, err = run("--senior", senior, "--memory", 81559)
    assert code == 1
    assert "81,559 MiB are --memory 79.6" in err
    assert "[plan-memory-not-gib]" in err


def test_gpu_by_name_has_its_memory_and_the_speed_of_each_mode(senior: Path) -> None:
    named = asked("--senior", senior, "--gpu", "H200", "--max-model-len", 3512)
    by_memory = asked("--senior", senior, "--memory", 139.8, "--max-model-len", 3512)
    speeds = named.pop("speed")
    assert named == by_memory
    assert [row["requests"] for row in speeds][:3] == [1, 4, 16]
    assert all(0 < row["lockstep"] <= 1 for row in speeds)
    _, out, _ = run("--senior", senior, "--gpu", "h200", "--max-model-len", 3512)
    assert "computed, not measured" in out
    assert "within 7% of these" in " ".join(out.split())
    assert "Settings: mode: speculative, drafts: {1: " in out


def test_longer_prompts_and_responses_are_slower(senior: Path) -> None:
    lengths = [("--max-model-len", 640), ("--max-model-len", 3512, "--prompt", 3000)]
    short, long = (asked("--senior", senior, "--gpu", "h200", *more)["speed"] for more in lengths)
    assert all(a["single"] > b["single"] for a, b in zip(short, long, strict=False))


def test_quantised_junior_takes_a_byte_for_each_value_of_a_linear_layer(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "model", QWEN3_4B, 0)
    linear, others = 2560 * 4096, 1000 * 2560 + 2560
    shard(
        folder / "model.safetensors",
        {
            "model.embed_tokens.weight": ([1000, 2560], 2000 * 2560),
            "model.norm.weight": ([2560], 2 * 2560),
            "model.layers.0.self_attn.q_proj.weight": ([4096, 2560], 2 * linear),
        },
    )
    given = ("--senior", folder, *MACHINE, "--max-model-len", 4096)
    for name, bytes_each in (("fp8", 1), ("mxfp8", 33 / 32)):
        found = asked(*given, "--junior-quantization", name)
        assert found["senior"]["weights"] == 2 * (linear + others)
        assert found["junior"]["weights"] == 2 * others + linear * bytes_each


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((), "plan-without-memory"),
        (("--gpu", "h200", *MACHINE), "plan-memory-twice"),
        (("--gpu", "voodoo2"), "plan-gpu-unknown"),
        (("--gpu", "h200", "--max-model-len", 512), "plan-prompt-too-long"),
        ((*MACHINE, "--junior-quantization", "awq"), "plan-quantization-unknown"),
    ],
)
def test_what_cannot_be_planned_is_told(
    senior: Path, arguments: tuple[object, ...], code: str
) -> None:
    status, _, err = run("--senior", senior, *arguments)
    assert status == 1
    assert f"[{code}]" in err
