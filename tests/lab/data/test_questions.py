"""Everything that belongs to a problem is in its prompt, or its row is rejected by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from refused import refused
from typer.testing import CliRunner

from tandem_plugin.cli import app
from tandem_plugin.grading import grade
from tandem_plugin.lab.commands.rollout import prompt_of, read_prompts
from tandem_plugin.lab.data import NAMED_SETS, Problem, ProblemSet, load_named, read_problems
from tandem_plugin.lab.data.choices import REQUEST
from tandem_plugin.lab.data.fields import METADATA_FIELDS
from tandem_plugin.lab.evaluation.inputs import read_benchmark

USER = {"role": "user", "content": "Add."}
SYSTEM = {"role": "system", "content": "Be kind."}
FOUR = {"choices": ["4", "6", "7", "9"]}


def write(folder: Path, *rows: dict[str, Any], name: str = "set.jsonl") -> Path:
    file = folder / name
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def read(folder: Path, *rows: dict[str, Any]) -> ProblemSet:
    return read_problems(write(folder, *rows))


def lettered(question: str, *choices: str) -> str:
    listed = "\n".join(f"({letter}) {text}" for letter, text in zip("ABCDE", choices, strict=False))
    return f"{question}\n\n{listed}\n\n{REQUEST}"


CHOSEN: dict[str, tuple[dict[str, Any], tuple[str, ...], str]] = {
    "MMLU": ({**FOUR, "answer": 2, "subject": "algebra"}, ("4", "6", "7", "9"), "C"),
    "MMLU-Pro": ({"options": ["x", "y"], "answer": "B", "answer_index": 1}, ("x", "y"), "B"),
    "AQuA": (
        {"options": ["A)21", "B)21.5"], "rationale": "r", "correct": "B"},
        ("21", "21.5"),
        "B",
    ),
    "ARC": (
        {"choices": {"text": ["x", "y"], "label": ["A", "B"]}, "answerKey": "B"},
        ("x", "y"),
        "B",
    ),
    "ARC, numbered": (
        {"choices": {"text": ["x", "y"], "label": ["1", "2"]}, "answerKey": "1"},
        ("x", "y"),
        "A",
    ),
    "MedQA": (
        {"options": {"A": "x", "B": "y", "C": None}, "answer": "y", "answer_idx": "B"},
        ("x", "y"),
        "B",
    ),
    "objects": (
        {"options": [{"key": "A", "text": "x"}, {"key": "B", "text": "y"}], "answer": "A"},
        ("x", "y"),
        "A",
    ),
    "C-Eval": ({"A": "x", "B": "y", "C": "z", "answer": "C"}, ("x", "y", "z"), "C"),
    "MedMCQA": ({"opa": "x", "opb": "y", "cop": 0}, ("x", "y"), "A"),
    "WinoGrande": ({"option1": "x", "option2": "y", "answer": "2"}, ("x", "y"), "B"),
    "JSON text": ({"options": '["x", "y"]', "answer": "B"}, ("x", "y"), "B"),
    "Python text": ({"options": "['x', 'y']", "answer": "B"}, ("x", "y"), "B"),
    "by text": ({**FOUR, "answer": "7"}, ("4", "6", "7", "9"), "C"),
    "by number": ({"choices": [4, 6.0, 7.5], "answer": 7.5}, ("4", "6", "7.5"), "C"),
    "in brackets": ({**FOUR, "answer": "(c)"}, ("4", "6", "7", "9"), "C"),
    "letter and text": ({**FOUR, "answer": "C. 7"}, ("4", "6", "7", "9"), "C"),
    "boxed": ({**FOUR, "solution": r"So \boxed{C}."}, ("4", "6", "7", "9"), "C"),
    "GSM8K's mark": ({**FOUR, "answer": "So.\n#### 7"}, ("4", "6", "7", "9"), "C"),
    "float of a table": ({**FOUR, "answer": 2.0}, ("4", "6", "7", "9"), "C"),
}


@pytest.mark.parametrize("shape", CHOSEN)
def test_choices_are_in_the_prompt_and_the_gold_is_a_letter(tmp_path: Path, shape: str):
    fields, texts, letter = CHOSEN[shape]
    (problem,) = read(tmp_path, {"question": "Which is prime?", **fields}).problems
    assert problem.text == lettered("Which is prime?", *texts)
    assert problem.golds == (letter,)
    for response in (letter, f"({letter})", rf"\text{{{letter}}}"):
        assert grade(f"\\boxed{{{response}}}", letter).reward == 1


LISTED = ["Which?\nA) 4\nB) 7", r"Which? $\textbf{(A)}\ 4\qquad\textbf{(B)}\ 7$"]


@pytest.mark.parametrize("text", LISTED)
def test_a_question_that_lists_its_choices_is_left_as_it_is(tmp_path: Path, text: str):
    (problem,) = read(tmp_path, {"question": text, "options": ["4", "7"], "answer": "B"}).problems
    assert (problem.text, problem.golds) == (text, ("B",))
    (problem,) = read(tmp_path, {"question": text, "options": ["4", "5"], "answer": "B"}).problems
    assert problem.text == lettered(text, "4", "5")


NUMBERED = {
    "from 0": ((0, 1, 2, 2), "ABCC"),
    "from 1": ((1, 1, 3, 2), "AACB"),
    "from 1, as texts": (("1", "1", "3", "2"), "AACB"),
}


@pytest.mark.parametrize("kind", NUMBERED)
def test_numbers_of_choices_mean_what_fits_every_row(tmp_path: Path, kind: str):
    numbers, letters = NUMBERED[kind]
    rows = [
        {"question": f"{i}?", "choices": ["x", "y", "z"], "answer": numbers[i]} for i in range(4)
    ]
    problems = read(tmp_path, *rows).problems
    assert "".join(gold for one in problems for gold in one.golds) == letters


def test_a_number_that_can_be_two_choices_is_decided_by_the_other_rows_or_rejected(tmp_path: Path):
    open_row = {"question": "How many?", "choices": ["2", "3", "1"], "answer": 1}
    with refused("problem-row-invalid", row=1) as error:
        read(tmp_path, open_row)
    assert "one choice's number and another's text" in str(error.value)
    by_number = {"question": "And?", "choices": ["x", "y", "z"], "answer": 0}
    by_text = {"question": "And?", "choices": ["20", "30", "10"], "answer": 30}
    assert read(tmp_path, open_row, by_number).problems[0].golds == ("B",)
    assert read(tmp_path, open_row, by_text).problems[0].golds == ("C",)
    with refused("problem-row-invalid", row=2):
        read(tmp_path, by_number, by_text)


WHOLE: dict[str, tuple[dict[str, Any], list[dict[str, str]]]] = {
    "SQuAD": (
        {
            "question": "Who?",
            "context": "Ann did.",
            "title": "t",
            "answers": {"text": ["Ann", "Ann"], "answer_start": [0, 0]},
        },
        [{"role": "user", "content": "Ann did.\n\nWho?"}],
    ),
    "BoolQ": (
        {"question": "Did she?", "passage": "Ann did.", "answer": True},
        [{"role": "user", "content": "Ann did.\n\nDid she?"}],
    ),
    "paragraphs": (
        {"question": "Who?", "context": ["Ann did.", "Bob did not."], "answer": "Ann"},
        [{"role": "user", "content": "Ann did.\n\nBob did not.\n\nWho?"}],
    ),
    "context in the question": (
        {"question": "Ann  did. Who?", "context": "Ann did.", "answer": "Ann"},
        [{"role": "user", "content": "Ann  did. Who?"}],
    ),
    "context of a chat": (
        {"prompt": [SYSTEM, USER], "context": "1, 2", "answer": 3},
        [SYSTEM, {"role": "user", "content": "1, 2\n\nAdd."}],
    ),
    "Alpaca": (
        {"instruction": "Solve for x.", "input": "2x = 4", "answer": 2},
        [{"role": "user", "content": "Solve for x.\n\n2x = 4"}],
    ),
    "Alpaca without input": (
        {"instruction": "Add.", "input": "", "answer": 2},
        [USER],
    ),
    "instruction, context, question, choices": (
        {"instruction": "I.", "context": "C.", "question": "Q?", "choices": ["x", "y"], "label": 1},
        [{"role": "user", "content": lettered("I.\n\nC.\n\nQ?", "x", "y")}],
    ),
    "system": ({"system": "Be kind.", "problem": "Add.", "answer": 3}, [SYSTEM, USER]),
    "system prompt": ({"system_prompt": "Be kind.", "prompt": [USER], "answer": 3}, [SYSTEM, USER]),
    "the chat's own system": ({"system": "Be kind.", "prompt": [SYSTEM, USER], "answer": 3},
                              [SYSTEM, USER]),
    "messages as JSON text": ({"prompt": json.dumps([SYSTEM, USER]), "answer": 3}, [SYSTEM, USER]),
    "messages as Python text": ({"prompt": str([SYSTEM, USER]), "answer": 3}, [SYSTEM, USER]),
    "one message": ({"prompt": USER, "answer": 3}, [USER]),
    "parts of text": (
        {"prompt": [{"role": "user", "content": [{"type": "text", "text": "Add."}]}], "answer": 3},
        [USER],
    ),
    "the same question twice": ({"problem": "Add.", "question": " add ", "answer": 3}, [USER]),
    "a chat with the same question": (
        {"problem": "Add.", "messages": [SYSTEM, USER, {"role": "assistant", "content": "3"}],
         "answer": 3},
        [SYSTEM, USER],
    ),
    "a chat with the same question and an instruction": (
        {"problem": "Add.", "messages": [{"role": "user", "content": "Add.\nIn \\boxed{}."}],
         "answer": 3},
        [USER],
    ),
    "capitals": ({"Problem": "Add.", "Answer": 3}, [USER]),
    "a spreadsheet's mark": ({"\ufeffproblem": "Add.", "answer": 3}, [USER]),
    "no image": ({"problem": "Add.", "images": [], "image": None, "has_image": False, "answer": 3},
                 [USER]),
}  # fmt: skip


@pytest.mark.parametrize("shape", WHOLE)
def test_all_that_belongs_to_a_problem_is_in_its_prompt(tmp_path: Path, shape: str):
    """In the commands that generate as well."""
    record, messages = WHOLE[shape]
    file = write(tmp_path, record)
    (problem,) = read_problems(file).problems
    assert list(problem.messages) == messages
    assert problem.golds
    (rolled,) = read_prompts(str(file))
    assert prompt_of(rolled) in (messages, messages[0]["content"], rolled.raw)
    assert read_benchmark(str(file)).problems == (problem,)


UNASKABLE: dict[str, tuple[dict[str, Any], str]] = {
    "images": ({"problem": "<image>Find x.", "images": [{"bytes": "x"}]}, "field images"),
    "a path": ({"problem": "Find x.", "image_path": "a.png"}, "field image_path"),
    "MMMU": ({"problem": "Find x.", "image_1": {"bytes": "x"}}, "field image_1"),
    "audio": ({"problem": "What is said?", "Audio": "a.wav"}, "field Audio"),
    "video": ({"problem": "What is seen?", "videos": ["a.mp4"]}, "field videos"),
    "tools": ({"prompt": [USER], "tools": [{"name": "f"}]}, "field tools"),
    "history": ({"instruction": "Go on.", "history": [["Hi.", "Hello."]]}, "field history"),
    "an image in a chat": (
        {"prompt": [{"role": "user", "content": [{"type": "image", "image": "x"}]}]},
        "a part of type image",
    ),
    "a turn with more": ({"prompt": [{**USER, "tool_calls": [1]}]}, "has tool_calls"),
    "two questions": ({"problem": "Add.", "question": "Subtract."}, "problem and its question"),
    "two questions with the same instruction": (
        {"problem": "Add 1 in \\boxed{}.", "question": "Add 2 in \\boxed{}."},
        "problem and its question",
    ),
    "two signs": ({"problem": "1 + 2?", "question": "1 - 2?"}, "problem and its question"),
    "a template beside": ({"prompt": "Q: Add. A:", "question": "Add."}, "question and its prompt"),
    "two systems": ({"system": "A.", "prompt": [SYSTEM, USER]}, "system"),
    "pages of context": ({"question": "Who?", "context": {"title": ["x"]}}, "field context"),
    "torn messages": ({"prompt": '[{"role": "user", "content": "Add."'}, "prompt is neither"),
    "no user": ({"prompt": [SYSTEM]}, "end with a user turn"),
    "choices in a sentence": ({"problem": "Which?", "options": "a) 1, b) 2"}, "options is neither"),
    "two lists": ({"problem": "Which?", "options": ["1", "2"], **FOUR}, "choices, options"),
    "one choice": ({"problem": "Which?", "choices": ["3"]}, "choices"),
    "an image to choose": ({"problem": "Which?", "choices": ["3", {"bytes": ""}]}, "choices"),
    "no such choice": ({"problem": "Which?", "choices": ["4", "5"]}, "none of its choices"),
    "several right": ({"problem": "?", "choices": ["3", "x"], "answer": ["A", "B"]}, "none of"),
    "a letter and a text": (
        {"problem": "Blood?", "choices": ["0", "A", "B"], "answer": "A"},
        "letter and another's text",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", UNASKABLE)
def test_what_no_prompt_can_hold_is_rejected_by_row_and_field(tmp_path: Path, kind: str):
    record, said = UNASKABLE[kind]
    file = write(tmp_path, {"problem": "1 + 2?", "answer": 3}, {"answer": 3, **record})
    with refused("problem-row-invalid", row=2) as error:
        read_problems(file)
    assert said in str(error.value)
    with refused("source-row-invalid", row=2):
        read_prompts(str(file))
    with refused("problem-row-invalid", row=2):
        read_benchmark(str(file))
    kept = read_problems(file, bad_rows="skip")
    assert ([one.row for one in kept.problems], [bad.row for bad in kept.bad_rows]) == ([1], [2])


def test_fields_that_are_not_read_are_counted_and_named(tmp_path: Path):
    known = {"problem": "1 + 2?", "answer": 3, "id": 1, "source": "s", "solution": "", "level": 2}
    file = write(tmp_path, {**known, "hint": "3"}, {**known, "hint": None}, {**known, "hint": "!"})
    assert read_problems(file).unread == {"hint": 2}
    out = tmp_path / "out"
    command = ["data", "prepare", str(file), "--to", "openrlhf", "--out", str(out)]
    done = CliRunner().invoke(app, command)
    assert "not in the prompts: hint (2 rows)" in done.stdout
    assert json.loads((out / "manifest.json").read_text())["unread_fields"] == {"hint": 2}
    assert json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)["unread_fields"]
    assert list(read_benchmark(str(file)).notes()) == ["set: not in the prompts: hint (2 rows)"]


def test_a_prepared_file_is_read_back_with_nothing_left(tmp_path: Path):
    rows = [
        {"question": "Which?", **FOUR, "answer": 2},
        {"system": "S.", "problem": "1?", "answer": 1},
    ]
    command = ["data", "prepare", str(write(tmp_path, *rows)), "--out", str(tmp_path / "out")]
    assert CliRunner().invoke(app, [*command, "--to", "openrlhf"]).exit_code == 0
    found = read_problems(tmp_path / "out" / "train.jsonl")
    assert [one.golds for one in found.problems] == [("C",), ("1",)]
    assert found.unread == {}


@pytest.mark.parametrize("trainer", ["verl", "openrlhf"])
@pytest.mark.parametrize(
    ("record", "what"),
    [
        ({"problem": "Half \ud83d a pair", "answer": 3}, "prompt"),
        ({"problem": "Add.", "answer": "\udfff"}, "answer"),
        ({"system": "\ud800", "problem": "Add.", "answer": 3}, "prompt"),
        ({"question": "Which?", "choices": ["x", "\ud800"], "answer": 0}, "prompt"),
    ],
)
def test_half_a_character_is_rejected_by_its_row(
    tmp_path: Path, trainer: str, record: dict[str, Any], what: str
):
    good = {"problem": "A whole \U0001f600.", "answer": 3}
    file, out = write(tmp_path, good, record), tmp_path / "out"
    with refused("problem-row-invalid", row=2) as error:
        read_benchmark(str(file))
    assert f"{what} contains the lone surrogate \\u" in str(error.value)
    command = ["data", "prepare", str(file), "--to", trainer, "--out", str(out)]
    done = CliRunner().invoke(app, command)
    assert (done.exit_code, "row 2: Its" in done.stderr, out.exists()) == (1, True, False)
    generate = ["rollout", "--senior", "s", "--problems", str(file), "--out", str(out)]
    done = CliRunner().invoke(app, generate)
    assert (done.exit_code, "row 2: Its" in done.stderr, out.exists()) == (1, True, False)


@pytest.mark.parametrize("ending", [".jsonl", ".json"])
def test_a_byte_order_mark_is_no_bad_row(tmp_path: Path, ending: str):
    rows = [{"problem": f"{i} + 1?", "answer": i + 1} for i in range(2)]
    text = json.dumps(rows) if ending == ".json" else "\n".join(map(json.dumps, rows))
    file = tmp_path / f"set{ending}"
    file.write_text(text, encoding="utf-8-sig")
    found = read_problems(file, bad_rows="skip")
    assert (len(found), found.bad_rows) == (2, ())
    file = tmp_path / "joined.jsonl"  # as `cat` joins two files
    file.write_bytes(b"\xef\xbb\xbf\n" + b"".join(b"\xef\xbb\xbf" + json.dumps(r).encode() + b"\n"
                                                  for r in rows))  # fmt: skip
    assert [one.row for one in read_problems(file).problems] == [2, 3]


def test_named_sets_are_what_they_were_whatever_else_their_rows_have(tmp_path: Path):
    """The release's sets are texts and answers, so columns beside these change nothing."""
    row = {
        "problem": "{}?",
        "question": "Another?",
        "answer": "3",
        "options": ["3", "4"],
        "image": "x",
    }
    rows = [{**row, "problem": f"{i}?"} for i in range(NAMED_SETS["aime24"].count)]
    found = load_named("aime24", (write(tmp_path, *rows),))
    assert found.problems[7] == Problem(8, ({"role": "user", "content": "7?"},), ("3",), "7?")


def test_the_page_lists_every_field_that_is_known():
    page = (Path(__file__).parents[3] / "docs" / "data.md").read_text(encoding="utf-8")
    assert [name for name in sorted(METADATA_FIELDS) if f"`{name}`" not in page] == []


def test_a_file_name_that_is_no_text_gives_a_name_that_can_be_written(tmp_path: Path):
    found = read_problems(write(tmp_path, {"problem": "Add.", "answer": 3}, name="set\udcff.jsonl"))
    assert found.name == "set?"


def test_a_field_in_two_spellings_is_not_dropped(tmp_path: Path):
    found = read(tmp_path, {"question": "1 + 1?", "Question": "2 + 2?", "answer": 2})
    assert found.unread == {"Question": 1}
