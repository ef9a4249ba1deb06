"""What a tandem engine refuses at its start, where no engine is needed to see it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from refused import refused

from tandem_plugin.engine.junior import (
    named_with_quantisation,
    with_overrides,
)
from tandem_plugin.engine.unsupported import AttentionShape, check_attention_shapes, check_config

QWEN3_4B = AttentionShape(32, 8, 128, is_latent=False)
QWEN3_17B = AttentionShape(16, 8, 128, is_latent=False)
LLAMA_1B = AttentionShape(32, 8, 64, is_latent=False)
LATENT = AttentionShape(16, 1, 576, is_latent=True)


OTHERS = [QWEN3_17B, LLAMA_1B, AttentionShape(32, 4, 128, is_latent=False)]
"""Than Qwen3-4B's: fewer heads, smaller ones, fewer caches."""


@pytest.mark.parametrize(
    ("device", "version", "pairs"),
    [
        *(("cuda", v, [(QWEN3_4B, o) for o in OTHERS]) for v in ("0.24.0", "0.28.3rc1", "dev")),
        ("cuda", "0.29.0", [(LLAMA_1B, QWEN3_4B)]),
        *((device, "0.32.0", [(QWEN3_4B, QWEN3_17B)]) for device in ("rocm", "xpu", "")),
        *((d, "0.32.0", [(LATENT, QWEN3_4B), (QWEN3_4B, LATENT)]) for d in ("cpu", "cuda")),
    ],
)
def test_junior_of_another_geometry_is_refused_where_vllm_does_not_plan_for_it(
    device: str, version: str, pairs: list[tuple[AttentionShape, AttentionShape]]
) -> None:
    for senior, junior in pairs:
        with refused("attention-kinds-differ"):
            check_attention_shapes(senior, junior, device, version)
        check_attention_shapes(senior, senior, device, version)


@pytest.mark.parametrize("version", ["0.29.0", "0.32.0", "1.0.0"])
def test_junior_of_another_geometry_runs_from_vllm_0_29_on(version: str) -> None:
    for junior in OTHERS:
        check_attention_shapes(QWEN3_4B, junior, "cuda", version)
        check_attention_shapes(QWEN3_4B, junior, "cpu", "0.24.0")


def test_overrides_of_a_configuration_are_kept_whatever_their_form() -> None:
    more = {"architectures": ["X"]}
    assert with_overrides(None, more) == more
    assert with_overrides({"rope_theta": 1.0}, more) == {"rope_theta": 1.0, **more}

    def override(config: dict[str, Any]) -> dict[str, Any]:
        return {**config, "rope_theta": 1.0}

    assert with_overrides(override, more)({"a": 1}) == {"a": 1, "rope_theta": 1.0, **more}


def test_an_engine_that_does_not_generate_is_refused() -> None:
    config = SimpleNamespace(
        model_config=SimpleNamespace(runner_type="pooling"),
        parallel_config=SimpleNamespace(enable_batch_sharded_sampling=False),
    )
    with refused("runner-not-generative", runner="pooling"):
        check_config(config)


@pytest.mark.parametrize(
    "error",
    [ValueError("no kernel"), NotImplementedError("not for float"), RuntimeError("no operator")],
)
def test_quantisation_without_a_kernel_is_named_however_vllm_says_so(error: Exception) -> None:
    junior = SimpleNamespace(model="a/junior", quantization="fp8")
    with (
        refused("junior-quantization-unsupported", path="a/junior", quantization="fp8") as caught,
        named_with_quantisation(junior),
    ):
        raise error
    assert str(error) in caught.value.fields["reason"]


@pytest.mark.parametrize(
    ("quantization", "error"),
    [(None, RuntimeError("other")), ("fp8", torch.OutOfMemoryError("full"))],
)
def test_what_is_not_of_the_quantisation_stays_as_it_is(
    quantization: str | None, error: Exception
) -> None:
    junior = SimpleNamespace(model="a/junior", quantization=quantization)
    with pytest.raises(type(error)), named_with_quantisation(junior):
        raise error
