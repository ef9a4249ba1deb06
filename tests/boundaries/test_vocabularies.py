"""Vocabularies and boundaries of every family of tokenizers, against the library's own decoders."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from refused import refused
from small_tokenizers import (
    ORACLES,
    QWEN,
    byte_level_bpe,
    gpt2,
    llama_like_bpe,
    split,
    unigram_with_byte_fallback,
)

from tandem_plugin import TandemConfig, TandemRules, Vocabulary, list_resolvers, resolve_boundaries
from tandem_plugin.boundaries.resolvers import SENTENCE_TERMINALS, ends_sentence
from tandem_plugin.boundaries.vocabulary_families import BLANK_LINES

RealTokenizer = Callable[[str], Path]

tokenizers = pytest.importorskip("tokenizers")
from tokenizers import (  # noqa: E402  # after the skip
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
)


def byte_level_decoded(pieces: tuple[str, ...]) -> list[str]:
    decoder = decoders.ByteLevel()
    return [decoder.decode([piece]) for piece in pieces]


def sentencepiece_decoded(pieces: tuple[str, ...]) -> list[str]:
    decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback()])
    return [decoder.decode([piece]) for piece in pieces]


def found(resolver: str, vocabulary: Vocabulary) -> list[int]:
    return resolve_boundaries(resolver, vocabulary).table.nonzero()[0].tolist()


def test_every_resolver_has_an_oracle() -> None:
    assert set(ORACLES) == set(list_resolvers())


@pytest.mark.parametrize(
    ("file", "decoded", "counts"),
    [
        (
            "qwen/vocab.json",
            byte_level_decoded,
            {"word": 53_021, "sentence": 2_618, "step": 565, "newline": 2_178, "every": 151_643},
        ),
        (
            "gpt2/encoder.json",
            byte_level_decoded,
            {"word": 33_135, "sentence": 151, "newline": 3, "every": 50_257},
        ),
        ("t5/tokenizer.json", sentencepiece_decoded, {"word": 21_987, "sentence": 94}),
    ],
)
def test_real_vocabulary_has_the_boundaries_that_its_decoder_writes(
    real_tokenizer: RealTokenizer, file: str, decoded: Any, counts: dict[str, int]
) -> None:
    vocabulary = Vocabulary.from_path(real_tokenizer(file))
    texts = decoded(vocabulary.pieces)
    assert [text.decode("utf-8", "replace") for text in vocabulary.texts()] == texts
    got = {}
    for resolver in counts:
        ids = found(resolver, vocabulary)
        assert ids == [i for i, text in enumerate(texts) if ORACLES[resolver](text)]
        got[resolver] = len(ids)
    assert got == counts


O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@pytest.mark.parametrize("make", [byte_level_bpe, unigram_with_byte_fallback, llama_like_bpe])
@pytest.mark.parametrize("resolver", ["word", "sentence", "step", "newline"])
def test_boundaries_are_those_of_the_tokenizers_own_decoder(
    make: Callable[[], Any], resolver: str, tmp_path: Path
) -> None:
    core = make()
    texts = [
        core.decode([token_id], skip_special_tokens=False)
        for token_id in range(core.get_vocab_size())
    ]
    expected = [i for i, text in enumerate(texts) if ORACLES[resolver](text)]
    assert len(expected) >= 3 or resolver in ("step", "newline")
    core.save(str(tmp_path / "tokenizer.json"))
    vocabularies = [
        Vocabulary.from_tokenizer(core),
        Vocabulary.from_path(tmp_path / "tokenizer.json"),
    ]
    transformers = pytest.importorskip("transformers")
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=core)
    vocabularies.append(Vocabulary.from_tokenizer(fast))
    for vocabulary in vocabularies:
        if expected:
            assert found(resolver, vocabulary) == expected
            continue
        with refused(
            "tokenizer-without-newline", "tokenizer-without-blank-lines", "blank-line-many-tokens"
        ):
            resolve_boundaries(resolver, vocabulary)


def wordpiece() -> Any:
    core = Tokenizer(
        models.WordPiece(
            # These letters begin Maltese words; they mark nothing here.
            {p: i for i, p in enumerate(["[UNK]", "Ġ", "Ġa", "Ċ", "play", "##ing", ".", "##."])},
            unk_token="[UNK]",
        )
    )
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    core.decoder = decoders.WordPiece()
    return core


def wordlevel() -> Any:
    return Tokenizer(models.WordLevel({"a": 0, "b": 1, ".": 2, "end.": 3}, unk_token="a"))


@pytest.mark.parametrize(("make", "family"), [(wordpiece, "WordPiece"), (wordlevel, "plain text")])
def test_vocabulary_without_leading_spaces_has_no_words_and_says_so(
    make: Callable[[], Any], family: str, tmp_path: Path
) -> None:
    core = make()
    core.save(str(tmp_path / "tokenizer.json"))
    for vocabulary in (
        Vocabulary.from_tokenizer(core),
        Vocabulary.from_path(tmp_path / "tokenizer.json"),
    ):
        assert vocabulary.family == family
        with refused("tokenizer-without-word-marker", family=family):
            resolve_boundaries("word", vocabulary)
        with refused("tokenizer-without-newline"):
            resolve_boundaries("newline", vocabulary)


def test_wordpiece_and_wordlevel_end_sentences() -> None:
    assert found("sentence", Vocabulary.from_tokenizer(wordpiece())) == [6, 7]
    assert found("sentence", Vocabulary.from_tokenizer(wordlevel())) == [2, 3]


def test_wordpiece_is_known_by_its_pieces_alone() -> None:
    assert Vocabulary(("play", "##ing", "##ed", "Ġ"), "made up").family == "WordPiece"


RANKS = {b"a": 0, b" the": 1, b".\n\n": 2, b".\n": 3, b"\xe3\x80": 4, b"\xe3\x80\x82": 5, b" ": 6}
RANK_BOUNDARIES = {"word": [1, 6], "step": [2], "newline": [2, 3], "sentence": [2, 3, 5]}


def test_slow_tokenizer_that_lists_bytes_is_read() -> None:
    """As Qwen's first tokenizer: bytes to rank, and special tokens beside them as strings."""
    tokenizer = SimpleNamespace(get_vocab=lambda: {**RANKS, "<|Ġend|>": 7}, name_or_path="slow")
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    assert vocabulary.texts()[:7] == tuple(RANKS)
    for resolver, ids in RANK_BOUNDARIES.items():
        assert found(resolver, vocabulary) == ids
    assert vocabulary.texts()[7] == "<|Ġend|>".encode()


def test_special_tokens_are_words_only_when_their_text_begins_with_a_space() -> None:
    core = byte_level_bpe()
    size = core.get_vocab_size()
    core.add_special_tokens(["Ġspecial", " spaced"])
    core.add_tokens([AddedToken(" added", normalized=False), AddedToken("plain")])
    words = set(found("word", Vocabulary.from_tokenizer(core)))
    assert [size + i in words for i in range(4)] == [False, True, True, False]


SENTENCES = {
    ".": True, "...": True, "…": True, "!": True, "?": True, " end.": True, "3.": True,
    "Dr.": True, ".\n": True, "\n": True, "\r": True, "a\nb": True, ".)": True, '."': True,
    "?' ": True, ".”": True, ".»": True, "。": True, "\uff01」": True, "؟": True, "।": True,
    "\u0589": True,
    "\u2029": True, "": False, " ": False, ")": False, '"': False, "3.14": False, "e.g": False,
    ".(": False, "...,": False, ",": False, ":": False, ";": False, "a": False, ".a": False,
    "、": False, "\ufffd": False, ".\ufffd": False, "\t": False,
}  # fmt: skip


@pytest.mark.parametrize(("text", "ends"), SENTENCES.items())
def test_what_ends_a_sentence(text: str, ends: bool) -> None:
    assert ends_sentence(text) is ends


def test_sentence_terminals_are_unicodes() -> None:
    regex = pytest.importorskip("regex")
    unicode = set(regex.findall(r"\p{STerm}", "".join(map(chr, range(0x110000)))))
    assert SENTENCE_TERMINALS - {"…"} <= unicode
    assert len(unicode - SENTENCE_TERMINALS) <= 20, "a newer Unicode has many more"


def test_vocabulary_without_sentence_ends_is_refused() -> None:
    with refused("tokenizer-without-sentence-ends"):
        resolve_boundaries("sentence", Vocabulary(("a", "Ġb"), "made up"))


def test_slow_tokenizer_of_transformers_is_read() -> None:
    """ByT5 has a token for every byte, and is slow: it needs no files either."""
    transformers = pytest.importorskip("transformers")
    vocabulary = Vocabulary.from_tokenizer(transformers.ByT5Tokenizer())
    assert found("newline", vocabulary) == [ord("\n") + 3]
    assert {ord(c) + 3 for c in ".!?\n\r"} <= set(found("sentence", vocabulary))
    with refused("tokenizer-without-word-marker"):
        resolve_boundaries("word", vocabulary)


def test_special_tokens_leave_the_digest_of_qwens_words_alone(real_tokenizer: RealTokenizer):
    """The folder has added tokens past the vocabulary that vocab.json alone lacks."""
    pytest.importorskip("transformers")
    folder = Vocabulary.from_path(real_tokenizer("qwen"))
    file = Vocabulary.from_path(real_tokenizer("qwen/vocab.json"))
    assert len(folder) > len(file)
    assert resolve_boundaries("word", folder).digest == resolve_boundaries("word", file).digest


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        (("a", "Ġa", "bĠ", "Ġ", "ĠĠ", ""), [1, 3, 4]),
        (("a", "▁a", "b▁", "▁", "<s>"), [1, 3]),
        (("▁", "Ġa", "Ġb", "c"), [1, 2]),
    ],
)
def test_words_begin_with_the_vocabularys_leading_space_marker(
    pieces: tuple[str, ...], words: list[int]
):
    table = resolve_boundaries("word", Vocabulary(pieces, "made up")).table
    assert table.nonzero()[0].tolist() == words


def test_tokenizer_object_and_its_file_give_one_vocabulary(tmp_path: Path):
    ids = {"a": 0, "Ġa": 1, "b": 3}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(ids, unk_token="a"))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    pieces = ("a", "Ġa", "", "b")
    assert Vocabulary.from_tokenizer(tokenizer).pieces == pieces
    assert Vocabulary.from_path(tmp_path / "tokenizer.json").pieces == pieces


SPLITS_BLANK_LINES = {
    "GPT-2, GPT-NeoX, OPT": lambda: [gpt2()],
    "StarCoder, SmolLM": lambda: [pre_tokenizers.Digits(individual_digits=True), gpt2()],
    "Falcon": lambda: [pre_tokenizers.Punctuation("contiguous"), gpt2()],
    "newlines one by one": lambda: split(r"[\r\n]|\s?\p{L}+|\s?\p{P}+|\s+"),
}


@pytest.mark.parametrize("name", SPLITS_BLANK_LINES)
def test_tokenizer_that_splits_blank_lines_has_no_steps(name: str) -> None:
    vocabulary = Vocabulary.from_tokenizer(byte_level_bpe(SPLITS_BLANK_LINES[name]()))
    assert any(b"\n\n" in text for text in vocabulary.texts())
    for schedule in ("step", "step-bernoulli"):
        with refused("blank-line-many-tokens"):
            TandemRules(TandemConfig(schedule=schedule), vocabulary)
    assert found("newline", vocabulary)
    assert found("word", vocabulary)


@pytest.mark.parametrize("pattern", [QWEN, O200K])
def test_tokenizer_that_keeps_blank_lines_has_steps(pattern: str) -> None:
    core = byte_level_bpe(split(pattern))
    steps = set(found("step", Vocabulary.from_tokenizer(core)))
    assert steps == {i for piece, i in core.get_vocab().items() if "ĊĊ" in piece}
    assert all(steps & set(core.encode(text).ids) for text in BLANK_LINES)


def real(real_tokenizer: RealTokenizer, vocabulary: str, merges: str, parts: list[Any]) -> Any:
    files = str(real_tokenizer(vocabulary)), str(real_tokenizer(merges))
    core = Tokenizer(models.BPE.from_file(*files))
    core.pre_tokenizer = pre_tokenizers.Sequence(parts)
    core.decoder = decoders.ByteLevel()
    return core


def test_gpt2_itself_has_no_steps(real_tokenizer: RealTokenizer) -> None:
    core = real(real_tokenizer, "gpt2/encoder.json", "gpt2/vocab.bpe", [gpt2()])
    with refused("blank-line-many-tokens", missed=r"'a\n\nB' becomes 'a' 'Ċ' 'Ċ' 'B'"):
        resolve_boundaries("step", Vocabulary.from_tokenizer(core))
    with refused("blank-line-tokens-unknown"):
        resolve_boundaries("step", Vocabulary.from_path(real_tokenizer("gpt2/encoder.json")))


def test_qwen_writes_every_blank_line_as_one_token(real_tokenizer: RealTokenizer) -> None:
    core = real(real_tokenizer, "qwen/vocab.json", "qwen/merges.txt", split(QWEN))
    vocabulary = Vocabulary.from_tokenizer(core)
    steps = resolve_boundaries("step", vocabulary)
    assert steps.count == 565
    listed = resolve_boundaries("step", Vocabulary.from_path(real_tokenizer("qwen/vocab.json")))
    assert listed.digest == steps.digest
    texts = [text.decode("utf-8", "ignore") for text in vocabulary.texts()[::7]]
    for after in ("B", "1", "    b"):
        encoded = core.encode_batch([f"{text}\n\n{after}" for text in texts])
        assert all(steps.contains(encoding.ids).any() for encoding in encoded)


def test_list_of_tokens_shows_steps_only_where_text_precedes_the_blank_line() -> None:
    assert found("step", Vocabulary(("a", ".ĊĊ", "ĊĊ"), "made up")) == [1, 2]
    with refused("blank-line-tokens-unknown"):
        resolve_boundaries("step", Vocabulary(("a", "ĊĊ", "ĠĊĊ"), "made up"))


def test_tokenizer_that_cannot_encode_is_taken_as_a_list() -> None:
    class Silent:
        def get_vocab(self) -> dict[str, int]:
            return {"a": 0, "Ġa": 1, "ĊĊ": 2}

        def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
            raise NotImplementedError

    vocabulary = Vocabulary.from_tokenizer(Silent())
    assert found("word", vocabulary) == [1]
    with refused("blank-line-tokens-unknown"):
        resolve_boundaries("step", vocabulary)


@pytest.mark.parametrize(
    ("text", "is_step"),
    [
        ("ĊĊ", True), (".ĊĊ", True), ("ĊĊĊ", True), ("ĠĊĊĠĠ", True),
        ("Ċ", False), ("ĊĠĊ", False), ("čĊčĊ", False), ("čč", False), ("ĊčĊ", False),
    ],
)  # fmt: skip
def test_only_two_newlines_in_a_row_are_a_step(text: str, is_step: bool) -> None:
    vocabulary = Vocabulary(("Ġa", ":ĊĊ", text), "made up")
    assert (2 in found("step", vocabulary)) is is_step
    assert (2 in found("newline", vocabulary)) is ("Ċ" in text)


def test_encodings_are_without_special_tokens() -> None:
    core = byte_level_bpe()
    core.add_special_tokens(["<s>"])
    core.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", core.token_to_id("<s>"))]
    )
    written = Vocabulary.from_tokenizer(core).encodings[BLANK_LINES[0]]
    assert list(written) == core.encode(BLANK_LINES[0], add_special_tokens=False).ids


def test_newlines_that_a_tokenizer_drops_are_no_boundaries() -> None:
    core = byte_level_bpe()
    assert found("newline", Vocabulary.from_tokenizer(core))
    core.normalizer = normalizers.Replace("\n", " ")
    with refused("newline-token-never-produced"):
        resolve_boundaries("newline", Vocabulary.from_tokenizer(core))


def test_tokens_that_share_an_id_are_refused(tmp_path: Path) -> None:
    core = json.loads(Tokenizer(models.WordLevel({"a": 0}, unk_token="a")).to_str())
    core["model"]["vocab"] |= {"Ġb": 1, "c": 1}
    (tmp_path / "tokenizer.json").write_text(json.dumps(core))
    (tmp_path / "vocab.json").write_text('{"a": 0, "Ġb": 1, "c": 1}', encoding="utf-8")
    for name in ("vocab.json", "tokenizer.json"):
        with refused("token-id-ambiguous", token_id=1):
            Vocabulary.from_path(tmp_path / name)
    (tmp_path / "vocab.json").write_text('{"a": 0, "Ġb": 1, "a": 2}', encoding="utf-8")
    with refused("tokenizer-not-json"):
        Vocabulary.from_path(tmp_path / "vocab.json")


def test_file_that_may_not_be_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_text("{}")

    def denied(self: Path, mode: str) -> bytes:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "open", denied)
    with refused("tokenizer-unreadable", reason="Permission denied"):
        Vocabulary.from_path(file)


def test_vocabulary_of_a_processor_is_its_tokenizers() -> None:
    """Trainers load a processor for a checkpoint that also sees images."""
    core = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    found = Vocabulary.from_tokenizer(SimpleNamespace(tokenizer=core))
    assert found.pieces == Vocabulary.from_tokenizer(core).pieces
    with refused("vocabulary-unreadable"):
        Vocabulary.from_tokenizer(SimpleNamespace())


@pytest.mark.parametrize("listed", [{"a": 0.5}, {"a": None}, ["a"], None])
def test_tokenizer_that_lists_something_else_is_refused(listed: Any) -> None:
    with refused("vocabulary-unreadable"):
        Vocabulary.from_tokenizer(SimpleNamespace(get_vocab=lambda: listed))


def test_panic_of_the_tokenizers_library_is_refused(tmp_path: Path) -> None:
    """A panic is no Exception of Python's: it would end the command with a traceback."""
    core = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, unk_token="a"))
    content = json.loads(core.to_str())
    charsmap = base64.b64encode(b"nothing of the kind").decode()
    content["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": charsmap}
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(content))
    with pytest.raises(BaseException) as panic:  # noqa: PT011  # what the library does
        tokenizers.Tokenizer.from_file(str(file))
    assert not isinstance(panic.value, Exception)
    with refused("vocabulary-unreadable"):
        Vocabulary.from_path(file)


@pytest.mark.parametrize(
    ("code", "contents"),
    [
        (
            "tokenizer-not-json",
            [b"not json", b"[" * 100_000, b"\xff\xfe\x00", b'{"a": ' + b"9" * 5000],
        ),
        ("tokenizer-format-unknown", [b"[1, 2]", b'{"a": "b"}', b'{"a": true}', b'{"a": 1.0}']),
        ("vocabulary-empty", [b"{}"]),
        ("vocabulary-unreadable", [b'{"model": {"type": "none"}}']),
        ("token-ids-invalid", [b'{"a": -1}', b'{"a": 1000000000000}']),
    ],
)
def test_file_that_is_no_tokenizer_is_refused(
    tmp_path: Path, code: str, contents: list[bytes]
) -> None:
    file = tmp_path / "vocab.json"
    for content in contents:
        file.write_bytes(content)
        with refused(code):
            Vocabulary.from_path(file)


def test_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    for config in ("{}", '{"model_type": "qwen3"}', '{"model_type": "llama"}'):
        (tmp_path / "config.json").write_text(config)
        with refused("tokenizer-files-missing", folder=str(tmp_path)):
            Vocabulary.from_path(tmp_path)


def test_a_path_without_a_tokenizer_is_said(tmp_path: Path) -> None:
    with refused("tokenizer-not-found", tokenizer=str(tmp_path / "none")):
        Vocabulary.from_path(tmp_path / "none")
