"""The sizes of checkpoints, and KV blocks by vLLM's own accounting."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from planned_models import LLAMA_8B, QWEN3_2B, QWEN3_4B, checkpoint, shard
from refused import refused

from tandem_plugin.lab import planning
from tandem_plugin.lab.planning import kv_block_bytes, read_checkpoint


def test_parameters_are_those_of_the_headers(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "model", QWEN3_2B, 0)
    with refused("plan-weights-missing"):
        read_checkpoint(str(folder))
    shard(folder / "model-1.safetensors", {"model.a": ([7, 11], 154)})
    shard(folder / "model-2.safetensors", {"lm_head.weight": ([5, 3], 30), "model.b": ([2], 4)})
    found = read_checkpoint(str(folder))
    assert found.parameters == 79, "the tied head counts once"
    assert found.weights(width=2) == 158
    (folder / "model-2.safetensors").write_bytes(b"\xff" * 64)
    with refused("plan-safetensors-invalid"):
        read_checkpoint(str(folder))


def test_quantised_weights_take_what_they_take_on_disk(tmp_path: Path) -> None:
    config = QWEN3_2B | {"quantization_config": {"quant_method": "fp8"}}
    folder = checkpoint(tmp_path / "model", config, 0)
    shard(folder / "model.safetensors", {"model.a": ([100], 100), "model.scale": ([1], 4)})
    assert read_checkpoint(str(folder)).weights(width=2) == 104


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"num_hidden_layers": None}, "plan-config-size-invalid"),
        ({"max_position_embeddings": "many"}, "plan-config-size-invalid"),
        ({"vision_config": {}}, "plan-model-unsupported"),
        ({"layer_types": ["linear_attention"] * 36}, "plan-model-unsupported"),
        ({"kv_lora_rank": 512}, "plan-model-unsupported"),
    ],
)
def test_what_cannot_be_planned_is_refused_by_name(
    tmp_path: Path, change: dict[str, Any], code: str
) -> None:
    folder = checkpoint(tmp_path / "model", QWEN3_4B | change)
    with refused(code) as raised:
        read_checkpoint(str(folder))
    assert str(folder) in str(raised.value)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (None, "model-without-config"),
        ("{", "plan-config-unreadable"),
        ("[]", "plan-config-unreadable"),
    ],
)
def test_a_folder_without_a_configuration_is_no_checkpoint(
    tmp_path: Path, content: str | None, code: str
) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with refused(code):
        read_checkpoint(str(tmp_path))


@pytest.mark.parametrize("parallel", [1, 4, 16])
@pytest.mark.parametrize(
    "junior",
    [
        QWEN3_4B,
        QWEN3_2B,
        LLAMA_8B | {"num_hidden_layers": 16, "head_dim": 64},
        QWEN3_2B | {"num_key_value_heads": 2, "head_dim": 64, "num_hidden_layers": 5},
    ],
)
def test_blocks_are_those_of_vllms_own_accounting(
    tmp_path: Path, junior: dict[str, Any], parallel: int
) -> None:
    interface = pytest.importorskip("vllm.v1.kv_cache_interface")
    import torch
    from vllm.v1.core import kv_cache_utils

    specs = {}
    models = []
    for name, config in {"senior": LLAMA_8B, "junior": junior}.items():
        model = read_checkpoint(str(checkpoint(tmp_path / name, config)))
        models.append(model)
        for layer in range(model.layers):
            specs[f"{name}.{layer}"] = interface.FullAttentionSpec(
                block_size=16,
                num_kv_heads=max(1, model.kv_heads // parallel),
                head_size=model.head_size,
                dtype=torch.bfloat16,
            )
    config: Any = SimpleNamespace(
        scheduler_config=SimpleNamespace(disable_hybrid_kv_cache_manager=False)
    )
    (group,) = kv_cache_utils.get_kv_cache_groups(config, dict(specs))
    assert len(group.layer_names) == len(specs)
    pages = sum(spec.page_size_bytes for spec in specs.values())
    assert kv_block_bytes(models, 2, parallel, 16) == pages


def test_a_name_that_the_hub_does_not_give_is_not_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    huggingface_hub = pytest.importorskip("huggingface_hub")

    def fails(*_: object, **__: object) -> str:
        raise OSError("no network")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fails)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    with refused("plan-model-not-found", name="owner/none"):
        planning.read_checkpoint("owner/none")
