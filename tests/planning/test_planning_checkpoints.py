"""What a plan reads of checkpoints: sizes from configurations, and from weights where they lie."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from planned_models import LLAMA_8B, MIXTURE, QWEN3_2B, QWEN3_4B, checkpoint
from refused import refused

from tandem_plugin.lab.planning.checkpoint import read_checkpoint


@pytest.mark.parametrize(
    ("config", "parameters"),
    [(QWEN3_4B, 4_022_468_096), (QWEN3_2B, 1_720_574_976), (LLAMA_8B, 8_030_261_248)],
)
def test_parameters_of_published_models_are_counted_exactly(
    tmp_path: Path, config: dict[str, Any], parameters: int
) -> None:
    found = read_checkpoint(str(checkpoint(tmp_path / "model", config)))
    assert (found.parameters, found.counted) == (parameters, "config.json")


@pytest.mark.parametrize(
    "config",
    [
        QWEN3_4B,
        LLAMA_8B,
        LLAMA_8B | {"attention_bias": True, "mlp_bias": True},
        LLAMA_8B | {"model_type": "mistral"},
        QWEN3_4B | {"model_type": "qwen2", "tie_word_embeddings": False},
        LLAMA_8B | {"model_type": "phi3", "pad_token_id": 0},
        MIXTURE,
        MIXTURE | {"decoder_sparse_step": 2},
        LLAMA_8B | {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2},
    ],
)
def test_counted_parameters_are_those_that_transformers_makes(
    tmp_path: Path, config: dict[str, Any]
) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    small = config | {"num_hidden_layers": 3, "hidden_size": 256, "vocab_size": 999}
    small |= {"intermediate_size": 384, "num_attention_heads": 8, "num_key_value_heads": 2}
    fields = {k: v for k, v in small.items() if k not in ("architectures", "model_type")}
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(
            transformers.AutoConfig.for_model(config["model_type"], **fields)
        )
    made = sum(parameter.numel() for parameter in model.parameters())
    assert read_checkpoint(str(checkpoint(tmp_path / "model", small))).parameters == made


def shard(file: Path, tensors: dict[str, tuple[list[int], int]]) -> None:
    """A file of safetensors without its data. tensors: shape and bytes by name."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    start = 0
    for name, (shape, size) in tensors.items():
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [start, start + size]}
        start += size
    written = json.dumps(header).encode()
    file.write_bytes(len(written).to_bytes(8, "little") + written)


def test_headers_of_weights_are_read_before_anything_is_counted(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "model", QWEN3_2B | {"model_type": "somebodys_own"})
    shard(folder / "model-1.safetensors", {"model.a": ([7, 11], 154)})
    shard(folder / "model-2.safetensors", {"lm_head.weight": ([5, 3], 30), "model.b": ([2], 4)})
    found = read_checkpoint(str(folder))
    assert (found.parameters, found.counted) == (79, "safetensors"), "the tied head counts once"
    assert found.weights(width=2) == 158


def test_the_index_alone_says_how_large_weights_are(tmp_path: Path) -> None:
    folder = checkpoint(
        tmp_path / "model", QWEN3_2B | {"model_type": "somebodys_own", "dtype": "bfloat16"}
    )
    listed = {"metadata": {"total_size": 5000}, "weight_map": {"a": "model-1.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(listed))
    assert read_checkpoint(str(folder)).parameters == 2500


def test_quantised_weights_take_what_they_take_on_disk(tmp_path: Path) -> None:
    config = QWEN3_2B | {"quantization_config": {"quant_method": "fp8"}}
    folder = checkpoint(tmp_path / "model", config)
    with refused("TP933"):
        read_checkpoint(str(folder))
    shard(folder / "model.safetensors", {"model.a": ([100], 100), "model.scale": ([1], 4)})
    assert read_checkpoint(str(folder)).weights(width=2) == 104
    (folder / "model.safetensors").write_bytes(b"\xff" * 64)
    with refused("TP935"):
        read_checkpoint(str(folder))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"model_type": "somebodys_own"}, "TP933"),
        ({"hidden_size": None}, "TP940"),
        ({"vocab_size": "many"}, "TP940"),
        ({"vision_config": {}}, "TP938"),
        ({"layer_types": ["linear_attention"] * 36}, "TP939"),
        ({"kv_lora_rank": 512}, "TP941"),
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
        (None, "TP761"),
        ("{", "TP931"),
        ("[]", "TP932"),
    ],
)
def test_a_folder_without_a_configuration_is_no_checkpoint(
    tmp_path: Path, content: str | None, code: str
) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with refused(code):
        read_checkpoint(str(tmp_path))
