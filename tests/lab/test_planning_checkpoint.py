"""The sizes of checkpoints, and KV blocks by vLLM's own accounting."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from planned_models import (
    FALCON_H1,
    GRANITE_4_SMALL,
    LFM2,
    LLAMA_8B,
    NEMOTRON_H,
    QWEN2_5_VL_7B,
    QWEN3_2B,
    QWEN3_4B,
    QWEN3_5_9B,
    QWEN3_NEXT,
    QWEN3_VL_8B,
    checkpoint,
    shard,
)
from refused import refused

from tandem_plugin.lab import planning
from tandem_plugin.lab.planning import PlannedCache, PlannedModel, planned_cache, read_checkpoint


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


def headed(header: bytes, length: int | None = None, data: bytes = b"\0" * 8) -> bytes:
    """A file of safetensors with this header, which may say another length."""
    return (len(header) if length is None else length).to_bytes(8, "little") + header + data


def tensor(shape: object, offsets: object) -> bytes:
    return json.dumps({"w": {"dtype": "F32", "shape": shape, "data_offsets": offsets}}).encode()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0\0",
        headed(b"[" * 10_000),
        headed(b'{"w": ' * 5000),
        headed(b"[]"),
        headed(b"7"),
        headed(b'"w"'),
        headed(b'{"w": 1}'),
        headed(b'{"w": {}}'),
        headed(b'{"w": {}, "w": {}}'),
        headed(b"\xff{}"),
        headed(tensor([1], [0, 4]), 2**63),
        headed(tensor([1], [0, 4]), 2**64 - 1),
        headed(tensor([1], [0, 4]), 10_000),
        headed(tensor([2**62] * 6, [0, 8])),
        headed(tensor([2**62] * 50_000, [0, 8])),
        headed(tensor([-1, -2], [0, 8])),
        headed(tensor([2.5], [0, 8])),
        headed(tensor([True], [0, 8])),
        headed(tensor("2", [0, 8])),
        headed(tensor([2], [8, 0])),
        headed(tensor([2], [0])),
        headed(tensor([2], None)),
        headed(tensor([2], [-8, 0])),
    ],
)
def test_header_that_cannot_be_is_a_sentence(tmp_path: Path, content: bytes) -> None:
    folder = checkpoint(tmp_path / "model", QWEN3_2B, 0)
    (folder / "model.safetensors").write_bytes(content)
    with refused("plan-safetensors-invalid", file=str(folder / "model.safetensors")) as caught:
        read_checkpoint(str(folder))
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("cut", [tensor([2], [0, 9]), tensor([2], [0, 8])])
def test_weights_that_end_before_their_last_tensor_are_not_planned(
    tmp_path: Path, cut: bytes
) -> None:
    folder = checkpoint(tmp_path / "model", QWEN3_2B, 0)
    whole = headed(cut)
    (folder / "model.safetensors").write_bytes(whole[:-1])
    with refused("model-file-unreadable", file="model.safetensors"):
        read_checkpoint(str(folder))


@pytest.mark.parametrize("shape", [[2], [0, 2**62, 2**62], [2**62, 2**62, 0], [], [64]])
def test_header_that_is_odd_but_right_is_read(tmp_path: Path, shape: list[int]) -> None:
    folder = checkpoint(tmp_path / "model", QWEN3_2B, 0)
    (folder / "model.safetensors").write_bytes(headed(tensor(shape, [0, 8])))
    assert read_checkpoint(str(folder)).parameters == math.prod(shape)


def test_checkpoint_without_one_of_its_shards_is_not_planned(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "model", QWEN3_2B, 0)
    shard(folder / "model-00001-of-00002.safetensors", {"model.a": ([7, 11], 154)})
    with refused("model-shard-missing", file="model-00002-of-00002.safetensors"):
        read_checkpoint(str(folder))
    shard(folder / "model-00002-of-00002.safetensors", {"model.b": ([2], 4)})
    assert read_checkpoint(str(folder)).parameters == 79


@pytest.mark.parametrize("config", [QWEN3_2B, QWEN3_5_9B])
def test_quantised_weights_take_what_they_take_on_disk(
    tmp_path: Path, config: dict[str, Any]
) -> None:
    config = config | {"quantization_config": {"quant_method": "fp8"}}
    folder = checkpoint(tmp_path / "model", config, 0)
    shard(folder / "model.safetensors", {"model.a": ([100], 100), "model.scale": ([1], 4)})
    assert read_checkpoint(str(folder)).weights(width=2) == 104


@pytest.mark.parametrize(
    ("config", "layers", "encoding"),
    [(QWEN2_5_VL_7B, 28, 3584), (QWEN3_VL_8B, 36, 4 * 4096), (QWEN3_5_9B, 8, 4096)],
)
def test_images_need_the_tower_and_room_for_its_encodings(
    tmp_path: Path, config: dict[str, Any], layers: int, encoding: int
) -> None:
    folder = checkpoint(tmp_path / "model", config, 0)
    tensors = {"model.visual.a": ([100], 200), "mtp.a": ([9], 18), "model.a": ([7], 14)}
    shard(folder / "model.safetensors", tensors)
    seeing = read_checkpoint(str(folder), images=True)
    assert (seeing.parameters, seeing.layers) == (107, layers)
    assert seeing.image_bytes(2, 16_384) == encoding * 2 * 16_384
    if config is QWEN3_5_9B:
        assert read_checkpoint(str(folder)).parameters == 7
        assert read_checkpoint(str(folder)).image_bytes(2, 16_384) == 0
    text = checkpoint(tmp_path / "text", QWEN3_4B)
    with refused("plan-model-without-images", name=str(text)):
        read_checkpoint(str(text), images=True)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"num_hidden_layers": None}, "plan-config-size-invalid"),
        ({"max_position_embeddings": "many"}, "plan-config-size-invalid"),
        ({"vision_config": {}}, "plan-model-unsupported"),
        ({"layer_types": ["linear_attention"] * 36}, "plan-model-unsupported"),
        ({"layer_types": ["new_attention", "full_attention"]}, "plan-model-unsupported"),
        ({"layer_types": ["linear_attention", "full_attention"]}, "plan-config-size-invalid"),
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
    cache = planned_cache(models, 2, parallel, 16)
    assert (cache.block_bytes, cache.tokens, cache.states) == (pages, (16,), 0)


def states_of(config: dict[str, Any], parallel: int) -> tuple[int, int, Any]:
    """How many layers attend, how many keep a state, and vLLM's description of one."""
    import torch
    from vllm.model_executor.layers.mamba.mamba_utils import MambaStateShapeCalculator as Shapes
    from vllm.v1.kv_cache_interface import MambaSpec

    text, wide = config.get("text_config", config), torch.bfloat16
    if "linear_num_key_heads" in text:
        names = ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim")
        sizes = [text[f"linear_{name}"] for name in (*names, "conv_kernel_dim")]
        shapes = Shapes.gated_delta_net_state_shape(parallel, *sizes)
        kinds = text.get("layer_types") or (["linear_attention"] * 3 + ["attention"]) * 12
        wide = torch.float32 if "mamba_ssm_dtype" in text else wide
    elif text["model_type"] == "lfm2":
        shapes = Shapes.short_conv_state_shape(parallel, text["conv_dim"], text["conv_L_cache"])
        kinds = text["layer_types"]
    elif text["model_type"] == "nemotron_h":
        heads, size = text["mamba_num_heads"], text["mamba_head_dim"]
        sizes = [heads * size, text["n_groups"], heads, size, text["ssm_state_size"]]
        shapes = Shapes.mamba2_state_shape(parallel, *sizes, text["conv_kernel"])
        kinds = [{"M": "mamba", "*": "attention"}.get(k) for k in text["hybrid_override_pattern"]]
        wide = torch.float32
    else:
        heads, size = text["mamba_n_heads"], text["mamba_d_head"]
        sizes = [heads * size, text["mamba_n_groups"], heads, size, text["mamba_d_state"]]
        shapes = Shapes.mamba2_state_shape(parallel, *sizes, text["mamba_d_conv"])
        kinds = text.get("layer_types") or ["attention", "mamba"] * text["num_hidden_layers"]
    attending = sum(kind in ("attention", "full_attention") for kind in kinds)
    keeping = sum(kind in ("mamba", "linear_attention", "conv") for kind in kinds)
    dtypes = (torch.bfloat16, wide)[: len(shapes)]
    return attending, keeping, MambaSpec(block_size=16, shapes=shapes, dtypes=dtypes)


@pytest.mark.parametrize("parallel", [1, 4])
@pytest.mark.parametrize(
    ("senior", "junior"),
    [
        (QWEN3_5_9B, QWEN3_5_9B),
        (QWEN3_NEXT, QWEN3_2B),
        (GRANITE_4_SMALL, LFM2),
        (FALCON_H1, LLAMA_8B),
        (FALCON_H1, QWEN3_4B),
        (NEMOTRON_H, QWEN3_5_9B | {"text_config": QWEN3_5_9B["text_config"] | {"head_dim": 128}}),
        (LFM2, GRANITE_4_SMALL),
    ],
)
def test_pages_and_states_are_those_of_vllms_own_accounting(
    tmp_path: Path, senior: dict[str, Any], junior: dict[str, Any], parallel: int
) -> None:
    interface = pytest.importorskip("vllm.v1.kv_cache_interface")
    from dataclasses import replace

    import torch
    from vllm.v1.core import kv_cache_utils

    specs: dict[str, Any] = {}
    models: list[PlannedModel] = []
    for name, config in {"senior": senior, "junior": junior}.items():
        model = read_checkpoint(str(checkpoint(tmp_path / name, config)))
        attention = interface.FullAttentionSpec(
            block_size=16,
            num_kv_heads=max(1, model.kv_heads // parallel),
            head_size=model.head_size,
            dtype=torch.bfloat16,
        )
        attending, keeping, state = model.layers, 0, None
        if model.states is not None:
            attending, keeping, state = states_of(config, parallel)
            assert model.states.size(2, parallel) == state.page_size_bytes
        models.append(model)
        specs |= {f"{name}.{layer}.attention": attention for layer in range(attending)}
        specs |= {f"{name}.{layer}.state": state for layer in range(keeping)}
    # As Platform._align_hybrid_block_size does with all of both models' states.
    of_senior = specs["senior.0.attention"].page_size_bytes
    largest = max(spec.page_size_bytes for name, spec in specs.items() if name.endswith("state"))
    block = 16 * max(1, -(-largest // of_senior))
    for name, spec in specs.items():
        padded = {"page_size_padded": block // 16 * of_senior} if name.endswith("state") else {}
        specs[name] = replace(spec, block_size=block, **padded)
    unified = kv_cache_utils.unify_kv_cache_spec_page_size(specs)
    groups = kv_cache_utils._get_kv_cache_groups_uniform_page_size(unified)
    found = [group.kv_cache_spec for group in groups]
    cache = planned_cache(models, 2, parallel, 16)
    assert cache.block_bytes == kv_cache_utils._get_kv_cache_bytes_per_block(groups)
    attending = [spec for spec in found if isinstance(spec, interface.FullAttentionSpec)]
    assert sorted(cache.tokens) == sorted(spec.block_size for spec in attending)
    assert cache.states == 2 * (len(found) - len(attending))


def test_longest_sequence_is_the_longest_that_its_blocks_hold() -> None:
    for cache in (
        PlannedCache(1, (16,)),
        PlannedCache(1, (64, 16, 16), 6),
        PlannedCache(1, (32, 16), 2),
    ):
        for blocks in range(60):
            longest = cache.longest_sequence(blocks)
            assert longest == 0 or cache.blocks_of(longest) < blocks
            assert cache.blocks_of(longest + 1) >= blocks


def test_vision_weights_and_drafting_layers_are_not_counted(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "model", QWEN3_5_9B, 0)
    names = ("model.language_model.a", "lm_head.weight", "model.visual.b", "mtp.c")
    shard(folder / "model.safetensors", {name: ([8], 16) for name in names})
    assert read_checkpoint(str(folder)).parameters == 16


def gemma_3_4b(folder: Path, **text: Any) -> Path:
    """As published: transformers leaves a class's defaults out of nested configurations."""
    nested = {"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34, **text}
    config = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "vision_config": {},
        "text_config": nested,
    }
    return checkpoint(folder, config)


def test_a_nested_configuration_gets_what_it_leaves_out(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    found = read_checkpoint(str(gemma_3_4b(tmp_path)))
    sizes = (found.layers, found.kv_heads, found.head_size, found.longest)
    assert sizes == (34, 4, 256, 131072)  # 2,560 / 8 heads would be 320
    own = read_checkpoint(str(gemma_3_4b(tmp_path / "own", num_key_value_heads=2)))
    assert own.kv_heads == 2


def test_a_nested_configuration_that_cannot_be_completed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    with refused("plan-config-unreadable"):
        read_checkpoint(str(gemma_3_4b(tmp_path / "wrong", num_attention_heads="many")))
    monkeypatch.setitem(sys.modules, "transformers.models.auto.configuration_auto", None)
    with refused("plan-config-size-invalid", key="num_attention_heads"):
        read_checkpoint(str(gemma_3_4b(tmp_path / "partial")))


def test_a_name_that_the_hub_does_not_give_is_not_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    huggingface_hub = pytest.importorskip("huggingface_hub")

    def fails(*_: object, **__: object) -> str:
        raise OSError("no network")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fails)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    with refused("plan-model-not-found", name="owner/none"):
        planning.read_checkpoint("owner/none")
