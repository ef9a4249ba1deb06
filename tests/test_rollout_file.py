from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tandem_plugin.cli import app
from tandem_plugin.cli.problems import answer, chat, digest, prompt, read_prompts
from tandem_plugin.cli.rollout import _Run
from tandem_plugin.data import DataError, Problem
from tandem_plugin.rollouts.rollout import RolloutError
from tandem_plugin.rollouts.rollout_file import RolloutFile, run_file

SETTINGS: dict[str, Any] = {"senior": "s", "seed": 0, "parameters": {"p": 0.5}}
TEXTS = ["plain", '\u2028 \ud800 {"}', "é" * 30]


def write(path: Path, samples: int = 3) -> list[tuple[int, int]]:
    with RolloutFile(path, SETTINGS) as file:
        places = [(i, i % 2) for i in range(samples)]
        for problem, sample in places:
            file.append(problem, sample, {"response": TEXTS[problem % 3]})
    return places


def test_lines_are_there_when_append_returns(tmp_path: Path):
    path = tmp_path / "new" / "out.jsonl"
    with RolloutFile(path, SETTINGS) as file:
        file.append(0, 1, {"response": "a"})
        assert json.loads(path.read_text()) == {"problem": 0, "sample": 1, "response": "a"}
        assert file.done == {(0, 1)}
    assert json.loads(run_file(path).read_text()) == SETTINGS


def test_file_is_gone_on_with(tmp_path: Path):
    path = tmp_path / "out.jsonl"
    places = write(path)
    before = path.read_bytes()
    with RolloutFile(path, SETTINGS) as file:
        assert file.done == set(places)
        file.append(9, 9, {})
    assert path.read_bytes().startswith(before)
    assert path.read_bytes().count(b"\n") == 4


@given(st.data())
def test_file_cut_at_any_byte_keeps_every_whole_line_and_merges_none(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
):
    path = tmp_path_factory.mktemp("cut") / "out.jsonl"
    places = write(path)
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    with RolloutFile(path, SETTINGS) as file:
        ends = [i for i in range(len(whole)) if whole[i : i + 1] == b"\n"]
        kept = sum(cut >= end for end in ends)  # a line without only its end is whole
        assert file.done == set(places[:kept])
        for place in places[kept:]:
            file.append(*place, {"response": TEXTS[place[0] % 3]})
    assert path.read_bytes() == whole


@pytest.mark.parametrize(
    "damage", [b"not json\n", b"[1]\n", b"{}\n", b'{"problem": "x"}\n', b"[" * 9999]
)
def test_line_that_is_no_rollout_is_refused_and_left_alone(tmp_path: Path, damage: bytes):
    path = tmp_path / "out.jsonl"
    write(path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + damage.rstrip(b"\n") + b"\n" + lines[1])
    before = path.read_bytes()
    with pytest.raises(RolloutError, match="line 2 is no rollout"):
        RolloutFile(path, SETTINGS)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seed": 1}, "was made with seed=0; now it is 1."),
        ({"parameters": {"p": 0.3}}, "was made with parameters={'p': 0.5}; now it is {'p': 0.3}."),
        ({"new": True}, "was made with new=None; now it is True."),
    ],
)
def test_other_settings_are_refused_naming_the_difference(
    tmp_path: Path, change: dict[str, Any], said: str
):
    path = tmp_path / "out.jsonl"
    write(path)
    before = path.read_bytes()
    with pytest.raises(RolloutError) as refused:
        RolloutFile(path, SETTINGS | change)
    assert said in str(refused.value)
    assert path.read_bytes() == before


def test_rollouts_without_a_note_of_their_settings_are_refused(tmp_path: Path):
    path = tmp_path / "out.jsonl"
    write(path)
    run_file(path).unlink()
    with pytest.raises(RolloutError, match=r"no out\.jsonl\.run\.json beside them"):
        RolloutFile(path, SETTINGS)


def test_empty_file_may_be_started_with_other_settings(tmp_path: Path):
    path = tmp_path / "out.jsonl"
    write(path, samples=0)
    with RolloutFile(path, SETTINGS | {"seed": 3}) as file:
        assert file.done == set()
    assert json.loads(run_file(path).read_text())["seed"] == 3


def test_two_processes_do_not_write_one_file(tmp_path: Path):
    path = tmp_path / "out.jsonl"
    with (
        RolloutFile(path, SETTINGS),
        pytest.raises(RolloutError, match="Another process is writing"),
    ):
        RolloutFile(path, SETTINGS)
    RolloutFile(path, SETTINGS).__exit__(None, None, None)


def test_folder_in_place_of_the_file_is_an_error_of_one_sentence(tmp_path: Path):
    with pytest.raises(RolloutError, match="cannot be written: Is a directory"):
        RolloutFile(tmp_path, SETTINGS)


MESSAGES = [{"role": "user", "content": "Q"}]


@pytest.mark.parametrize("ending", [".json", ".jsonl"])
def test_problems_are_read_with_and_without_answers(tmp_path: Path, ending: str):
    rows: list[dict[str, Any]] = [
        {"problem": "1+1?", "answer": 2.0},
        {"prompt": "2+2?", "ground_truth": ["4", "four"]},
        {"question": "\u20283+3?\n ", "other": 1},
        {"messages": MESSAGES, "answer": None},
    ]
    file = tmp_path / f"problems{ending}"
    as_list = ending == ".json"
    file.write_text(json.dumps(rows) if as_list else "\n".join(map(json.dumps, rows)) + "\n\n")
    problems = read_prompts(str(file))
    assert [prompt(one) for one in problems] == ["1+1?", "2+2?", "\u20283+3?\n ", MESSAGES]
    assert [answer(one) for one in problems] == ["2", ["4", "four"], None, None]
    assert [chat(one)[0]["content"] for one in problems] == ["1+1?", "2+2?", "\u20283+3?\n ", "Q"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("problems.jsonl", "", "problems.jsonl holds no problems"),
        ("problems.json", "[]", "problems.json holds no problems"),
        ("problems.jsonl", '{"problem": "x"}\n{', "problems.jsonl, row 2: This is not JSON"),
        ("problems.json", '["x", {"problem": "y"}]', "problems.json, row 1: This is a str, no obj"),
        ("problems.jsonl", '{"text": "x"}', "Row 1: It has no text in any of problem, question"),
        ("problems.jsonl", '{"problem": ""}', "Row 1: It has no text"),
        ("problems.jsonl", '{"prompt": [{"role": "user"}]}', "Its prompt is neither text nor chat"),
        (
            "problems.jsonl",
            '{"problem": "x"}\n{"prompt": [{"role": "user", "content": null}]}\n{"problem": []}',
            "row 2: Its prompt is neither text nor chat messages with role and content. 1 more",
        ),
        (
            "problems.jsonl",
            '{"problem": "x"}\n{"problem": "y", "answer": {}, "label": {"x": 1}}',
            "problems.jsonl, row 2: A gold is text or a number, not dict",
        ),
        ("problems.json", "[" * 9999, "is not JSON"),
        ("problems.txt", "1+1?", "ends in '.txt'"),
    ],
)
def test_wrong_problems_are_refused_by_file_and_row(
    tmp_path: Path, name: str, text: str, said: str
):
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(DataError) as refused:
        read_prompts(str(file))
    assert said in str(refused.value)
    assert str(file) in str(refused.value)


def asked(text: str, *golds: str) -> Problem:
    return Problem(1, ({"role": "user", "content": text.strip()},), golds, text)


def test_digest_knows_what_is_asked_and_not_the_answers():
    one = digest([asked("a", "1"), asked("b")])
    assert one == digest([asked("a", "2"), asked("b")]) == "3554d2b8a1e34099"
    assert one != digest([asked("b"), asked("a")])
    assert one != digest([asked("a "), asked("b")])
    assert one != digest([Problem(1, asked("a").messages, ()), asked("b")])


class Tokenizer:
    chat_template = "a template"

    def encode(self, text: str) -> list[str]:
        return [text]

    def apply_chat_template(self, turns: list[dict[str, str]], **_: Any) -> list[str]:
        return ["user:", *(turn["content"] for turn in turns)]


def test_raw_text_is_sent_as_it_stands_and_a_chat_only_through_a_template():
    llm: Any = SimpleNamespace(get_tokenizer=Tokenizer)
    text, turns = asked("Q: 1+1?\nA: "), Problem(2, tuple(MESSAGES), ())
    raw, templated = (_Run(llm, [text, turns], 0, {}, raw, {}) for raw in (True, False))
    assert raw._prompt_ids(text) == ["Q: 1+1?\nA: "]
    assert templated._prompt_ids(text) == ["user:", "Q: 1+1?\nA: "]
    assert templated._prompt_ids(turns) == ["user:", "Q"]
    with pytest.raises(RolloutError, match="--raw was given"):
        raw._prompt_ids(turns)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--set", "p"], "--set p is not of the form NAME=VALUE"),
        (["--set", "p=2"], "p=2 is not a probability"),
        (["--set", "banana=2"], "neither a tandem setting nor a parameter"),
        (["--schedule", "chess"], "schedule='chess' does not exist"),
        (["--engine", "model=x"], "--engine model=... is not for the engine's arguments"),
        (["--engine", "additional-config={}"], "is not for the engine's arguments"),
        (["--seed", str(2**63)], "out of range"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_written(
    tmp_path: Path, options: list[str], said: str
):
    problems = tmp_path / "problems.jsonl"
    problems.write_text('{"problem": "1+1?"}')
    out = tmp_path / "out.jsonl"
    arguments = ["rollout", "--senior", "s", "--problems", str(problems), "--out", str(out)]
    done = CliRunner().invoke(app, [*arguments, *options])
    assert (done.exit_code, done.stdout) == (1, "")
    assert said in done.stderr
    assert not out.exists()
