"""What a tandem class tells vLLM of recurrent states: both models'."""

from __future__ import annotations

from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest
from torch import nn

from tandem_plugin.engine import hybrid

needs_vllm = pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")


class Delta(nn.Module):
    is_hybrid = True

    @classmethod
    def get_mamba_state_copy_funcs(cls, kinds: set[str]) -> dict[str, str]:
        assert kinds == {"delta"}, "only of its own kinds"
        return dict.fromkeys(kinds, "of delta")

    @classmethod
    def get_mamba_state_shape_from_config(cls, config: Any) -> Any:
        return ((3, config.width), (4, config.width))

    @classmethod
    def get_mamba_state_dtype_from_config(cls, config: Any) -> Any:
        import torch

        return (torch.bfloat16, torch.float32)


class Short(Delta):
    @classmethod
    def get_mamba_state_copy_funcs(cls, kinds: set[str]) -> dict[str, str]:
        assert kinds == {"short"}
        return dict.fromkeys(kinds, "of short")

    @classmethod
    def get_mamba_specs_from_config(cls, config: Any) -> Any:
        return iter([("listed", config.width)])


def test_class_of_an_attention_only_senior_gets_nothing() -> None:
    assert hybrid.members(nn.Linear) == {}
    assert len(hybrid.members(Delta)) == 2


def test_states_of_each_kind_are_copied_as_their_own_model_copies_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kinds = {Delta: {"delta"}, Short: {"short"}, nn.Linear: set()}
    monkeypatch.setattr(hybrid, "state_kinds", lambda model: kinds[type(model)])

    def senior_of(junior: nn.Module | None) -> Any:
        senior: Any = Delta()
        object.__setattr__(senior, "_senior", Delta)
        if junior is not None:
            object.__setattr__(senior, "junior", junior)
        return senior

    both = {"delta", "short"}
    assert hybrid._state_copies(senior_of(Short()), both) == {
        "delta": "of delta",
        "short": "of short",
    }
    for junior in (Delta(), nn.Linear(1, 1), None):  # None: in the speculative mode
        assert hybrid._state_copies(senior_of(junior), {"delta"}) == {"delta": "of delta"}


@needs_vllm
def test_pages_are_sized_for_the_states_of_both_models(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.model_executor.models import ModelRegistry

    classes = {"Delta": Delta, "Short": Short}
    junior = SimpleNamespace(architecture="Short", is_hybrid=True)
    config = SimpleNamespace(width=7, model_config=junior)
    monkeypatch.setattr(hybrid, "junior_config", lambda vllm_config: config)
    monkeypatch.setattr(
        ModelRegistry, "resolve_model_cls", lambda name, model_config: (classes[name], name)
    )
    tandem = type("TandemDelta", (Delta,), {"_senior": Delta, **hybrid.members(Delta)})
    own, of_junior = tandem.get_mamba_specs_from_config(SimpleNamespace(width=5))
    assert own.page_size_bytes == 3 * 5 * 2 + 4 * 5 * 4
    assert of_junior == ("listed", 7)
    junior.architecture = "Delta"
    _, of_junior = tandem.get_mamba_specs_from_config(SimpleNamespace(width=5))
    assert of_junior.page_size_bytes == 3 * 7 * 2 + 4 * 7 * 4
    junior.is_hybrid = False
    assert len(tandem.get_mamba_specs_from_config(SimpleNamespace(width=5))) == 1
