"""Test hook: verl's critic without flash-attn, which its value head asks for by name."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from tandem_plugin.patching.after_import import after_import


def _with_sdpa(module: ModuleType) -> None:
    model = module.AutoModelForTokenClassification
    original = model.from_pretrained.__func__

    def from_pretrained(cls: type, *args: Any, **options: Any) -> Any:
        return original(cls, *args, **{**options, "attn_implementation": "sdpa"})

    model.from_pretrained = classmethod(from_pretrained)


after_import("transformers.models.auto.modeling_auto", _with_sdpa)
