"""Adapters (LoRA) as vLLM would put them around a senior's layers."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from torch import nn

from tandem_plugin.engine.patches.lora import adapt_no_ends

ENDS = {"embed_tokens": "input_embeddings", "lm_head": "output_embeddings"}


class Named(nn.Module):
    """A model that names its ends, as vLLM's classes do."""

    embedding_modules = ENDS


def test_no_ends_are_adapted_of_a_model_or_of_one_within_it() -> None:
    senior = Named()
    senior.language_model = Named()
    adapt_no_ends(senior)
    assert not senior.embedding_modules
    assert not senior.language_model.embedding_modules
    assert Named.embedding_modules == ENDS  # engines without adapters keep theirs
