"""``tandem plan`` beside a real engine: the KV blocks that it reports, and its weights."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support import image_faults, worker
from support.commands import TANDEM
from support.drafting import has_drafting
from support.engine import tandem_engine
from support.families import make_family
from support.hybrids import with_states
from support.images import make_seeing
from support.models import make_model
from support.vision_packages import offer_torchvision

pytestmark = [pytest.mark.long, pytest.mark.engine]

BLOCK = 128
"""Tokens of a block on a CPU."""


def planned(senior: Path, junior: Path, *more: str) -> dict[str, Any]:
    machine = ["--memory", "8", "--max-model-len", "256", *more]
    models = ["--senior", str(senior), "--junior", str(junior)]
    command = [*TANDEM, "plan", *models, *machine, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"hidden": 96, "layers": 3, "heads": 6, "kv_heads": 3},
        {"layers": 4, "heads": 4, "kv_heads": 1, "head_dim": 64},
    ],
    ids=["equal", "other width and depth", "other head size"],
)
def test_blocks_and_weights_are_those_that_an_engine_reports(
    tmp_path: Path, checkpoints: dict[str, Path], tokenizer: Any, shape: dict[str, Any]
) -> None:
    senior = checkpoints["senior"]
    junior = make_model(tmp_path / "junior", seed=3, tokenizer=tokenizer, **shape)
    plan = planned(senior, junior)
    # vLLM on a CPU takes the variable before any argument.
    memory = float(os.environ["VLLM_CPU_KVCACHE_SPACE"]) * 2**30
    blocks = memory // (2 * plan["kv_block_bytes"] / 16 * BLOCK)  # float32
    with tandem_engine("v1", senior, {"junior": junior}) as engine:
        reported = engine.llm_engine.vllm_config.cache_config
        (held,) = engine.collective_rpc(worker.weight_bytes)
    assert reported.block_size == BLOCK
    assert blocks == pytest.approx(reported.num_gpu_blocks, rel=0.01)
    found = (2 * plan["senior"]["weights"], 2 * plan["junior"]["weights"])
    assert found == pytest.approx(held, rel=0.01)


@pytest.mark.skipif(not has_drafting(), reason="images need vLLM 0.29")
@pytest.mark.skipif(not offer_torchvision(), reason="no torchvision: constraints/install.py")
def test_weights_for_images_are_those_of_both_models_and_towers(tmp_path: Path) -> None:
    senior = make_seeing(tmp_path / "senior", "qwen2.5-vl", seed=0)
    junior = make_seeing(tmp_path / "junior", "qwen2.5-vl", seed=1, hidden=96)
    step = {"max_num_batched_tokens": 512}
    plan = planned(senior, junior, "--images", "--max-num-batched-tokens", "512")
    settings = {"max_model_len": 512, "limit_mm_per_prompt": {"image": 1}, **step}
    with tandem_engine("v1", senior, {"junior": junior, "images": True}, **settings) as engine:
        (held,) = engine.collective_rpc(worker.weight_bytes)
        (encoded,) = engine.collective_rpc(image_faults.encoding_widths)
    found = (2 * plan["senior"]["weights"], 2 * plan["junior"]["weights"])
    vocabulary = json.loads((senior / "config.json").read_text())["text_config"]["vocab_size"]
    added = [-vocabulary % 64 * 2 * 4 * width for width in encoded]  # vLLM pads both ends to 64
    assert found == tuple(size - padding for size, padding in zip(held, added, strict=True))
    assert plan["encoder_cache_bytes"] == 2 * 512 * sum(encoded)
    assert plan["embeddings_bytes"] == 2 * 512 * sum(encoded)


@pytest.mark.skipif(not has_drafting(), reason="recurrent states need vLLM 0.29")
@pytest.mark.parametrize(
    ("senior", "junior"), [("qwen3.5", "granite4-wide"), ("granite4", "qwen3-wide")]
)
def test_blocks_of_states_are_those_that_an_engine_reports(
    tmp_path: Path, tokenizer: Any, senior: str, junior: str
) -> None:
    from tandem_plugin.lab.planning import planned_cache, read_checkpoint

    models = [
        make_family(tmp_path / role, family, seed=0, tokenizer=tokenizer)
        for role, family in (("senior", senior), ("junior", junior))
    ]
    # The command's own unit is a GPU's block, which vLLM enlarges to other sizes.
    cache = planned_cache([read_checkpoint(str(model)) for model in models], 4, 1, BLOCK)
    with (
        with_states() as options,
        tandem_engine("v1", models[0], {"junior": models[1]}, **options) as engine,
    ):
        reported = engine.llm_engine.vllm_config.cache_config
        groups = engine.collective_rpc(worker.cache_groups)[0]
    blocks = float(os.environ["VLLM_CPU_KVCACHE_SPACE"]) * 2**30 // cache.block_bytes
    assert blocks == pytest.approx(reported.num_gpu_blocks, rel=0.01)
    attention = [size for kind, size in groups if kind == "FullAttentionSpec"]
    assert sorted(cache.tokens) == sorted(attention)
    assert cache.states == 2 * (len(groups) - len(attention))
