from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tandem_plugin import TandemConfig, TandemRules, Vocabulary
from tandem_plugin.cli import app
from tandem_plugin.rollouts.rollout import Rollout
from tandem_plugin.viewer.authored_text import JUNIOR, OTHER, SENIOR, authored_text
from tandem_plugin.viewer.decoding import Decoding
from tandem_plugin.viewer.page import make_page
from tandem_plugin.viewer.token_bytes import TokenBytes

PIECE = st.one_of(
    st.binary(max_size=4),
    st.sampled_from(["é", "€", "😀", "a", "�", "\u2028"]).flatmap(
        lambda letter: st.sampled_from([letter.encode()[:k] for k in range(1, 5)])
    ),
    st.sampled_from(["é", "€", "😀", "�"]).flatmap(
        lambda letter: st.sampled_from([letter.encode()[k:] for k in range(1, 4)])
    ),
)


def utf16(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


@example([(b"\xed", SENIOR), (b"\xa0", JUNIOR)])
@example([(b"\xed\xa0", SENIOR), (b"\x80", JUNIOR), (b"a", JUNIOR)])
@given(st.lists(st.tuples(PIECE, st.sampled_from([JUNIOR, SENIOR, OTHER])), max_size=30))
def test_text_is_that_of_all_bytes_together_and_its_parts_add_up(tokens: list[tuple[bytes, int]]):
    pieces, authors = [piece for piece, _ in tokens], [author for _, author in tokens]
    authored = authored_text(range(len(pieces)), authors, pieces.__getitem__)
    assert authored.text == b"".join(pieces).decode("utf-8", "replace")
    alone = sum(length for _, _, length in authored.spans)
    assert alone + sum(length for *_, length in authored.shared) == utf16(authored.text)
    assert sum(count for _, count, _ in authored.spans) == len(tokens)
    assert all(a[0] != b[0] for a, b in zip(authored.spans, authored.spans[1:], strict=False))
    firsts = [first for first, _, _ in authored.shared]
    assert len(set(firsts)) == len(firsts)
    assert all(first < last for first, last, _ in authored.shared)


@given(st.text(alphabet="aé€😀 ", max_size=12), st.data())
def test_each_whole_character_is_given_to_the_authors_of_its_bytes(text: str, data: st.DataObject):
    """Every byte is a token: a character belongs to the spans of its first and its last byte."""
    letters = text.encode()
    authors = [data.draw(st.sampled_from([JUNIOR, SENIOR])) for _ in letters]
    authored = authored_text(letters, authors, lambda byte: bytes([byte]))
    span_of_byte = [0] * len(letters)
    for i in range(1, len(letters)):
        span_of_byte[i] = span_of_byte[i - 1] + (authors[i] != authors[i - 1])
    alone = [0] * (span_of_byte[-1] + 1 if letters else 0)
    shared = []
    at = 0
    for letter in text:
        first, last = span_of_byte[at], span_of_byte[at + len(letter.encode()) - 1]
        at += len(letter.encode())
        if first == last:
            alone[first] += utf16(letter)
        else:
            shared.append((first, last, utf16(letter)))
    assert [length for _, _, length in authored.spans] == alone
    assert authored.shared == shared


def test_byte_level_pieces_stand_for_bytes_and_special_tokens_for_their_text():
    vocabulary = Vocabulary(("Ġa", "ÃĤ", "Ċ", "<|im end|>", "", "ðŁ"), "made up")
    as_bytes = TokenBytes(vocabulary)
    assert [as_bytes(i) for i in range(7)] == [
        b" a", "Â".encode(), b"\n", b"<|im end|>", b"<4>", b"\xf0\x9f", b"<6>",
    ]  # fmt: skip


def test_sentence_piece_pieces_stand_for_text_and_fallback_bytes():
    vocabulary = Vocabulary(("▁a", "b", "<0xE2>", "</s>", "▁"), "made up")
    as_bytes = TokenBytes(vocabulary)
    assert [as_bytes(i) for i in range(5)] == [b" a", b"b", b"\xe2", b"</s>", b" "]


TEXTS = ["Hello  world\n\n\tx = 1", "naïve café 数学 😀🏽 ﷽", "‮\u2028 \u00a0 e\u0301", "\\boxed{1}"]


@pytest.mark.parametrize("text", TEXTS)
def test_real_byte_level_tokens_give_back_the_text(
    real_tokenizer: Callable[[str], Path], text: str
):
    transformers = pytest.importorskip("transformers")
    folder = real_tokenizer("qwen")
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
    ids = tokenizer(text).input_ids
    as_bytes = TokenBytes(Vocabulary.from_path(folder))
    found = authored_text(ids, [i % 2 for i in range(len(ids))], as_bytes)
    assert found.text == tokenizer.decode(ids, clean_up_tokenization_spaces=False)


def test_real_sentence_piece_tokens_give_back_the_text(real_tokenizer: Callable[[str], Path]):
    tokenizers = pytest.importorskip("tokenizers")
    file = real_tokenizer("t5/tokenizer.json")
    tokenizer = tokenizers.Tokenizer.from_file(str(file))
    ids = tokenizer.encode("The house is wonderful, 12 times.", add_special_tokens=False).ids
    as_bytes = TokenBytes(Vocabulary.from_path(file))
    found = authored_text(ids, [SENIOR] * len(ids), as_bytes)
    assert found.text == " The house is wonderful, 12 times."


HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!--",
    "<!-- <script>",
    "]]>",
    "\"'`",
    "&lt;b&gt; &amp;",
    "\u2028\u2029\u0000\ud800 \udfff",
    "{{script}} {{rollouts}}",
    "<img src=x onerror=alert(1)>",
]


class Scripts(HTMLParser):
    """Collects what a browser would take for scripts, and every other tag."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts: list[str] = []
        self.tags: list[str] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        self._inside = tag == "script"
        if self._inside:
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts[-1] += data


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_only_data_of_the_page(text: str):
    calm = Scripts()
    calm.feed(make_page("calm", {"texts": ["calm"]}))
    hostile = Scripts()
    hostile.feed(make_page(text, {"texts": [text], text: 1}))
    assert hostile.tags == calm.tags
    data, script = hostile.scripts
    assert json.loads(data) == {"texts": [text], text: 1}
    assert script == calm.scripts[1]
    assert not set("<>&") & set(data)
    assert data.isascii()


def test_page_asks_nothing_of_any_network():
    page = make_page("title", {})
    assert re.findall(r"(?:src|href)\s*=\s*[\"'](?!#)", page) == []
    assert re.findall(r"https?://|@import|url\(", page) == []
    assert "default-src 'none'" in page


@pytest.fixture
def view(tmp_path: Path, tokenizer_file: Path) -> Callable[..., tuple[int, Any, Any]]:
    """Run ``tandem view --json`` on rows; exit code, result, and the data of the page."""

    def run(*rows: Any) -> tuple[int, Any, Any]:
        file = tmp_path / "rollouts.jsonl"
        file.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows))
        arguments = ["view", str(file), "--tokenizer", str(tokenizer_file), "--json"]
        done = CliRunner().invoke(app, arguments)
        page = tmp_path / "rollouts.html"
        if not page.exists():
            return done.exit_code, json.loads(done.stdout), None
        scripts = Scripts()
        scripts.feed(page.read_text(encoding="utf-8"))
        return done.exit_code, json.loads(done.stdout), json.loads(scripts.scripts[0])

    return run


def tandem_row(**fields: Any) -> dict[str, Any]:
    return {
        "response_ids": [0, 2, 1, 7],
        "authorship": [1, 1, 0, 0],
        "tandem_seed": 7,
        "tandem_fingerprint": "x",
    } | fields


def test_rows_of_tandem_rollout_become_responses(view: Any):
    row = tandem_row(
        problem=4, sample=2, prompt="2+2?", answer="4", response="a ab.",
        tandem_schedule={"schedule": "word", "p": 1},
    )  # fmt: skip
    code, result, data = view(row, row | {"sample": 3, "reward": 1})
    assert code == 0
    assert (result["responses"], result["problems"], result["unread_lines"]) == (2, 1, 0)
    assert data["problems"] == [{"name": "Problem 4", "prompt": "2+2?"}]
    first, second = data["responses"]
    assert first["text"] == "a ab."
    assert first["spans"] == [SENIOR, 2, 3, JUNIOR, 2, 2]
    assert (first["sample"], first["reward"], second["reward"]) == (2, None, 1)
    assert first["facts"] == ["answer 4", "word p=1", "seed 7"]


def test_rows_that_verl_dumped_become_responses_grouped_by_prompt(view: Any):
    row = tandem_row(input="Q", output="a ab.", gts="4", score=0.0, step=3)
    code, _, data = view(row, row | {"input": "R"}, row)
    assert code == 0
    assert [problem["prompt"] for problem in data["problems"]] == ["Q", "R"]
    assert [response["problem"] for response in data["responses"]] == [0, 1, 0]
    assert data["responses"][0]["reward"] == 0
    assert data["responses"][0]["facts"] == ["step 3", "answer 4", "seed 7"]


def test_tokens_that_no_model_wrote_are_neithers(view: Any):
    row = tandem_row(authorship=[1, 0, 0, 0], tandem_segments=[[7, 0, 1], [9, 2, 4]])
    _, _, data = view(row)
    assert data["responses"][0]["spans"] == [SENIOR, 1, 1, OTHER, 1, 2, JUNIOR, 2, 2]


def test_response_of_the_senior_alone_is_the_seniors(view: Any):
    _, _, data = view({"response_ids": [0, 1], "tandem_seed": None})
    assert data["responses"][0]["spans"] == [SENIOR, 2, 2]
    assert data["responses"][0]["facts"] == ["senior alone"]


def test_lines_that_cannot_be_read_are_counted_and_named(view: Any):
    short = tandem_row(authorship=[1])
    code, result, data = view("not json", tandem_row(), short, *["[]"] * 60)
    assert code == 0
    assert (result["responses"], result["unread_lines"]) == (1, 62)
    assert data["unread"][0][0] == 1
    assert data["unread"][1] == [3, "The response has 4 tokens, its recorded authorship 1."]
    assert len(data["unread"]) + data["unreadMore"] == 62


def test_file_without_any_rollout_is_refused(view: Any):
    code, result, data = view("nothing")
    assert (code, data) == (1, None)
    assert "holds no rollouts that can be shown: line 1: This is not JSON" in result["error"]


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), 10**310, "1", None, [1]])
def test_reward_that_is_no_number_is_left_out(view: Any, reward: Any):
    _, _, data = view(tandem_row(reward=reward))
    assert data["responses"][0]["reward"] is None


def test_page_never_replaces_the_rollouts(tmp_path: Path, tokenizer_file: Path):
    file = tmp_path / "rollouts.html"
    file.write_text(json.dumps(tandem_row()))
    done = CliRunner().invoke(app, ["view", str(file), "--tokenizer", str(tokenizer_file)])
    assert done.exit_code == 1
    assert "would replace the rollouts" in done.stderr
    assert json.loads(file.read_text()) == tandem_row()


OTHER_TEXTS = {"text": {"response": "what was said"}, "verl": {"output": "what was said"}}


@pytest.mark.parametrize("fields", OTHER_TEXTS.values(), ids=list(OTHER_TEXTS))
def test_rollouts_of_another_tokenizer_are_refused(view: Any, fields: dict[str, str]):
    code, result, data = view(
        tandem_row(**fields), tandem_row(response="a ab."), tandem_row(**fields)
    )
    assert (code, data) == (1, None)
    assert "is not the tokenizer of" in result["error"]
    assert "The row records 'whatwassaid', and its token ids give 'aab.'" in result["error"]


def test_fingerprint_tells_another_tokenizer_where_no_text_does(view: Any):
    settings = {"schedule": "word", "p": 1.0}
    vocabulary = Vocabulary(("a", "b", "Ġa", "Ġb", "ĊĊ", "c", "Ġ", "."), "a test")
    own = TandemRules(TandemConfig.from_mapping(settings), vocabulary).default.fingerprint
    row = tandem_row(tandem_schedule=settings)
    assert view(row | {"tandem_fingerprint": own})[0] == 0
    code, result, _ = view(row)
    assert code == 1
    assert f"its rules have '{own}' with this tokenizer" in result["error"]


def test_token_id_beyond_the_vocabulary_tells_another_tokenizer(view: Any):
    code, result, _ = view(tandem_row(response_ids=[0, 2, 1, 8]))
    assert code == 1
    assert "The token id 8 is beyond this tokenizer's 8 ids." in result["error"]
    assert view(tandem_row(response_ids=[0, 2, 1, 8], response="a ab"))[0] == 0, "padding"


def test_one_line_of_another_tokenizer_is_listed_and_not_shown(view: Any):
    row = tandem_row(response="a ab.")
    code, result, data = view(row, row | {"response": "else"}, row)
    assert (code, result["responses"], result["unread_lines"]) == (0, 2, 1)
    assert data["unread"][0][0] == 2


@pytest.mark.parametrize(
    "recorded", ["a ab.", "a ab", "a  ab .", "", " a ab.", "a ab\ufffd."], ids=repr
)
def test_what_decoders_leave_out_is_no_other_tokenizer(view: Any, recorded: str):
    """Special tokens, white space, bytes that are no character, and what follows a stop string."""
    assert view(tandem_row(response=recorded))[0] == 0


def test_real_tokenizers_know_their_own_rollouts_and_no_others(
    real_tokenizer: Callable[[str], Path],
):
    transformers = pytest.importorskip("transformers")
    own = transformers.AutoTokenizer.from_pretrained(str(real_tokenizer("qwen")))
    decoding = Decoding(Vocabulary.from_path(real_tokenizer("qwen")))
    others = [
        Decoding(Vocabulary.from_path(real_tokenizer(name)))
        for name in ("t5/tokenizer.json", "gpt2/encoder.json")
    ]
    rng = random.Random(1)
    for _ in range(20):
        ids = [rng.randrange(len(own)) for _ in range(40)]
        text = own.decode(ids, skip_special_tokens=True)
        row = Rollout(1, ids, None, None, [], None, {}, {"response": text})
        assert decoding.mismatch(row) is None
        assert all(other.mismatch(row) for other in others)


@pytest.mark.parametrize("target", ["rollouts.jsonl", "vocab.json"])
@pytest.mark.parametrize("spelling", ["./{}", "folder/../{}", "soft", "hard"])
def test_page_never_replaces_what_is_read(
    tmp_path: Path, tokenizer_file: Path, target: str, spelling: str, monkeypatch: Any
):
    monkeypatch.chdir(tmp_path)
    Path("rollouts.jsonl").write_text(json.dumps(tandem_row()))
    Path("folder").mkdir()
    Path("soft").symlink_to(target)
    Path("hard").hardlink_to(target)
    before = Path(target).read_bytes()
    arguments = ["view", "rollouts.jsonl", "--tokenizer", "vocab.json", "--out"]
    done = CliRunner().invoke(app, [*arguments, spelling.format(target)])
    assert done.exit_code == 1
    assert "would replace the" in done.stderr
    assert Path(target).read_bytes() == before
