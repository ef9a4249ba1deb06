"""The plan's KV blocks are those of vLLM's own accounting, for layers of every geometry."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from planned_models import LLAMA_8B, MIXTURE, QWEN3_2B, QWEN3_4B, checkpoint

from tandem_plugin.lab.planning.checkpoint import read_checkpoint
from tandem_plugin.lab.planning.geometry import Geometry, KvCache

interface = pytest.importorskip("vllm.v1.kv_cache_interface")

import torch  # noqa: E402  # it is there where vLLM is
from vllm.v1.core import kv_cache_utils  # noqa: E402

DEEPSEEK = {
    "model_type": "deepseek_v3",
    "num_hidden_layers": 4,
    "hidden_size": 512,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "intermediate_size": 1024,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
}
SMALL = QWEN3_2B | {"num_key_value_heads": 2, "head_dim": 64, "num_hidden_layers": 5}


def specifications(models: list[Geometry], block: int, parallel: int) -> dict[str, Any]:
    """What vLLM's attention layers of these models say of their caches."""
    found: dict[str, Any] = {}
    for number, model in enumerate(models):
        for layer in range(model.layers):
            if model.latent is not None:
                spec = interface.MLAAttentionSpec(
                    block_size=block,
                    num_kv_heads=1,
                    head_size=model.latent,
                    dtype=torch.bfloat16,
                )
            else:
                spec = interface.FullAttentionSpec(
                    block_size=block,
                    num_kv_heads=max(1, model.kv_heads // parallel),
                    head_size=model.head_size,
                    dtype=torch.bfloat16,
                )
            found[f"{number}.{layer}"] = spec
    return found


@pytest.mark.parametrize("parallel", [1, 4, 16])
@pytest.mark.parametrize("block", [16, 128])
@pytest.mark.parametrize(
    "pair",
    [
        (QWEN3_4B, QWEN3_4B),
        (QWEN3_4B, QWEN3_2B),
        (LLAMA_8B, LLAMA_8B | {"num_hidden_layers": 16, "head_dim": 64}),
        (QWEN3_4B, SMALL),
        (DEEPSEEK, DEEPSEEK),
    ],
)
def test_blocks_are_those_of_vllms_own_accounting(
    pair: tuple[dict[str, Any], dict[str, Any]], block: int, parallel: int
) -> None:
    models = [Geometry.of(config, "a model") for config in pair]
    specs = specifications(models, block, parallel)
    config: Any = SimpleNamespace(
        scheduler_config=SimpleNamespace(disable_hybrid_kv_cache_manager=False)
    )
    groups = kv_cache_utils.get_kv_cache_groups(config, dict(specs))
    (group,) = groups
    whole = sum(spec.page_size_bytes for spec in specs.values())
    cache = KvCache.of(models, 2, parallel, block)
    assert len(group.layer_names) == len(specs)
    assert cache.bytes_per_block == whole
    memory = 20 * 2**30
    assert cache.blocks(memory) == memory // whole


@pytest.mark.parametrize("config", [QWEN3_4B, LLAMA_8B, MIXTURE])
def test_sizes_are_those_that_vllm_reads(tmp_path: Path, config: dict[str, Any]) -> None:
    from vllm.config import ModelConfig

    folder = checkpoint(tmp_path / "model", config | {"dtype": "bfloat16"})
    theirs = ModelConfig(model=str(folder), skip_tokenizer_init=True, tokenizer=str(folder))
    ours = read_checkpoint(str(folder)).geometry
    for parallel in (1, 8, 16):
        together: Any = SimpleNamespace(tensor_parallel_size=parallel, pipeline_parallel_size=1)
        heads = theirs.get_num_kv_heads(together)
        assert ours.kv_values(parallel) == 2 * heads * theirs.get_head_size()
    assert ours.layers == theirs.get_total_num_hidden_layers()
    assert ours.vocabulary == theirs.get_vocab_size()
    assert ours.hidden == theirs.get_hidden_size()
    assert ours.longest == theirs.max_model_len
