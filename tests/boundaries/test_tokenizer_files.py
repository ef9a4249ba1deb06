"""Tokenizer files that are read alone: tekken.json, models of SentencePiece and tiktoken, none."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from refused import refused
from small_tokenizers import byte_level_bpe, gpt2, llama_like_bpe, unigram_with_byte_fallback

from tandem_plugin import TokenizerError, Vocabulary, resolve_boundaries
from tandem_plugin.boundaries.tokenizer_files import whole_tokenizer

TEXTS = [b"\n\n", b" the", b" a", b".\n\n", b"\xe3\x80", b"a", b" "]
SPECIALS = ["<unk>", "<s>", "</s>"]


def tekken(folder: Path, **config: Any) -> Path:
    """A tekken.json with every byte, some tokens, three special tokens and two without a name."""
    tokens = [bytes([byte]) for byte in range(256)] + TEXTS[:5]
    sizes = {"default_vocab_size": len(tokens) + 5, "default_num_special_tokens": 5}
    content = {
        "config": {"pattern": r"\s+|\S+", "num_vocab_tokens": len(tokens), **sizes, **config},
        "vocab": [
            {"rank": rank, "token_bytes": base64.b64encode(text).decode(), "token_str": None}
            for rank, text in enumerate(tokens)
        ],
        "special_tokens": [
            {"rank": rank, "token_str": text, "is_control": True}
            for rank, text in enumerate(SPECIALS)
        ],
    }
    file = folder / "tekken.json"
    file.write_text(json.dumps(content))
    return file


def test_tekken_file_is_read_by_its_bytes(tmp_path: Path) -> None:
    vocabulary = Vocabulary.from_path(tekken(tmp_path))
    assert len(vocabulary) == 5 + 256 + 5
    assert vocabulary.pieces[:5] == (*SPECIALS, "<SPECIAL_3>", "<SPECIAL_4>")
    assert vocabulary.special == frozenset(range(5))
    assert vocabulary.texts()[5:] == (*(bytes([byte]) for byte in range(256)), *TEXTS[:5])
    words = resolve_boundaries("word", vocabulary).table.nonzero()[0].tolist()
    assert words == [5 + ord(" "), 5 + 256 + 1, 5 + 256 + 2]


def test_vocabulary_of_a_tekken_file_ends_at_its_default_size(tmp_path: Path) -> None:
    vocabulary = Vocabulary.from_path(tekken(tmp_path, default_vocab_size=5 + 256 + 2))
    assert vocabulary.texts()[-2:] == tuple(TEXTS[:2])


def mistral(folder: Path, file: str, name: str) -> Path:
    """A checkpoint's folder with a tokenizer that mistral-common ships."""
    data = Path(pytest.importorskip("mistral_common").__file__).parent / "data"
    folder.mkdir()
    shutil.copy(data / file, folder / name)
    (folder / "config.json").write_text('{"model_type": "mistral"}')
    return folder


def test_mistral_checkpoint_is_read_as_its_file_is(tmp_path: Path) -> None:
    """get_vocab() of transformers' tokenizer for it shows incomplete characters as one."""
    pytest.importorskip("transformers")
    folder = mistral(tmp_path / "mistral", "tekken_240911.json", "tekken.json")
    vocabularies = Vocabulary.from_path(folder), Vocabulary.from_path(folder / "tekken.json")
    texts = [vocabulary.texts()[1000:] for vocabulary in vocabularies]
    assert texts[0] == texts[1]
    assert len(texts[0]) == 130_072
    assert vocabularies[0].pieces[2] == "</s>"
    for vocabulary in vocabularies:
        assert vocabulary.special == frozenset(range(1000))
        assert resolve_boundaries("word", vocabulary).count == 74_417
        assert resolve_boundaries("step", vocabulary).count == 464


def test_sentencepiece_model_alone_is_read(tmp_path: Path) -> None:
    sentencepiece = pytest.importorskip("sentencepiece")
    folder = mistral(tmp_path / "mistral", "tokenizer.model.v1", "tokenizer.model")
    vocabulary = Vocabulary.from_path(folder / "tokenizer.model")
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    assert vocabulary.special == {0, 1, 2}
    anchor = model.encode("a")
    words = resolve_boundaries("word", vocabulary)
    assert words.table.tolist() == [
        model.decode([*anchor, i]).removeprefix("a").startswith(" ") and i > 2
        for i in range(len(model))
    ]
    assert words.count == 15_763


def test_checkpoint_with_a_sentencepiece_model_alone_is_read(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("sentencepiece")
    folder = mistral(tmp_path / "mistral", "tokenizer.model.v1", "tokenizer.model")
    (folder / "config.json").write_text('{"model_type": "llama"}')
    try:
        import sentencepiece.sentencepiece_model_pb2  # noqa: F401
    except Exception:
        pytest.skip(
            "the installed sentencepiece and protobuf are a pair that constraints/ excludes"
        )
    alone = Vocabulary.from_path(folder / "tokenizer.model")
    assert Vocabulary.from_path(folder).pieces == alone.pieces


def test_sentencepiece_that_needs_another_protobuf_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "tokenizer.model").write_bytes(b"\x0e\x00")
    (folder / "config.json").write_text('{"model_type": "llama"}')
    monkeypatch.setitem(sys.modules, "sentencepiece.sentencepiece_model_pb2", None)
    with refused("sentencepiece-unreadable", folder=str(folder)):
        Vocabulary.from_path(folder)


def test_tiktoken_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "qwen.tiktoken"
    lines = (f"{base64.b64encode(text).decode()} {i}" for i, text in enumerate(TEXTS))
    file.write_text("\n".join(lines) + "\n")
    vocabulary = Vocabulary.from_path(file)
    assert vocabulary.texts() == tuple(TEXTS)
    assert resolve_boundaries("word", vocabulary).table.nonzero()[0].tolist() == [1, 2, 6]


@pytest.mark.parametrize("content", [b"", b"\x00\x01", b"YQ== 1\nYQ== x\n", b"YQ 1\n"])
@pytest.mark.parametrize("name", ["tokenizer.model", "tokenizer.model.v3", "qwen.tiktoken"])
def test_file_of_something_else_is_refused(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with refused("vocabulary-unreadable", "tokenizer-needs-package", "tokenizer-not-json"):
        Vocabulary.from_path(tmp_path / name)


@pytest.mark.parametrize(
    "change",
    [
        {"config": {}},
        {"vocab": [{}]},
        {"vocab": [{"rank": 0, "token_bytes": "!", "token_str": None}]},
        {"vocab": [{"rank": "0", "token_bytes": "YQ==", "token_str": None}]},
        {"vocab": [3]},
        {"vocab": []},
        {"special_tokens": 3},
        {"config": {"default_vocab_size": "x", "default_num_special_tokens": 1}},
    ],
)
def test_broken_tekken_file_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    file = tekken(tmp_path)
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with refused("vocabulary-unreadable", "vocabulary-empty"):
        Vocabulary.from_path(file)


def test_folder_is_read_without_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with refused("tokenizer-files-missing", folder=str(tmp_path)):
        Vocabulary.from_path(tmp_path)
    (tmp_path / "vocab.txt").touch()
    with refused("tokenizer-needs-package", package="transformers"):
        Vocabulary.from_path(tmp_path)
    tekken(tmp_path)
    assert len(Vocabulary.from_path(tmp_path)) == 5 + 256 + 5
    core = {"type": "WordLevel", "vocab": {"a": 0, "Ġa": 1}, "unk_token": "a"}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": core, "added_tokens": []}))
    assert Vocabulary.from_path(tmp_path).pieces == ("a", "Ġa")


@pytest.mark.parametrize("listed", [{3: 0}, {None: 0, "a": 1}, {("a",): 0}])
def test_token_that_is_no_text_is_refused(listed: Any) -> None:
    with refused("vocabulary-unreadable"):
        Vocabulary.from_tokenizer(SimpleNamespace(get_vocab=lambda: listed))


def test_tokenizer_of_special_tokens_alone_is_refused() -> None:
    """What transformers makes of a checkpoint whose tokenizer was not saved."""
    tokenizer = SimpleNamespace(get_vocab=lambda: {"<s>": 0, "▁": 1}, all_special_ids=[0])
    with refused("vocabulary-empty"):
        Vocabulary.from_tokenizer(tokenizer)


ODD: list[Any] = [None, True, -1, 2**70, "", "Ġ", [], {}, [1], {"type": "ByteLevel"}]


@pytest.mark.parametrize("spoiled", range(len(ODD)))
def test_spoiled_tokenizer_file_ends_in_a_sentence(tmp_path: Path, spoiled: int) -> None:
    """Panics of the library, types that it does not expect, texts that it cannot decode."""
    core = json.loads(byte_level_bpe().to_str())
    places = [(core, key) for key in core] + [(core["model"], key) for key in core["model"]]
    file = tmp_path / "tokenizer.json"
    for part, key in places:
        before, part[key] = part[key], ODD[spoiled]
        file.write_text(json.dumps(core))
        with suppress(TokenizerError):
            assert len(Vocabulary.from_path(file))
        part[key] = before


RESOLVERS = ("word", "sentence", "step", "newline", "every")
ADDED = {
    "plain": ["<tool>", " two words", "\n\nnext", "\u2581piece"],
    "special": ["<|end|>", "<pad>"],
}


def saved(core: Any, folder: Path, *, added: bool, **names: str) -> Path:
    """A folder that transformers writes, perhaps with tokens that were added afterwards."""
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=core, **names)
    if added:
        tokenizer.add_tokens(ADDED["plain"])
        tokenizer.add_tokens(ADDED["special"], special_tokens=True)
    tokenizer.save_pretrained(folder)
    return folder


def table_of(name: str, vocabulary: Vocabulary) -> list[bool] | str | None:
    """A resolver's table; where it has none, the code of its error."""
    try:
        return resolve_boundaries(name, vocabulary).table.tolist()
    except TokenizerError as error:
        return error.code


def the_same(folder: Path) -> Vocabulary:
    """The vocabulary of a folder, after it was compared with that of transformers' tokenizer."""
    transformers = pytest.importorskip("transformers")
    reference = Vocabulary.from_tokenizer(transformers.AutoTokenizer.from_pretrained(str(folder)))
    vocabulary = Vocabulary.from_path(folder)
    for field in ("pieces", "special", "family"):
        assert getattr(vocabulary, field) == getattr(reference, field), field
    assert vocabulary.texts() == reference.texts()
    for name in RESOLVERS:
        assert table_of(name, vocabulary) == table_of(name, reference), name
    return vocabulary


@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("make", [byte_level_bpe, llama_like_bpe, unigram_with_byte_fallback])
def test_whole_tokenizer_json_is_read_as_transformers_reads_its_folder(
    tmp_path: Path, make: Callable[[], Any], added: bool
) -> None:
    folder = saved(make(), tmp_path, added=added)
    vocabulary = the_same(folder)
    assert whole_tokenizer(folder) is not None
    texts = [text.decode(errors="replace") for text in vocabulary.texts()]
    assert not added or set(ADDED["special"]) <= {texts[i] for i in vocabulary.special}


@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("name", ["qwen", "t5", "gpt2"])
def test_real_vocabularies_are_read_as_transformers_reads_their_folders(
    tmp_path: Path, real_tokenizer: Callable[[str], Path], name: str, added: bool
) -> None:
    transformers = pytest.importorskip("transformers")
    if name == "gpt2":
        folder = real_tokenizer(name)
        files = str(folder / "encoder.json"), str(folder / "vocab.bpe")
        tokenizer = transformers.GPT2Tokenizer(*files)
    elif name == "qwen":
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(real_tokenizer(name)))
    else:
        file = str(real_tokenizer("t5/tokenizer.json"))
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=file)
    if added:
        tokenizer.add_tokens(ADDED["plain"])
        tokenizer.add_tokens(ADDED["special"], special_tokens=True)
    tokenizer.save_pretrained(tmp_path)
    assert whole_tokenizer(tmp_path) is not None
    the_same(tmp_path)


CLASSES: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "GPT2Tokenizer": (lambda: byte_level_bpe([gpt2()]), ["<|endoftext|>"]),
    "Qwen2Tokenizer": (byte_level_bpe, ["<|endoftext|>"]),
    "Qwen2TokenizerFast": (byte_level_bpe, ["<|endoftext|>"]),
    "LlamaTokenizer": (llama_like_bpe, ["<unk>", "<s>", "</s>"]),
    "LlamaTokenizerFast": (llama_like_bpe, ["<unk>", "<s>", "</s>"]),
    "GemmaTokenizer": (llama_like_bpe, ["<unk>", "<bos>", "<eos>", "<pad>", "<mask>"]),
}


@pytest.mark.parametrize("has_specials", [False, True])
@pytest.mark.parametrize("name", CLASSES)
def test_class_of_the_files_family_keeps_its_vocabulary(
    tmp_path: Path, name: str, has_specials: bool
) -> None:
    """It adds special tokens of its own where the file has none."""
    make, specials = CLASSES[name]
    core = make()
    if has_specials:
        core.add_special_tokens(specials)
    folder = saved(core, tmp_path, added=True)
    edited(folder, "tokenizer_config.json", tokenizer_class=name)
    assert (whole_tokenizer(folder) is not None) is has_specials
    the_same(folder)


@pytest.mark.parametrize("name", ["LlamaTokenizer", "T5TokenizerFast", "BloomTokenizer", "Mine"])
def test_class_of_another_family_is_left_to_transformers(tmp_path: Path, name: str) -> None:
    folder = saved(byte_level_bpe(), tmp_path, added=False)
    edited(folder, "tokenizer_config.json", tokenizer_class=name)
    assert whole_tokenizer(folder) is None


def test_class_that_the_model_names_is_left_to_transformers(tmp_path: Path) -> None:
    folder = saved(byte_level_bpe(), tmp_path, added=False)
    (folder / "tokenizer_config.json").unlink()
    assert whole_tokenizer(folder) is not None
    (folder / "config.json").write_text('{"model_type": "llama"}')
    assert whole_tokenizer(folder) is None


def edited(folder: Path, name: str, **changes: Any) -> None:
    file = folder / name
    content = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(content | changes))


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("tokenizer_config.json", {"eos_token": "<new end>"}),
        ("tokenizer_config.json", {"extra_special_tokens": {"image_token": "<image>"}}),
        ("tokenizer_config.json", {"extra_special_tokens": ["<image>"]}),
        ("tokenizer_config.json", {"pad_token": "q"}),
        ("tokenizer_config.json", {"pad_token": "<tool>"}),  # added, and not special
        ("special_tokens_map.json", {"eos_token": "<new end>"}),
        ("added_tokens.json", {"<new>": 300}),
    ],
)
def test_tokens_of_other_files_are_read_by_transformers(
    tmp_path: Path, name: str, changes: dict[str, Any]
) -> None:
    folder = saved(byte_level_bpe(), tmp_path / "saved", added=True)
    edited(folder, name, **changes)
    assert whole_tokenizer(folder) is None
    the_same(folder)


def test_tokens_that_other_files_repeat_are_no_reason_to_import_transformers(
    tmp_path: Path,
) -> None:
    names = {"eos_token": "<|end|>", "pad_token": "<pad>"}
    folder = saved(byte_level_bpe(), tmp_path / "saved", added=True, **names)
    edited(folder, "special_tokens_map.json", **names, additional_special_tokens=["<pad>"])
    vocabulary = the_same(folder)
    tokens = {vocabulary.pieces[i]: i for i in vocabulary.special}
    assert set(tokens) == {"<|end|>", "<pad>"}
    edited(folder, "added_tokens.json", **tokens)
    assert whole_tokenizer(folder) is not None
    edited(folder, "added_tokens.json", **{"<pad>": tokens["<pad>"] + 1})
    assert whole_tokenizer(folder) is None


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer_config.json", '{"auto_map": {"AutoTokenizer": ["mine.Mine", null]}}'),
        ("tokenizer_config.json", "[1]"),
        ("tokenizer_config.json", "{"),
        ("tokenizer_config.json", '{"eos_token": {"content": "<new end>", "lstrip": false}}'),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"x": {}}}'),
        ("added_tokens.json", '{"<new>": "x"}'),
        ("tekken.json", "{}"),
        ("tokenizer.json", "{}"),
    ],
)
def test_files_of_another_form_are_left_to_transformers(
    tmp_path: Path, name: str, content: str
) -> None:
    folder = saved(byte_level_bpe(), tmp_path / "saved", added=False)
    assert whole_tokenizer(folder) is not None
    (folder / name).write_text(content)
    assert whole_tokenizer(folder) is None


def test_folder_of_a_tokenizer_imports_neither_transformers_nor_torch(tmp_path: Path) -> None:
    folder = saved(byte_level_bpe(), tmp_path / "saved", added=True)
    program = f"""
import sys
from tandem_plugin import Vocabulary
assert len(Vocabulary.from_path({str(folder)!r})) > 256
assert not {{"torch", "transformers"}} & {{*sys.modules}}
"""
    subprocess.run([sys.executable, "-c", program], check=True)
