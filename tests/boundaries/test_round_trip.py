"""A tokenizer must give back a plain sentence, and list what it decodes: twelve families."""

from __future__ import annotations

import base64
import functools
import io
import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from refused import refused
from small_tokenizers import ORACLES, QWEN, TEXT, byte_level_bpe, gpt2, llama_like_bpe, split

from tandem_plugin import Vocabulary, resolve_boundaries
from tandem_plugin.boundaries.vocabulary_families import PLAIN

tokenizers = pytest.importorskip("tokenizers")
from tokenizers import (  # noqa: E402  # after the skip
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

RealTokenizer = Callable[[str], Path]
Decode = Callable[[Sequence[int]], str]

LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


class Family:
    """A tokenizer, and the library's own decoder of its ids."""

    def __init__(self, tokenizer: Any, decode: Decode | None = None) -> None:
        self.vocabulary = Vocabulary.from_tokenizer(tokenizer)
        self.decode = decode or functools.partial(tokenizer.decode, skip_special_tokens=False)


def real_bpe(real_tokenizer: RealTokenizer, vocab: str, merges: str, parts: list[Any]) -> Family:
    files = str(real_tokenizer(vocab)), str(real_tokenizer(merges))
    core = Tokenizer(models.BPE.from_file(*files))
    core.pre_tokenizer = pre_tokenizers.Sequence(parts)
    core.decoder = decoders.ByteLevel()
    return Family(core)


def mistral_file(name: str) -> Path:
    return Path(pytest.importorskip("mistral_common").__file__).parent / "data" / name


def tekken(_: RealTokenizer) -> Family:
    from mistral_common.tokens.tokenizers.tekken import SpecialTokenPolicy, Tekkenizer

    inner = Tekkenizer.from_file(mistral_file("tekken_240911.json"))
    found = Family.__new__(Family)
    found.vocabulary = Vocabulary.from_path(mistral_file("tekken_240911.json"))
    found.decode = functools.partial(inner.decode, special_token_policy=SpecialTokenPolicy.KEEP)
    return found


def sentencepiece_model(file: Path) -> Family:
    sentencepiece = pytest.importorskip("sentencepiece")
    model = sentencepiece.SentencePieceProcessor(model_file=str(file))
    found = Family.__new__(Family)
    found.vocabulary = Vocabulary.from_path(file)
    found.decode = lambda ids: model.decode(list(ids))
    return found


def trained_sentencepiece(folder: Path, **options: Any) -> Family:
    sentencepiece = pytest.importorskip("sentencepiece")
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([PLAIN, *TEXT[0].split("\n")] * 30),
        model_writer=model,
        vocab_size=330,
        hard_vocab_limit=False,
        byte_fallback=True,
        minloglevel=2,
        **options,
    )
    file = folder / "tokenizer.model"
    file.write_bytes(model.getvalue())
    return sentencepiece_model(file)


def deepseek() -> Any:
    digits = pre_tokenizers.Digits(individual_digits=True)
    return byte_level_bpe([digits, *split(r"\s?[^\s\p{L}\p{N}]+|\s?\p{L}+|\s+")])


def tiktoken_file(folder: Path) -> Family:
    """Ranks and bytes, as the first Qwen and Kimi have them, against tiktoken itself."""
    tiktoken = pytest.importorskip("tiktoken")
    words = sorted({f" {word}".encode() for word in PLAIN.split()} | {b".\n\n", b"\n\n"})
    ranks = {bytes([byte]): byte for byte in range(256)}
    ranks |= {word: 256 + i for i, word in enumerate(words)}
    file = folder / "qwen.tiktoken"
    file.write_bytes(b"".join(base64.b64encode(t) + b" %d\n" % rank for t, rank in ranks.items()))
    core = tiktoken.Encoding("made", pat_str=r"\s?\S+", mergeable_ranks=ranks, special_tokens={})
    found = Family.__new__(Family)
    found.vocabulary = Vocabulary.from_path(file)
    found.decode = core.decode
    return found


FAMILIES: dict[str, Callable[[RealTokenizer, Path], Family]] = {
    "Qwen": lambda real, _: real_bpe(real, "qwen/vocab.json", "qwen/merges.txt", split(QWEN)),
    "GPT-2": lambda real, _: real_bpe(real, "gpt2/encoder.json", "gpt2/vocab.bpe", [gpt2()]),
    "T5": lambda real, _: Family(Tokenizer.from_file(str(real("t5/tokenizer.json")))),
    "Mistral, tekken": lambda real, _: tekken(real),
    "Mistral 7B, BPE model": lambda *_: sentencepiece_model(mistral_file("tokenizer.model.v1")),
    "Mistral 7, control tokens": lambda *_: sentencepiece_model(
        mistral_file("mistral_instruct_tokenizer_241114.model.v7")
    ),
    "Gemma": lambda _, folder: trained_sentencepiece(
        folder, model_type="bpe", add_dummy_prefix=False, remove_extra_whitespaces=False
    ),
    "XLM-R": lambda _, folder: trained_sentencepiece(folder, model_type="unigram"),
    "Llama 2": lambda *_: Family(llama_like_bpe()),
    "Llama 3": lambda *_: Family(byte_level_bpe(split(LLAMA_3))),
    "DeepSeek": lambda *_: Family(deepseek()),
    "StarCoder, SmolLM": lambda *_: Family(
        byte_level_bpe([pre_tokenizers.Digits(individual_digits=True), gpt2()])
    ),
    "tiktoken": lambda _, folder: tiktoken_file(folder),
}


def in_context(family: Family) -> list[str]:
    """The text of every id after another token, where no decoder strips its leading space."""
    words = resolve_boundaries("every", family.vocabulary).table
    anchor = next(i for i in range(len(words)) if family.decode([i]).strip() == "a")
    before = family.decode([anchor])
    return [family.decode([anchor, i]).removeprefix(before) for i in range(len(words))]


@pytest.mark.parametrize("name", FAMILIES)
def test_boundaries_are_those_of_the_decoder(
    name: str, real_tokenizer: RealTokenizer, tmp_path: Path
) -> None:
    family = FAMILIES[name](real_tokenizer, tmp_path)
    texts = in_context(family)
    for resolver in ("word", "sentence"):
        table = resolve_boundaries(resolver, family.vocabulary).table
        ids = [i for i in range(len(table)) if i not in family.vocabulary.special]
        expected = [i for i in ids if ORACLES[resolver](texts[i])]
        assert [i for i in ids if table[i]] == expected
        assert expected


def saved(folder: Path, kind: str | None) -> Path:
    """A byte-level tokenizer.json whose tokenizer_config.json names this class."""
    byte_level_bpe().save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text('{"model_type": "llama"}')
    if kind is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind}))
    return folder


def test_tokenizer_that_was_loaded_as_another_class_is_refused(tmp_path: Path) -> None:
    """transformers 5 replaces the parts of a byte-level tokenizer by LlamaTokenizer's own."""
    transformers = pytest.importorskip("transformers")
    saved(tmp_path, "LlamaTokenizerFast")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    if " " in tokenizer.decode(tokenizer.encode("a b", add_special_tokens=False)):
        pytest.skip("this transformers keeps the parts of tokenizer.json")
    with refused("tokenizer-loses-text", decoded=PLAIN.replace(" ", "")):
        Vocabulary.from_path(tmp_path)
    with refused("tokenizer-loses-text"):
        Vocabulary.from_tokenizer(tokenizer)
    saved(tmp_path, "PreTrainedTokenizerFast")  # the remedy
    assert Vocabulary.from_path(tmp_path).family == "byte-level BPE"


@pytest.mark.parametrize(
    "change",
    [
        {"normalizer": normalizers.Replace(" ", "")},
        {"normalizer": normalizers.Replace("writes", "reads")},
        {"pre_tokenizer": pre_tokenizers.WhitespaceSplit()},
        {"decoder": decoders.Sequence([decoders.ByteLevel(), decoders.Replace(" ", "")])},
    ],
)
def test_tokenizer_that_loses_text_is_refused(change: dict[str, Any]) -> None:
    core = byte_level_bpe()
    for part, other in change.items():
        setattr(core, part, other)
    with refused("tokenizer-loses-text", "tokenizer-lists-differ"):
        Vocabulary.from_tokenizer(core)


def test_tokenizer_whose_decoder_reads_other_pieces_is_refused() -> None:
    core = byte_level_bpe()
    core.decoder = decoders.Metaspace()  # shows Ġ as it is
    with refused("tokenizer-loses-text", "tokenizer-lists-differ"):
        Vocabulary.from_tokenizer(core)


def test_lossy_normalizer_is_reported_once_with_what_it_means(
    caplog: pytest.LogCaptureFixture,
) -> None:
    core = byte_level_bpe()
    core.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            assert Vocabulary.from_tokenizer(core)
    (warning,) = (r.getMessage() for r in caplog.records if r.levelno == logging.WARNING)
    assert "'Sum' as 'sum'" in warning
    assert "'x² + ½' as 'x2 + 1⁄2'" in warning  # noqa: RUF001  # the fraction slash
    assert "is not affected" in warning


def test_normalizer_of_blanks_alone_is_harmless(caplog: pytest.LogCaptureFixture) -> None:
    core = byte_level_bpe()
    core.normalizer = normalizers.Replace(tokenizers.Regex(" {2,}"), " ")
    with caplog.at_level(logging.INFO):
        assert Vocabulary.from_tokenizer(core)
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    assert "harmless" in record.getMessage()


def test_exact_tokenizer_is_not_mentioned(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert Vocabulary.from_tokenizer(byte_level_bpe())
    assert not caplog.records


def test_uncased_wordpiece_is_read() -> None:
    """Its decoder writes the blanks between words, and its text is in lower case."""
    core = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    core.normalizer = normalizers.BertNormalizer(lowercase=True)
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    core.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=400, special_tokens=["[UNK]"], show_progress=False
    )
    core.train_from_iterator([*TEXT, PLAIN], trainer)
    assert Vocabulary.from_tokenizer(core).family == "WordPiece"


def test_toy_vocabulary_without_letters_is_read() -> None:
    core = Tokenizer(models.WordLevel({"[UNK]": 0, "Ġone": 1, "Ġtwo": 2}, unk_token="[UNK]"))
    core.pre_tokenizer = gpt2()
    core.decoder = decoders.ByteLevel()
    assert resolve_boundaries("word", Vocabulary.from_tokenizer(core)).count == 2


def test_tokenizer_that_cannot_decode_is_refused() -> None:
    class Mute:
        def get_vocab(self) -> dict[str, int]:
            return {"a": 0, "Ġa": 1}

        def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
            return [0, 1]

        def decode(self, ids: list[int], skip_special_tokens: bool = False) -> str:
            raise NotImplementedError("no")

    with refused("vocabulary-unreadable"):
        Vocabulary.from_tokenizer(Mute())
