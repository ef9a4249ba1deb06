"""Small SentencePiece models, trained where a test needs them."""

from __future__ import annotations

import io
from typing import Any

import pytest


def sentencepiece_model(**options: Any) -> bytes:
    """The file of a model of byte pieces and some words, trained with these options."""
    sentencepiece = pytest.importorskip("sentencepiece")
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["The senior writes one word.", "The junior writes the next!"] * 5),
        model_writer=model,
        model_type="bpe",
        vocab_size=300,
        byte_fallback=True,
        minloglevel=2,
        **options,
    )
    return model.getvalue()
