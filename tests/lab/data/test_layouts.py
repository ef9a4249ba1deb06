"""How records become rows: by the names of the schema, of public sets and of the trainers.

Everything else is rejected with its first rows, and with the options that say how it is read.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from made_pictures import picture, stored
from refused import refused
from typer.testing import CliRunner

from tandem_plugin.cli import app
from tandem_plugin.lab.data import (
    NAMED_SETS,
    Layout,
    Problem,
    ProblemSet,
    layout_of,
    load_named,
    read_problems,
)
from tandem_plugin.lab.data.sources import problems_of
from tandem_plugin.lab.evaluation.inputs import read_benchmark
from tandem_plugin.lab.rollouts.run import prompt_of

USER = {"role": "user", "content": "Add."}
SYSTEM = {"role": "system", "content": "Be kind."}
VERL = {
    "data_source": "s",
    "prompt": [SYSTEM, USER],
    "ability": "math",
    "reward_model": {"style": "rule", "ground_truth": "3"},
    "extra_info": {"index": 0},
}
RECORDS: dict[str, dict[str, Any]] = {
    "the schema": {"problem": "Add.", "answer": 3},
    "the schema, a chat": {"messages": [USER], "answer": ["3", "3.0"]},
    "verl": VERL,
    "SkyRL": {
        "data_source": "s",
        "prompt": [USER],
        "env_class": "gsm8k",
        "reward_spec": {"method": "rule", "ground_truth": "3"},
        "extra_info": {},
    },
    "OpenRLHF": {"input": "Add.", "label": "3", "datasource": "s"},
    "OpenRLHF, a chat": {"input": [USER], "label": 3},
    "TRL": {"prompt": [USER], "solution": r"So \boxed{3}."},
    "TRL, an answer as solution": {"prompt": "Add.", "solution": "$3$"},
    "TRL, ground truth": {"prompt": "Add.", "ground_truth": "3"},
    "GSM8K": {"question": "Add.", "answer": "1 + 2 = <<1+2=3>>3\n#### 3"},
    "MATH": {"problem": "Add.", "solution": r"So \boxed{3}.", "answer": "3"},
    "a blank answer": {"problem": "Add.", "answer": " ", "solution": r"So \boxed{3}."},
    "an answer that is none": {"problem": "Add.", "answer": float("nan"), "ground_truth": "3"},
    "the text twice": {"problem": "Add.", "question": "Add. ", "answer": 3.0},
    "a blank text": {"problem": "", "question": "Add.", "answer": 3},
    "no image": {"problem": "Add.", "answer": 3, "images": [], "image": None, "has_image": False},
}


def write(folder: Path, *rows: Any, name: str = "set.jsonl") -> Path:
    file = folder / name
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def read(folder: Path, *rows: Any, **options: Any) -> ProblemSet:
    return read_problems(write(folder, *rows), **options)


@pytest.mark.parametrize("kind", RECORDS)
def test_known_layouts_are_read_alike_by_every_command(tmp_path: Path, kind: str):
    file = write(tmp_path, RECORDS[kind])
    (problem,) = read_problems(file).problems
    assert problem.messages[-1] == USER
    assert problem.golds[0].strip("$") == "3"
    assert prompt_of(problem) in (list(problem.messages), problem.raw)
    assert read_benchmark(str(file)).problems == (problem,)
    assert problem.messages[0] == (SYSTEM if kind == "verl" else USER)


@pytest.mark.parametrize("kind", RECORDS)
def test_the_reward_for_trl_reads_the_same_golds(kind: str):
    pytest.importorskip("sympy")
    from tandem_plugin.grading.rewards.trl_reward import math_reward

    columns = {name: [value] * 2 for name, value in RECORDS[kind].items() if name != "prompt"}
    assert math_reward([r"\boxed{3}", r"\boxed{4}"], **columns) == [1.0, 0.0]


UNKNOWN: dict[str, tuple[dict[str, Any], str]] = {
    "no text": ({"body": "Add.", "answer": "3"}, "It has no problem in any of problem, question"),
    "no answer": ({"problem": "Add.", "target": "3"}, "It has no answer in any of reward_model."),
    "blank answer": ({"problem": "Add.", "answer": "  "}, "It has no answer"),
    "two texts": ({"problem": "1 + 2?", "question": "1 - 2?"}, "Its problem and its question"),
    "a chat beside": ({"problem": "Add.", "messages": [USER]}, "Its problem and its messages"),
    "SQuAD": ({"question": "Who?", "context": "Ann did."}, "Its field context may be part"),
    "BoolQ": ({"question": "Did she?", "passage": "Ann did."}, "Its field passage"),
    "Alpaca": ({"instruction": "Solve.", "input": "2x = 4"}, "Its field instruction"),
    "MMLU-Pro": ({"question": "Which?", "options": ["x", "y"]}, "Its field options"),
    "a system message": ({"system": "Be kind.", "prompt": "Add."}, "Its field system"),
    "two fields of images": ({"problem": "Find x.", "image": "x", "images": ["x"]}, "both have"),
    "images by another name": ({"problem": "Find x.", "figure": "x.png"}, "Its field figure"),
    "MMMU": ({"problem": "Find x.", "image_1": {"bytes": "x"}}, "Its field image_1"),
    "audio": ({"problem": "What is said?", "Audio": "a.wav"}, "Its field Audio"),
    "tools": ({"prompt": [USER], "tools": [{"name": "f"}]}, "Its field tools"),
}


@pytest.mark.parametrize("kind", UNKNOWN)
def test_an_unknown_layout_is_rejected_with_its_rows_and_the_options(tmp_path: Path, kind: str):
    fields, reason = UNKNOWN[kind]
    record = fields if "answer" in kind else {"answer": "3", **fields}
    file = write(tmp_path, record, {**record, "note": "\x1b[31m\u202e" + "x" * 300})
    with refused("problem-layout-unknown", row=1) as error:
        read_problems(file)
    text = str(error.value)
    assert reason in text
    assert "--field problem=FIELD --field answer=FIELD" in text
    for name in record:
        assert f"row 1: {next(iter(record))!r}" in text
        assert f"{name!r}: " in text
    assert "row 2" in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert len(text) < 1500
    with refused("problem-layout-unknown"):
        read_problems(file, bad_rows="skip")
    roll = ["rollout", "--senior", "s", "--problems", str(file), "--out", str(tmp_path / "r")]
    done = CliRunner().invoke(app, [*roll, "--grade"])
    assert (done.exit_code, "problem-layout-unknown" in done.stderr) == (1, True), done.output
    with refused("problem-layout-unknown"):
        read_benchmark(str(file))


@pytest.mark.parametrize("kind", UNKNOWN)
def test_a_later_row_of_another_layout_is_a_bad_row(tmp_path: Path, kind: str):
    fields, reason = UNKNOWN[kind]
    record = fields if "answer" in kind else {"answer": "3", **fields}
    file = write(tmp_path, {"problem": "1 + 2?", "answer": 3}, record, [1])
    with refused("problem-row-invalid", row=2) as error:
        read_problems(file)
    assert reason in str(error.value)
    skipped = read_problems(file, bad_rows="skip")
    assert [bad.row for bad in skipped.bad_rows] == [2, 3]
    assert [problem.row for problem in skipped.problems] == [1]


def test_no_answer_is_needed_where_nothing_is_graded(tmp_path: Path):
    (problem,) = read(tmp_path, {"problem": "Add."}, golds="optional").problems
    assert problem.golds == ()


NESTED = {"q": "Add.", "meta": {"final": 3, "a.b": 4}, "context": "seen", "list": ["x", "3"]}


@pytest.mark.parametrize(
    ("fields", "text", "golds"),
    [
        (["problem=q", "answer=meta.final"], "Add.", ("3",)),
        (["messages=q", "answer=meta.a.b"], "Add.", ("4",)),
        (["problem=context", "answer=list"], "seen", ("x", "3")),
        (["problem=q", "answer=meta.final", "choices=list"], None, None),
        (["problem=context", "answer=q", "choices=list"], None, None),
    ],
)
def test_fields_say_where_the_parts_of_a_row_are(
    tmp_path: Path, fields: list[str], text: str | None, golds: tuple[str, ...] | None
):
    file = write(tmp_path, NESTED)
    if text is None:
        with refused("problem-row-invalid") as error:
            read_problems(file, layout=layout_of(fields))
        assert "neither the letter nor the text of one of its choices" in str(error.value)
        return
    problems = read_problems(file, layout=layout_of(fields))
    assert (problems.problems[0].text, problems.problems[0].golds) == (text, golds)
    assert problems.origin is not None
    assert problems.origin.record()["fields"] == dict(field.split("=") for field in fields)


def test_field_that_is_read_as_a_part_is_not_taken_for_more_of_the_problem(tmp_path: Path):
    record = {"question": "Which?", "options": ["x", "y"], "answer": "y", "context": ""}
    (problem,) = read(tmp_path, record, layout=layout_of(["choices=options"])).problems
    assert problem.golds == ("B",)
    assert "(A) x\n(B) y" in str(problem.text)
    file = write(tmp_path, {**record, "context": "Seen."})
    with refused("problem-layout-unknown") as error:
        read_problems(file, layout=layout_of(["choices=options"]))
    assert "Its field context may be part of the problem" in str(error.value)


def test_one_field_is_enough_where_the_other_is_known(tmp_path: Path):
    rows = {"question": "Add.", "prompt": "Q: Add. A:", "answer": 3, "gold": "4"}
    (problem,) = read(tmp_path, rows, layout=layout_of(["problem=question"])).problems
    assert (problem.text, problem.golds) == ("Add.", ("3",))
    other = read(tmp_path, rows, layout=layout_of(["problem=prompt", "answer=gold"]))
    assert (other.problems[0].text, other.problems[0].golds) == ("Q: Add. A:", ("4",))
    assert other.unread == {"question": 1, "answer": 1}
    with refused("problem-layout-unknown") as error:
        read(tmp_path, rows, layout=layout_of(["problem=nowhere"]))
    assert "It has no problem in nowhere." in str(error.value)
    with refused("problem-layout-unknown") as error:
        read(tmp_path, rows, layout=layout_of(["answer=nowhere"]))
    assert "Its question and its prompt differ" in str(error.value)
    with refused("problem-layout-unknown") as error:
        read(tmp_path, {"problem": "Add.", "answer": 3}, layout=layout_of(["answer=nowhere"]))
    assert "It has no answer in nowhere." in str(error.value)


MAPS = """
from dataclasses import dataclass

@dataclass
class Part:
    text: str

def mmlu(record):
    return {"problem": Part(record["q"]).text, "choices": record["c"], "answer": "AB"[record["a"]]}

def odd_ones(record):
    return mmlu(record) if record["a"] else None

def chat(record):
    return {"messages": [{"role": "user", "content": record["q"]}], "answer": record["a"]}

def wrong(record):
    return {"question": record["q"], "answer": 3}

def both(record):
    return {"problem": "x", "messages": [], "answer": 3} | ({} if record["a"] else {"problem": ""})

def fails(record):
    return record["nowhere"]

no_function = 3
"""


@pytest.fixture
def maps(tmp_path: Path) -> Path:
    file = tmp_path / "json.py"  # the name of another module, which stays what it is
    file.write_text(MAPS)
    return file


def test_a_function_makes_rows_of_what_no_mapping_can_say(tmp_path: Path, maps: Path):
    rows = [{"q": "Which?", "c": ["x", "y"], "a": place} for place in (0, 1)]
    first, second = read(tmp_path, *rows, layout=layout_of((), f"{maps}:mmlu")).problems
    assert (first.golds, second.golds) == (("A",), ("B",))
    kept = read(tmp_path, *rows, layout=layout_of((), f"{maps}:odd_ones"))
    assert [problem.row for problem in kept.problems] == [2]
    assert [(bad.row, "leaves it out" in bad.reason) for bad in kept.bad_rows] == [(1, True)]
    assert kept.origin is not None
    assert kept.origin.record()["map"]["function"] == "json.py:odd_ones"
    asked = read(tmp_path, *rows, layout=layout_of((), f"{maps}:chat")).problems[1]
    assert (asked.messages, asked.golds) == (({"role": "user", "content": "Which?"},), ("1",))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("wrong", "not a dict of problem, messages, answer, choices"),
        ("both", "returned not one of problem and messages"),
        ("fails", "failed: KeyError: 'nowhere'"),
    ],
)
def test_what_a_function_cannot_do_is_a_bad_row(tmp_path: Path, maps: Path, name: str, reason: str):
    rows = {"q": "Which?", "c": ["x", "y"], "a": 0}
    with refused("problem-row-invalid", row=1) as error:
        read(tmp_path, rows, layout=layout_of((), f"{maps}:{name}"))
    assert reason in str(error.value)


def test_options_that_say_nothing_are_rejected(tmp_path: Path, maps: Path):
    for fields in (["question=q"], ["problem"], ["problem="], ["problem=a", "problem=b"]):
        with refused("layout-field-invalid"):
            layout_of(fields)
    with refused("layout-field-invalid"):
        layout_of(["problem=a", "messages=b"])
    with refused("layout-given-twice"):
        layout_of(["problem=q"], f"{maps}:mmlu")
    (tmp_path / "broken.py").write_text("1 / 0")
    for source, reason in (
        (f"{tmp_path}/none.py:row", "there is no such file"),
        (str(maps), "there is no such file"),
        (f"{maps}:", "there is no such file"),
        (f"{maps}:no_function", "it has no function 'no_function'"),
        (f"{tmp_path}/broken.py:row", "ZeroDivisionError: division by zero"),
        (f"{write(tmp_path, {})}:row", "it is not a Python file"),
    ):
        with refused("layout-map-unusable", reason=reason):
            layout_of((), source)
    for source in ("aime24", "reasoning-gym:chain_sum,count=4"):
        with refused("layout-without-effect", source=source):
            read_problems(source, layout=layout_of(["problem=q"]))


@pytest.mark.parametrize("command", ["data prepare", "rollout"])
def test_commands_take_fields_and_functions(tmp_path: Path, maps: Path, command: str):
    file, out = write(tmp_path, {"q": "Which?", "c": ["x", "y"], "a": 0}), tmp_path / "out"
    prepare = ["data", "prepare", str(file), "--to", "openrlhf", "--out", str(out)]
    if command == "rollout":
        prepare = ["rollout", "--senior", "s", "--problems", str(file), "--out", str(out)]
    layouts = (["--map", f"{maps}:mmlu"], ["--field", "problem=q", "--field", "answer=a"], [])
    for layout in layouts:
        done = CliRunner().invoke(app, [*prepare, *layout])
        known = "problem-layout-unknown" not in done.output
        assert known == bool(layout), done.output
        assert done.exit_code == (command == "rollout" or not layout), done.output


def test_fields_that_are_not_read_are_counted_and_named(tmp_path: Path):
    rows = {"problem": "1 + 2?", "answer": 3, "id": 1, "solution": ""}
    file = write(tmp_path, {**rows, "hint": "3"}, {**rows, "hint": None}, {**rows, "hint": "!"})
    assert read_problems(file).unread == {"id": 3, "hint": 2}
    out = tmp_path / "out"
    command = ["data", "prepare", str(file), "--to", "openrlhf", "--out", str(out)]
    done = CliRunner().invoke(app, command)
    assert "not in the prompts: id (3 rows), hint (2 rows)" in done.stdout
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["unread_fields"] == {"id": 3, "hint": 2}
    assert json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)["unread_fields"]
    notes = ["set: not in the prompts: id (3 rows), hint (2 rows)"]
    assert list(read_benchmark(str(file)).notes()) == notes


def test_a_prepared_file_is_read_back_with_nothing_left(tmp_path: Path):
    rows = [{"question": "Which?", "choices": ["4", "7"], "answer": "7"},
            {"messages": [SYSTEM, USER], "answer": 1}]  # fmt: skip
    command = ["data", "prepare", str(write(tmp_path, *rows)), "--out", str(tmp_path / "out")]
    assert CliRunner().invoke(app, [*command, "--to", "openrlhf"]).exit_code == 0
    prepared = read_problems(tmp_path / "out" / "train.jsonl")
    assert [problem.golds for problem in prepared.problems] == [("B",), ("1",)]
    assert prepared.unread == {}


IMAGE = "data:image/png;base64," + base64.b64encode(stored(picture())).decode()


FIND = {"type": "text", "text": "Find x."}
IN_COLUMN = {"type": "image", "text": None}
IN_CHAT = {"type": "image_url", "image_url": {"url": IMAGE}}


@pytest.mark.parametrize(
    ("record", "fields"),
    [
        ({"problem": "<image>Find x.", "images": [{"bytes": None, "path": "a.png"}]}, []),
        ({"problem": "Find x.", "image": IMAGE, "images": None}, []),
        ({"problem": "Find x.", "seen": {"all": [IMAGE]}}, ["images=seen.all"]),
        ({"prompt": [{"role": "user", "content": [IN_COLUMN, FIND]}], "images": [IMAGE]}, []),
        ({"prompt": [{"role": "user", "content": [IN_CHAT, FIND]}]}, []),
    ],
)
def test_images_stand_where_trainers_and_public_sets_have_them(
    record: dict[str, Any], fields: list[str], tmp_path: Path
):
    (tmp_path / "a.png").write_bytes(stored(picture()))
    file = write(tmp_path, {**record, "answer": 3})
    problems = read_problems(file, layout=layout_of(fields))
    (problem,) = problems.problems
    assert problem.text == "<image>Find x."
    assert [image.content for image in problem.images] == [stored(picture())]
    assert problems.unread == {}


def test_a_function_returns_images_and_hub_rows_read_no_files(tmp_path: Path):
    (tmp_path / "a.png").write_bytes(stored(picture()))
    code = "def read(row): return {'problem': row['q'], 'answer': row['a'], 'images': row['p']}"
    (tmp_path / "rows.py").write_text(code)
    layout = layout_of(source=f"{tmp_path / 'rows.py'}:read")
    row = {"q": "Which <image> is <image>?", "a": "3", "p": ["a.png", "a.png"]}
    source = write(tmp_path, row)
    (problem,) = read_problems(source, layout=layout).problems
    assert len(problem.images) == 2
    with refused("problem-row-invalid") as error:
        problems_of([(1, row)], "hub/set", layout=layout)
    assert "Its image 1 is in a file" in str(error.value)


def test_named_sets_are_their_texts_and_answers_whatever_else_their_rows_have(tmp_path: Path):
    row = {"question": "Another?", "answer": "3", "options": ["3", "4"], "image": "x"}
    rows = [{"problem": f"{i}?", **row} for i in range(NAMED_SETS["aime24"].count)]
    problems = load_named("aime24", (write(tmp_path, *rows),))
    assert problems.problems[7] == Problem(8, ({"role": "user", "content": "7?"},), ("3",), "7?")
    assert problems.unread == {}


def test_a_layout_is_equal_to_itself_alone():
    assert layout_of() == Layout() != layout_of(["problem=q"])
