"""Which engines may run the junior's pass beside the senior's, and which may not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from refused import refused

from tandem_plugin.engine import streams


def model(**changes: Any) -> Any:
    experts = changes.pop("experts", 0)
    plain = {"use_mla": False, "is_hybrid": False, "is_attention_free": False, "quantization": None}
    return SimpleNamespace(get_num_experts=lambda: experts, **(plain | changes))


def engine(senior: Any = None, *, asked: bool = True, **changes: Any) -> Any:
    config = {
        "parallel_config": SimpleNamespace(tensor_parallel_size=1),
        "lora_config": None,
        "offload_config": SimpleNamespace(prefetch=SimpleNamespace(offload_group_size=0)),
    }
    return SimpleNamespace(
        additional_config={"tandem": {"junior_stream": asked}},
        model_config=senior or model(),
        **(config | changes),
    )


SHARING: list[tuple[str, dict[str, Any]]] = [
    (
        "tensor_parallel_size=2",
        {"parallel_config": SimpleNamespace(tensor_parallel_size=2)},
    ),
    (
        "dual-batch overlap",
        {"parallel_config": SimpleNamespace(tensor_parallel_size=1, use_ubatching=True)},
    ),
    ("adapters (LoRA)", {"lora_config": object()}),
    (
        "prefetched weights",
        {"offload_config": SimpleNamespace(prefetch=SimpleNamespace(offload_group_size=4))},
    ),
]
KINDS: list[tuple[str, dict[str, Any]]] = [
    ("a mixture of experts", {"experts": 8}),
    ("latent attention", {"use_mla": True}),
    ("linear attention", {"is_hybrid": True}),
    ("linear attention", {"is_attention_free": True}),
    ("a quantised model", {"quantization": "fp8"}),
]


@pytest.mark.parametrize(("what", "changes"), SHARING)
def test_engine_whose_passes_share_memory_is_refused(what: str, changes: dict[str, Any]) -> None:
    streams.check_junior_stream(engine(), model())
    streams.check_junior_stream(engine(asked=False, **changes), model())
    with refused("junior-stream-unsupported", what=what):
        streams.check_junior_stream(engine(**changes), model())


@pytest.mark.parametrize(("what", "changes"), KINDS)
def test_either_model_of_a_kind_that_shares_memory_is_refused(
    what: str, changes: dict[str, Any]
) -> None:
    for one, other in ((model(**changes), model()), (model(), model(**changes))):
        with refused("junior-stream-unsupported", what=what):
            streams.check_junior_stream(engine(one), other)


def test_an_old_vllm_that_prefetches_no_weights_is_none_of_these() -> None:
    found = engine()
    del found.offload_config
    streams.check_junior_stream(found, model())


def test_juniors_attention_backends_are_told_apart_by_name() -> None:
    class Backend:
        @classmethod
        def full_cls_name(cls) -> tuple[str, str]:
            return cls.__module__, cls.__qualname__

    own = streams._separate(Backend)
    assert own is streams._separate(Backend)
    assert issubclass(own, Backend)
    assert own.full_cls_name() != Backend.full_cls_name()
