"""Small tokenizers of every family, and boundaries by the text of a token."""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("tokenizers")
from tokenizers import (  # after the skip
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

TEXT = [
    "The senior writes one word. The junior writes the next!\n\nWho wrote this? (Nobody knows.)\n",
    "Step 1: add 2 and 3.\n\nStep 2: so x = 5.\n\nIt is 3.14, e.g. in “quotes.” 你好。再见！\n",  # noqa: RUF001
    "def f(x):\n    return x\n\n\nprint(f(3))  # done.\n",
] * 3

BYTE_PIECES = [f"<0x{byte:02X}>" for byte in range(256)]
QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@functools.cache
def sentence_pattern() -> Any:
    regex = pytest.importorskip("regex", reason="knows Unicode's Sentence_Terminal")
    return regex.compile(r"[\p{STerm}…][\p{Pe}\p{Pi}\p{Pf}\"'\s]*\Z|[\n\r\x85\u2028\u2029]")


def sentence_by_regex(text: str) -> bool:
    return sentence_pattern().search(text) is not None


_UNSPACED = (
    *("CJK UNIFIED IDEOGRAPH", "CJK COMPATIBILITY IDEOGRAPH", "CJK RADICAL", "KANGXI RADICAL"),
    *("IDEOGRAPHIC ITERATION MARK", "VERTICAL IDEOGRAPHIC ITERATION MARK", "BOPOMOFO LETTER"),
    *("HIRAGANA ", "KATAKANA ", "HALFWIDTH KATAKANA LETTER", "CIRCLED KATAKANA"),
    *("THAI CHARACTER", "LAO ", "YI ", "TAI ", "KHMER LETTER", "KHMER INDEPENDENT VOWEL"),
    "MYANMAR LETTER",
)
"""How the names of their characters begin, for scripts without spaces between words."""


def _is_unspaced(character: str) -> bool:
    if unicodedata.category(character) not in ("Lo", "Lm", "So"):
        return False
    if unicodedata.name(character, "").endswith((" SARA AM", "VOWEL SIGN AM")):
        return False  # part of the character before it
    is_square = "\u3300" <= character <= "\u3357"  # SQUARE APAATO to SQUARE WATTO: Katakana
    return is_square or unicodedata.name(character, "").startswith(_UNSPACED)


def _is_katakana(character: str) -> bool:
    return unicodedata.name(character, "").startswith("KATAKANA")  # the prolonged sound mark too


def word_any_by_names(text: str) -> bool:
    """By the names of characters, which the resolver does not use; a run of Katakana is a word."""
    if "\ufffd" in text:  # bytes that are no character
        return False
    return text.startswith(" ") or any(
        _is_unspaced(letter)
        and not unicodedata.category(before).startswith("M")
        and not (_is_katakana(before) and _is_katakana(letter))
        for before, letter in zip(f" {text}", text, strict=False)
    )


ORACLES: dict[str, Callable[[str], bool]] = {
    "word": lambda text: text.startswith(" "),
    "word-any": word_any_by_names,
    "sentence": sentence_by_regex,
    "step": lambda text: "\n\n" in text,
    "newline": lambda text: "\n" in text,
    "every": lambda text: True,
}


def gpt2() -> Any:
    return pre_tokenizers.ByteLevel(add_prefix_space=False)


def split(pattern: str) -> list[Any]:
    return [
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]


def byte_level_bpe(parts: list[Any] | None = None) -> Any:
    """With Qwen's pre-tokenizer, or another one."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(parts or split(QWEN))
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    core.train_from_iterator(TEXT, trainer)
    if not any("ĊĊ" in piece for piece in core.get_vocab()):
        core.add_tokens(["ĊĊ-like\n\n"])  # as rare as a token can be
    return core


def unigram_with_byte_fallback() -> Any:
    words = ["▁", "▁the", "▁senior", "writes", ".", "▁.", "!", "?\u201d", "。", "x", "▁▁"]
    pieces = ["<unk>", "<s>", *BYTE_PIECES, *words]
    core = Tokenizer(models.Unigram([(p, -1.0) for p in pieces], unk_id=0, byte_fallback=True))
    core.pre_tokenizer = pre_tokenizers.Metaspace()
    core.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="never")]
    )
    core.add_special_tokens(["<unk>", "<s>"])
    return core


def llama_like_bpe() -> Any:
    """Spaces replaced by a normalizer and no pre-tokenizer, as in Llama 2 and Gemma."""
    words = ["▁", "▁a", "▁ab", "a", "b", ".", "\n", "\n\n", "▁▁", "?", ")"]
    vocab = {piece: i for i, piece in enumerate(["<unk>", "<s>", *BYTE_PIECES, *words])}
    merges = [("▁", "a"), ("▁a", "b"), ("▁", "▁"), ("\n", "\n")]
    core = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", byte_fallback=True))
    core.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    core.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback()])
    core.add_special_tokens(["<unk>", "<s>"])
    return core
