from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pages
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pages import Scripts
from tokenizers import Tokenizer, decoders, models
from typer.testing import CliRunner

from tandem_plugin.cli import app
from tandem_plugin.lab.rollouts import rollout_file
from tandem_plugin.lab.rollouts.rollout import Rollout, check_row
from tandem_plugin.lab.viewer.page import make_page
from tandem_plugin.lab.viewer.responses import facts_of, is_truncated, token_lengths
from tandem_plugin.spans import JUNIOR, OTHER, SENIOR, UNKNOWN, UNTRAINED, authored_text

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


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_only_data_of_the_page(text: str):
    calm = Scripts()
    calm.feed(make_page("calm", {"texts": ["calm"]}, ["Y2FsbQ=="]))
    hostile = Scripts()
    hostile.feed(make_page(text, {"texts": [text], text: 1}, ["Y2FsbQ=="]))
    assert hostile.tags == calm.tags
    data, part, script = hostile.scripts
    assert json.loads(data) == {"texts": [text], text: 1}
    assert part == "Y2FsbQ=="
    assert script == calm.scripts[2]
    assert not set("<>&") & set(data)
    assert data.isascii()


def test_page_asks_nothing_of_any_network():
    page = make_page("title", {}, [])
    assert re.findall(r"(?:src|href)\s*=\s*[\"'](?!#)", page) == []
    assert re.findall(r"https?://|@import|url\(", page) == []
    assert "default-src 'none'" in page


@pytest.fixture
def view(tmp_path: Path, tokenizer_file: Path) -> Callable[..., tuple[int, Any, Any]]:
    """Run ``tandem view`` on rows: see :func:`pages.view`."""

    def run(*rows: Any) -> tuple[int, Any, Any]:
        file = tmp_path / "rollouts.jsonl"
        file.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows))
        return pages.view(file, tokenizer_file)

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
    assert data["problems"] == {"0": [4, "2+2?"]}
    first, second = data["responses"]
    assert first["text"] == "a ab."
    assert first["spans"] == [SENIOR, 2, 3, JUNIOR, 2, 2]
    assert (first["sample"], first["reward"], second["reward"]) == (2, None, 1)
    assert first["facts"] == ["gold 4", "word p=1", "seed 7", "1 junior span of 2 tokens"]


def test_rows_that_verl_dumped_become_responses_grouped_by_prompt(view: Any):
    row = tandem_row(input="Q", output="a ab.", gts="4", score=0.0, step=3, tandem_junior=None)
    code, _, data = view(row, row | {"input": "R"}, row | {"tandem_junior": "models/small"})
    assert code == 0
    assert data["problems"] == {"0": [1, "Q"], "1": [2, "R"]}
    assert data["turns"] == {0: [["", "Q"]], 1: [["", "R"]]}
    assert [response["problem"] for response in data["responses"]] == [0, 1, 0]
    assert [response["sample"] for response in data["responses"]] == [0, 0, 1]
    assert [response["step"] for response in data["responses"]] == [3, 3, 3]
    assert data["responses"][0]["reward"] == 0
    assert data["responses"][0]["facts"] == ["gold 4", "seed 7", "1 junior span of 2 tokens"]
    assert data["responses"][2]["facts"][:3] == ["gold 4", "seed 7", "with models/small"]


def test_the_gold_of_a_generated_task_is_shown_as_its_answer(view: Any):
    entry = '{"reasoning_gym": "chain_sum", "answer": "-1", "metadata": {}}'
    row = tandem_row(input="Q", output="a ab.", gts=entry, score=0.0)
    _, _, data = view(row, row | {"gts": [entry]}, row | {"gts": entry[:30]})
    golds = [response["facts"][0] for response in data["responses"]]
    assert golds == ["gold -1", "gold -1", f"gold {entry[:30]}"]


ANSWERS = {
    "graded": ({"pred": "5", "response": "a ab."}, ["gold 4", "answered 5"]),
    "boxed": ({"output": r"so \boxed{3 + 1} or"}, ["gold 4", "answered 3 + 1"]),
    "cut off": ({"output": r"so \boxed{3"}, ["gold 4"]),
    "no text": ({}, ["gold 4"]),
    "outcome": ({"outcome": "correct", "pred": ""}, ["gold 4", "outcome correct"]),
}


@pytest.mark.parametrize(("fields", "facts"), ANSWERS.values(), ids=list(ANSWERS))
def test_answer_is_the_graded_one_or_that_of_the_last_box(fields: dict[str, Any], facts: list[str]):
    row = parsed(tandem_row(gts=["4"], **fields))
    assert facts_of(row, None)[:-1] == facts


def parsed(row: dict[str, Any]) -> Rollout:
    check_row(row)
    return Rollout(
        1, row["response_ids"], row.get("authorship"), row["tandem_seed"], [], None, {}, row
    )


SPECIAL = frozenset({7})
ENDS = [
    ({"finish_reason": "length"}, SPECIAL, True),
    ({"finish_reason": "stop", "response_ids": [0, 2]}, SPECIAL, False),
    ({"finish_reason": None}, SPECIAL, False),
    ({"response_ids": [0, 7, 2]}, SPECIAL, True),
    ({"response_ids": []}, SPECIAL, None),
    ({}, frozenset(), None),
]


@pytest.mark.parametrize(("fields", "special", "expected"), ENDS)
def test_response_without_a_special_token_at_its_end_was_cut_off(
    fields: dict[str, Any], special: frozenset[int], expected: bool | None
):
    assert is_truncated(parsed(tandem_row(**fields)), special) is expected


def test_surprise_of_each_token_is_that_of_the_model_that_did_not_write_it(view: Any):
    row = tandem_row(
        senior_logprobs=[-9, -9, -0.5, -1.25], junior_logprobs=[-0.25, None, -9, -9]
    )  # fmt: skip
    _, _, data = view(row, tandem_row())
    measured, plain = data["responses"]
    assert measured["surprise"] == [1, 0.25, 2, None, 1, 0.5, 1, 1.25]
    assert [len(text) for text in ("a", " a", "b", ".")] == measured["surprise"][::2]
    assert plain["surprise"] is None
    assert data["legend"] == ["surprise"]


@pytest.mark.parametrize("values", [[-1.0], "-1", [True] * 4, [[-1.0]] * 4, [-1.0] * 5])
def test_log_probabilities_that_are_not_those_of_the_tokens_are_named(view: Any, values: Any):
    _, result, _ = view(tandem_row(), tandem_row(senior_logprobs=values))
    assert (result["responses"], result["unread_lines"]) == (1, 1)
    assert "senior_logprobs" in result["first_unread"]


@given(st.lists(st.binary(max_size=3), max_size=12))
def test_lengths_of_tokens_are_those_of_the_text(pieces: list[bytes]):
    """Whatever bytes of a character stand in which token, and wherever handoffs are."""

    def token_bytes(ids: Any) -> bytes:
        return b"".join(pieces[i] for i in ids)

    ids = list(range(len(pieces)))
    text = authored_text(ids, [i % 2 for i in ids], token_bytes).text
    assert sum(token_lengths(ids, token_bytes)) == len(text.encode("utf-16-le")) // 2


def test_calls_of_a_response_are_counted_with_their_tokens(view: Any):
    ids = [0, 2, 1, 7, 0, 2, 1, 7]
    _, _, data = view(
        tandem_row(response_ids=ids, authorship=[1, 1, 0, 0, 1, 0, 1, 0]),
        tandem_row(response_ids=ids, authorship=[1] * 8),
    )
    calls, none = data["responses"]
    assert calls["facts"][-1] == "3 junior spans of 1.33 tokens"
    assert none["facts"] == ["seed 7"]


def test_tokens_that_no_model_wrote_are_neithers(view: Any):
    row = tandem_row(authorship=[1, 0, 0, 0], tandem_segments=[[7, 0, 1], [9, 2, 4]])
    _, _, data = view(row)
    assert data["responses"][0]["spans"] == [SENIOR, 1, 1, OTHER, 1, 2, JUNIOR, 2, 2]


def test_schedule_that_only_selects_trained_tokens_leaves_all_to_the_senior(view: Any):
    row = tandem_row(tandem_schedule={"schedule": "solo-word", "p": 0.5})
    _, _, data = view(row, tandem_row(tandem_schedule={"schedule": "word", "p": 0.5}))
    selected, tandem = data["responses"]
    assert selected["spans"] == [SENIOR, 2, 3, UNTRAINED, 2, 2]
    assert (selected["senior"], selected["team"], tandem["senior"]) == (4, 4, 2)
    assert "2 tokens trained on" in selected["facts"]
    assert data["legend"] == ["untrained"]


def test_tokens_of_unknown_author_are_neither_models(view: Any):
    row = tandem_row(authorship=[1, 0, 0, 0], tandem_segments=[[7, 0, 4]], tandem_unknown=[[1, 3]])
    _, _, data = view(row)
    (response,) = data["responses"]
    assert response["spans"] == [SENIOR, 1, 1, UNKNOWN, 2, 3, JUNIOR, 1, 1]
    _, _, alone = view({"response_ids": [0, 1], "tandem_seed": None})
    assert alone["responses"][0]["spans"] == [SENIOR, 2, 2]
    assert alone["responses"][0]["facts"] == ["senior alone"]
    assert (response["tokens"], response["team"], response["senior"]) == (4, 2, 1)


def test_lines_that_cannot_be_read_are_counted_and_named(view: Any):
    short = tandem_row(authorship=[1])
    code, result, data = view("not json", tandem_row(), short, *["[]"] * 60)
    assert code == 0
    assert (result["responses"], result["unread_lines"]) == (1, 62)
    assert data["unread"][0][:2] == ["", 1]
    assert data["unread"][1] == ["", 3, "The response has 4 tokens, its recorded authorship 1."]
    assert len(data["unread"]) + data["unreadMore"] == 62


def test_file_without_any_rollout_is_refused(view: Any):
    code, result, data = view("nothing")
    assert (code, data) == (1, None)
    assert "contains no rollouts that can be shown: line 1: The line is not JSON" in result["error"]
    assert result["error"].endswith("[view-nothing-to-show]")


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), 10**310, "1", None, [1]])
def test_reward_that_is_no_number_is_left_out(view: Any, reward: Any):
    _, _, data = view(tandem_row(reward=reward))
    assert data["responses"][0]["reward"] is None


OTHER_TEXTS = {"text": {"response": "what was said"}, "verl": {"output": "what was said"}}


@pytest.mark.parametrize("fields", OTHER_TEXTS.values(), ids=list(OTHER_TEXTS))
def test_rollouts_of_another_tokenizer_are_refused(view: Any, fields: dict[str, str]):
    code, result, data = view(
        tandem_row(**fields), tandem_row(response="a ab."), tandem_row(**fields)
    )
    assert (code, data) == (1, None)
    assert "is not the tokenizer of" in result["error"]
    assert result["error"].endswith("[view-tokenizer-differs]")
    assert "The row records 'whatwassaid', and its token ids give 'aab.'" in result["error"]


def test_token_id_beyond_the_vocabulary_tells_another_tokenizer(view: Any):
    code, result, _ = view(tandem_row(response_ids=[0, 2, 1, 8]))
    assert code == 1
    assert "The token id 8 is outside this tokenizer's 8 ids." in result["error"]
    assert view(tandem_row(response_ids=[0, 2, 1, 8], response="a ab"))[0] == 0, "padding"


def test_one_line_of_another_tokenizer_is_listed_and_not_shown(view: Any):
    row = tandem_row(response="a ab.")
    code, result, data = view(row, row | {"response": "else"}, row)
    assert (code, result["responses"], result["unread_lines"]) == (0, 2, 1)
    assert data["unread"][0][:2] == ["", 2]


@pytest.mark.parametrize(
    "recorded", ["a ab.", "a ab", "a  ab .", "", " a ab.", "a ab\ufffd."], ids=repr
)
def test_what_decoders_leave_out_is_no_other_tokenizer(view: Any, recorded: str):
    """Special tokens, white space, bytes that are no character, and what follows a stop string."""
    assert view(tandem_row(response=recorded))[0] == 0


BYTES = {"<unk>": 0, "▁a": 1, "b": 2} | {f"<0x{i:02X}>": 3 + i for i in range(256)}
EURO = [3 + byte for byte in "€".encode()]


@pytest.fixture
def byte_fallback(tmp_path: Path) -> Tokenizer:
    """A SentencePiece-like tokenizer with byte pieces; saved as ``tokenizer.json``."""
    tokenizer = Tokenizer(models.BPE(vocab=BYTES, merges=[], byte_fallback=True, unk_token="<unk>"))
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(parts)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tokenizer


RUNS = [[*EURO, 3 + 0xFF], [3 + 0xFF, *EURO], [3 + 0x80, 1, *EURO], [*EURO, *EURO[:2], 2, *EURO]]


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_bytes_that_hugging_face_replaces_as_a_whole_run_are_no_other_tokenizer(
    byte_fallback: Tokenizer, tmp_path: Path, run: list[int]
):
    ids = [1, *run, 2]
    recorded = byte_fallback.decode(ids)
    assert "\ufffd" in recorded
    row = tandem_row(response_ids=ids, authorship=[1] * len(ids))
    file = tmp_path / "rollouts.jsonl"
    texts = (recorded, recorded.replace("b", "c"), recorded + "€")
    file.write_text("".join(json.dumps(row | {"response": text}) + "\n" for text in texts))
    code, result, data = pages.view(file, tmp_path / "tokenizer.json")
    assert (code, result) == (1, result)
    assert "on 2 lines the token ids do not decode" in result["error"]
    file.write_text(json.dumps(row | {"response": recorded}) + "\n")
    code, result, data = pages.view(file, tmp_path / "tokenizer.json")
    assert (code, result["unread_lines"]) == (0, 0)
    assert "€" in data["responses"][0]["text"], "the page shows what the bytes are"


def test_root_folder_has_no_page_beside_it(monkeypatch: Any):
    monkeypatch.setattr(rollout_file, "rollout_files", lambda path: [path / "x.jsonl"])
    done = CliRunner().invoke(app, ["view", "/"])
    assert (done.exit_code, "[rollout-file-name-invalid]" in done.stderr) == (1, True), done.stderr


def test_more_megabytes_are_advised_only_where_the_page_has_no_room(
    tmp_path: Path, tokenizer_file: Path, monkeypatch: Any
):
    monkeypatch.chdir(tmp_path)
    rows = [tandem_row(response="else"), *[tandem_row(response="a ab.")] * 2]
    Path("rollouts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ["view", "rollouts.jsonl", "--tokenizer", "vocab.json"]
    done = CliRunner().invoke(app, command)
    assert "Unreadable lines: 1." in done.stderr
    assert "--megabytes" not in done.output
    assert pages.content_of(Path("rollouts.html"))["withoutRoom"] == 0
    random = Random(0)
    authors = [random.getrandbits(1) for _ in range(5000)]
    long = (
        tandem_row(response_ids=random.choices(range(8), k=5000), authorship=authors, problem=i)
        for i in range(60)
    )
    Path("rollouts.jsonl").write_text("".join(json.dumps(one) + "\n" for one in long))
    done = CliRunner().invoke(app, [*command, "--megabytes", "0.1"])
    assert "Use --megabytes to show more." in done.stdout
    left = 60 - len((data := pages.content_of(Path("rollouts.html")))["responses"])
    assert data["withoutRoom"] == left > 0


@pytest.mark.parametrize("target", ["rollouts.jsonl", "vocab.json"])
def test_page_never_replaces_what_is_read(
    tmp_path: Path, tokenizer_file: Path, target: str, monkeypatch: Any
):
    monkeypatch.chdir(tmp_path)
    Path("rollouts.jsonl").write_text(json.dumps(tandem_row()))
    before = Path(target).read_bytes()
    arguments = ["view", "rollouts.jsonl", "--tokenizer", "vocab.json", "--out", target]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 1
    assert "would overwrite the" in done.stderr
    assert Path(target).read_bytes() == before


@pytest.mark.parametrize("out", [None, "thesis.html", "notes.txt"])
def test_page_never_replaces_a_file_that_is_no_page(
    tmp_path: Path, tokenizer_file: Path, out: str | None, monkeypatch: Any
):
    monkeypatch.chdir(tmp_path)
    Path("rollouts.jsonl").write_text(json.dumps(tandem_row()))
    foreign = Path(out or "rollouts.html")
    foreign.write_text("<!DOCTYPE html><p>My own.")
    command = ["view", "rollouts.jsonl", "--tokenizer", "vocab.json"]
    done = CliRunner().invoke(app, [*command, *(["--out", out] if out else [])])
    assert (done.exit_code, "page-is-foreign" in done.stderr) == (1, True), done.stderr
    assert foreign.read_text() == "<!DOCTYPE html><p>My own."
    for content in ("", None):  # an empty file, and then the command's own page
        if content is not None:
            foreign.write_text(content)
        done = CliRunner().invoke(app, [*command, "--out", str(foreign)])
        assert done.exit_code == 0, done.stderr
