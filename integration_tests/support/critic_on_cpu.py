"""Test hook: verl's critic asks for FlashAttention 2 by its name, which a CPU lacks."""

from typing import Any

from transformers import AutoModelForTokenClassification

_load = AutoModelForTokenClassification.from_pretrained


def _with_sdpa(*arguments: Any, **given: Any) -> Any:
    return _load(*arguments, **{**given, "attn_implementation": "sdpa"})


AutoModelForTokenClassification.from_pretrained = _with_sdpa
