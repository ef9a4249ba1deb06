"""What resolvers refuse because of how a tokenizer writes what they look for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from refused import refused

from tandem_plugin import (
    TandemConfig,
    TandemRules,
    TokenizerError,
    Vocabulary,
    resolve_boundaries,
)
from tandem_plugin.boundaries.vocabulary_families import BLANK_LINES

tokenizers = pytest.importorskip("tokenizers")
from tokenizers import (  # noqa: E402  # after the skip
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

RealTokenizer = Callable[[str], Path]

QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

TEXT = ["Step 1: add 2.\n\nStep 2: so x.\n\n\n  Then $$x$$\n\n- and (so)\n\nThe end.\n\n"] * 5


def gpt2() -> Any:
    return pre_tokenizers.ByteLevel(add_prefix_space=False)


def split(pattern: str) -> list[Any]:
    return [
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]


SPLITS_BLANK_LINES = {
    "GPT-2, GPT-NeoX, OPT": lambda: [gpt2()],
    "StarCoder, SmolLM": lambda: [pre_tokenizers.Digits(individual_digits=True), gpt2()],
    "Falcon": lambda: [pre_tokenizers.Punctuation("contiguous"), gpt2()],
    "newlines one by one": lambda: split(r"[\r\n]|\s?\p{L}+|\s?\p{P}+|\s+"),
}
KEEPS_BLANK_LINES = {
    "Qwen": lambda: split(QWEN),
    "GPT-4o, gpt-oss": lambda: split(O200K),
}


def trained(parts: list[Any]) -> Any:
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(parts)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    core.train_from_iterator(TEXT, trainer)
    if not any("ĊĊ" in piece for piece in core.get_vocab()):
        core.add_tokens(["ĊĊ-like\n\n"])  # as rare as a token can be
    return core


def real(real_tokenizer: RealTokenizer, vocabulary: str, merges: str, parts: list[Any]) -> Any:
    files = str(real_tokenizer(vocabulary)), str(real_tokenizer(merges))
    core = Tokenizer(models.BPE.from_file(*files))
    core.pre_tokenizer = pre_tokenizers.Sequence(parts)
    core.decoder = decoders.ByteLevel()
    return core


def found(resolver: str, vocabulary: Vocabulary) -> list[int]:
    return resolve_boundaries(resolver, vocabulary).table.nonzero()[0].tolist()


def refusal(resolver: str, vocabulary: Vocabulary) -> str:
    with pytest.raises(TokenizerError) as caught:
        resolve_boundaries(resolver, vocabulary)
    return str(caught.value)


def test_gpt2_is_refused_for_steps_before_anything_runs(real_tokenizer: RealTokenizer) -> None:
    core = real(real_tokenizer, "gpt2/encoder.json", "gpt2/vocab.bpe", [gpt2()])
    assert core.encode("a.\n\nB").tokens == ["a", ".", "Ċ", "Ċ", "B"]
    vocabulary = Vocabulary.from_tokenizer(core)
    for schedule in ("step", "step-bernoulli"):
        with pytest.raises(TokenizerError) as caught:
            TandemRules(TandemConfig(schedule=schedule), vocabulary)
        said = str(caught.value)
        assert r"writes blank lines as several tokens ('a\n\nB' becomes 'a' 'Ċ' 'Ċ' 'B')" in said
        assert all(name in said for name in ("schedule=word", "=sentence", "boundaries=newline"))
    assert len(found("newline", vocabulary)) == 3


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


@pytest.mark.parametrize("name", SPLITS_BLANK_LINES)
def test_tokenizer_that_splits_blank_lines_has_no_steps(name: str, tmp_path: Path) -> None:
    core = trained(SPLITS_BLANK_LINES[name]())
    assert any(b"\n\n" in text for text in Vocabulary.from_tokenizer(core).texts())
    core.save(str(tmp_path / "tokenizer.json"))
    transformers = pytest.importorskip("transformers")
    for vocabulary in (
        Vocabulary.from_tokenizer(core),
        Vocabulary.from_path(tmp_path / "tokenizer.json"),
        Vocabulary.from_tokenizer(transformers.PreTrainedTokenizerFast(tokenizer_object=core)),
    ):
        assert "writes blank lines as several tokens" in refusal("step", vocabulary)
        assert found("newline", vocabulary)
        assert found("word", vocabulary)


@pytest.mark.parametrize("name", KEEPS_BLANK_LINES)
def test_tokenizer_that_keeps_blank_lines_has_steps(name: str) -> None:
    core = trained(KEEPS_BLANK_LINES[name]())
    steps = set(found("step", Vocabulary.from_tokenizer(core)))
    assert steps == {i for piece, i in core.get_vocab().items() if "ĊĊ" in piece}
    assert all(steps & set(core.encode(text).ids) for text in BLANK_LINES)


def test_blank_line_of_two_byte_pieces_is_no_step() -> None:
    """As in Llama 2, here with a token for a blank line that no text is written with."""
    pieces = ["<unk>", "\n\n", *(f"<0x{byte:02X}>" for byte in range(256)), "▁"]
    core = Tokenizer(
        models.BPE({p: i for i, p in enumerate(pieces)}, [], unk_token="<unk>", byte_fallback=True)
    )
    core.normalizer = normalizers.Replace(" ", "▁")
    core.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback()])
    vocabulary = Vocabulary.from_tokenizer(core)
    assert r"becomes '<0x61>' '<0x0A>' '<0x0A>' '<0x42>'" in refusal("step", vocabulary)
    assert found("newline", vocabulary) == [1, 2 + 0x0A]


def test_list_of_tokens_shows_steps_only_where_text_precedes_the_blank_line(
    real_tokenizer: RealTokenizer,
) -> None:
    said = refusal("step", Vocabulary.from_path(real_tokenizer("gpt2/encoder.json")))
    assert "is only a list of tokens" in said
    assert "Use the whole tokenizer (its folder or tokenizer.json)" in said
    assert found("step", Vocabulary(("a", ".ĊĊ", "ĊĊ"), "made up")) == [1, 2]
    assert "is only a list" in refusal("step", Vocabulary(("a", "ĊĊ", "ĠĊĊ"), "made up"))


def test_tokenizer_that_cannot_encode_is_taken_as_a_list() -> None:
    class Silent:
        def get_vocab(self) -> dict[str, int]:
            return {"a": 0, "Ġa": 1, "ĊĊ": 2}

        def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
            raise NotImplementedError

    vocabulary = Vocabulary.from_tokenizer(Silent())
    assert found("word", vocabulary) == [1]
    assert "is only a list of tokens" in refusal("step", vocabulary)


def test_request_for_steps_is_refused_where_the_tokenizer_splits_blank_lines() -> None:
    vocabulary = Vocabulary.from_tokenizer(trained([gpt2()]))
    rules = TandemRules(TandemConfig(), vocabulary)
    assert rules.for_request({"seed": 1, "schedule": "token"})
    with refused("TP207"):
        rules.for_request({"seed": 1, "schedule": "step"})


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


def test_encodings_are_those_of_the_tokenizer_without_special_tokens(tmp_path: Path) -> None:
    core = trained([gpt2()])
    core.add_special_tokens(["<s>"])
    core.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", core.token_to_id("<s>"))]
    )
    core.save(str(tmp_path / "tokenizer.json"))
    vocabulary = Vocabulary.from_path(tmp_path / "tokenizer.json")
    text = BLANK_LINES[0]
    assert list(vocabulary.encodings[text]) == core.encode(text, add_special_tokens=False).ids
    assert json.loads((tmp_path / "tokenizer.json").read_text())["post_processor"]


def test_newlines_that_a_tokenizer_drops_are_no_boundaries() -> None:
    core = trained([gpt2()])
    assert found("newline", Vocabulary.from_tokenizer(core))
    core.normalizer = normalizers.Replace("\n", " ")
    with refused("TP203"):
        resolve_boundaries("newline", Vocabulary.from_tokenizer(core))


def test_byte_piece_that_is_a_space_begins_a_word() -> None:
    vocabulary = Vocabulary(("▁a", "a", "<0x20>", "<0x61>", "▁"), "made up")
    assert found("word", vocabulary) == [0, 2, 4]


def test_tokens_that_share_an_id_are_refused(tmp_path: Path) -> None:
    core = json.loads(Tokenizer(models.WordLevel({"a": 0}, unk_token="a")).to_str())
    core["model"]["vocab"] |= {"Ġb": 1, "c": 1}
    (tmp_path / "tokenizer.json").write_text(json.dumps(core))
    (tmp_path / "vocab.json").write_text('{"a": 0, "Ġb": 1, "c": 1}', encoding="utf-8")
    for name in ("vocab.json", "tokenizer.json"):
        with refused("TP213", token_id=1):
            Vocabulary.from_path(tmp_path / name)
    (tmp_path / "vocab.json").write_text('{"a": 0, "Ġb": 1, "a": 2}', encoding="utf-8")
    with refused("TP215"):
        Vocabulary.from_path(tmp_path / "vocab.json")
