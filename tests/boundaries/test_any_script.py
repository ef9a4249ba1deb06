"""``word-any`` on real vocabularies, against the names of characters, and in three scripts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from small_tokenizers import ORACLES

from tandem_plugin import TandemConfig, TandemRules, Vocabulary, resolve_boundaries

_PRINTABLE = {*range(33, 127), *range(161, 173), *range(174, 256)}
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]
_LETTERS = {byte: chr(byte) for byte in _PRINTABLE} | {
    byte: chr(256 + place) for place, byte in enumerate(_OTHERS)
}
"""How vocabularies of GPT-2's kind write each byte."""

RealTokenizer = Callable[[str], Path]
FILES = {
    "qwen/vocab.json": (53_021, 82_973),
    "gpt2/encoder.json": (33_135, 33_247),
    "t5/tokenizer.json": (21_987, 21_987),
}


@pytest.mark.parametrize("file", FILES)
def test_real_vocabulary_has_the_words_of_its_scripts(
    real_tokenizer: RealTokenizer, file: str
) -> None:
    vocabulary = Vocabulary.from_path(real_tokenizer(file))
    table = resolve_boundaries("word-any", vocabulary).table
    spaced = resolve_boundaries("word", vocabulary).table
    assert (int(spaced.sum()), int(table.sum())) == FILES[file]
    differing = []
    for token_id, content in enumerate(vocabulary.texts()):
        text = content.decode("utf-8", "replace")
        is_whole = text.encode() == content
        assert not table[token_id] or is_whole
        if is_whole and "\ufffd" not in text and table[token_id] != ORACLES["word-any"](text):
            differing.append(text)
        assert not is_whole or table[token_id] or not spaced[token_id]
    assert differing == []


@pytest.mark.parametrize(
    ("text", "at_least"),
    [
        ("我们先计算两个数的和然后再把结果乘以三。", 0.6),
        ("まず二つの数を足して、それから三を掛けます。", 0.6),
        ("เราบวกตัวเลขสองตัวก่อนแล้วคูณด้วยสาม", 0.3),
    ],
)
def test_scripts_without_spaces_have_boundaries(
    real_tokenizer: RealTokenizer, text: str, at_least: float
) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary_file = real_tokenizer("qwen/vocab.json")
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.BPE.from_file(
            str(vocabulary_file), str(vocabulary_file.with_name("merges.txt"))
        )
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    ids = tokenizer.encode(text).ids
    vocabulary = Vocabulary.from_path(vocabulary_file)
    table = resolve_boundaries("word-any", vocabulary).table
    assert table[ids].mean() >= at_least
    assert resolve_boundaries("word", vocabulary).table[ids].mean() == 0


def test_no_author_draws_within_a_character() -> None:
    """Byte pieces of one character, with and without a space before them."""
    pieces = ("ä½ł", "Ġæ", "ħ", "å¥", "½", "Ġa", "b", "ã\u0123¼ãĤ¹", "Ġ")
    vocabulary = Vocabulary(pieces, "a test")
    table = resolve_boundaries("word-any", vocabulary).table
    texts = vocabulary.texts()
    assert [bool(bit) for bit in table] == [True, False, False, False, False, True, False,
                                            table[7], True]  # fmt: skip
    assert texts[1].startswith(b" \xe6")
    assert resolve_boundaries("word", vocabulary).table[1]


def test_no_word_begins_with_a_letter_that_belongs_to_the_character_before_it() -> None:
    """Thai and Lao sara am: letters by category, which Unicode joins to a consonant."""
    begins = {
        "\u0e33": False,
        "\u0eb3": False,
        "\uff9e": False,  # the half-width voiced sound mark
        "\u0e19\u0e33": True,
        "\u0e32": True,
        "\uff76\uff9e": True,
    }
    pieces = ["".join(_LETTERS[byte] for byte in text.encode()) for text in begins]
    table = resolve_boundaries("word-any", Vocabulary(("Ġa", *pieces), "a test")).table
    assert table[1:].tolist() == list(begins.values())


def test_schedules_take_the_resolver_by_name() -> None:
    config = TandemConfig.from_mapping({"schedule": "word", "boundaries": "word-any", "p": 0.5})
    rules = TandemRules(config, Vocabulary(("ä½ł", "å¥½", "Ġa"), "a test"))
    assert rules.default.boundaries.resolver == "word-any"
    authors = np.array(rules.default.replay([0, 1] * 200, seed=3).tolist())
    assert 0.35 < np.mean(authors[1:] != authors[:-1]) < 0.65
