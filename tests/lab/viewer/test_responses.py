"""What a page shows of a run that is larger than a page, and what it says of it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pages
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refused import refused

from tandem_plugin.lab.rollouts.rollout_file import find_tokenizer
from tandem_plugin.lab.viewer.page import make_page
from tandem_plugin.lab.viewer.responses import turns_of

Row = dict[str, Any]
View = Callable[..., tuple[int, Any, Any]]


def dump_row(problem: int, step: int | None, **fields: Any) -> Row:
    """A response as verl dumps it."""
    return (
        {
            "response_ids": [0, 2, 1, 7],
            "authorship": [1, 1, 0, 0],
            "tandem_seed": 7,
            "tandem_fingerprint": "x",
            "input": f"user\nproblem {problem}\nassistant\n",
            "output": "a ab.",
            "score": 1.0,
        }
        | ({} if step is None else {"step": step})
        | fields
    )


def write(file: Path, rows: list[Row]) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def view(tokenizer_file: Path) -> View:
    return lambda rollouts, *options: pages.view(rollouts, tokenizer_file, *options)


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    """Twelve steps of three problems, two responses each; problem 0 comes at every step."""
    folder = tmp_path / "dumps"
    for step in range(1, 13):
        problems = (0, 2 * step, 2 * step + 1)
        write(folder / f"{step}.jsonl", [dump_row(p, step) for p in problems for _ in range(2)])
    return folder


def test_folder_of_dumps_is_one_page_in_the_order_of_its_steps(view: View, dumps: Path):
    write(dumps / "3.grades.jsonl", [])
    code, result, data = view(dumps)
    assert code == 0
    assert (result["responses"], result["problems"], result["steps"]) == (72, 25, 12)
    assert result["of"] == {"responses": 72, "problems": 25, "steps": 12}
    steps = [response["step"] for response in data["responses"]]
    assert steps == sorted(steps)
    assert [r["sample"] for r in data["responses"][:4]] == [0, 1, 0, 1]
    assert data["problems"]["0"] == [1, "problem 0"]
    assert data["turns"][0] == [["user", "problem 0"]]


def test_step_of_a_dump_that_does_not_say_it_is_its_name(view: View, tmp_path: Path):
    for name in ("10", "9", "last"):
        write(tmp_path / "dumps" / f"{name}.jsonl", [dump_row(1, None)])
    _, _, data = view(tmp_path / "dumps")
    assert [response["step"] for response in data["responses"]] == [9, 10, None]
    write(tmp_path / "10.jsonl", [dump_row(1, None)])
    _, _, data = view(tmp_path / "10.jsonl")
    assert [response["step"] for response in data["responses"]] == [None]


def test_page_holds_what_it_has_room_for_and_says_what_it_left_out(view: View, tmp_path: Path):
    """Twelve steps of five problems, eight responses each: whole problems are shown or left out."""
    letters = random.Random(0)
    rows = []
    for i in range(480):
        ids = letters.choices(range(8), k=2000)
        rows.append(dump_row(i % 5, i // 40, response_ids=ids, authorship=[i % 2] * 2000))
        del rows[-1]["output"]
    write(tmp_path / "large.jsonl", rows)
    code, result, data = view(tmp_path / "large.jsonl", "--megabytes", "0.3")
    assert code == 0
    assert 250_000 < result["bytes"] - len(make_page("", {}, [])) < 350_000
    assert len(data["responses"]) == result["responses"] < 480
    assert data["whole"]["responses"] == 480
    shown = [data["problems"][str(one["problem"])][1] for one in data["responses"]]
    whole = {text for text in shown if shown.count(text) == 96}
    assert len(whole) >= len(set(shown)) - 1
    places = [(one["step"], one["problem"], one["sample"]) for one in data["responses"]]
    assert len(set(places)) == len(places)
    assert [step for step, *_ in places] == sorted(step for step, *_ in places)
    again = view(tmp_path / "large.jsonl", "--megabytes", "0.3")[2]
    assert again == data
    more = view(tmp_path / "large.jsonl", "--megabytes", "0.6")[1]
    assert 1.6 * result["responses"] < more["responses"] <= 480


def test_line_that_cannot_be_read_is_named_with_its_file(view: View, dumps: Path):
    with (dumps / "4.jsonl").open("a") as file:
        file.write("torn")
    code, result, data = view(dumps)
    assert (code, result["unread_lines"], data["unread"][0][:2]) == (0, 1, ["4.jsonl", 7])


TURNS = [
    ("", []),
    ("Plain text.\nuser\n", [("", "Plain text.\nuser\n")]),
    ([{"role": "user", "content": "Q"}], [("user", "Q")]),
    ("user\nQ\nassistant\n", [("user", "Q")]),
    ("system\nBe\nkind.\nuser\nQ\nassistant\n<think>\n",
     [("system", "Be\nkind."), ("user", "Q"), ("assistant", "<think>")]),
    ("<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nQ\n\nR<|im_end|>\n<|im_start|>assistant\n",
     [("system", "S"), ("user", "Q\n\nR")]),
    ("user\nQ", [("", "user\nQ")]),
    ([{"a": 1}, "x"], [("", '{\n "a": 1\n}'), ("", '"x"')]),
]  # fmt: skip


@pytest.mark.parametrize(("prompt", "turns"), TURNS)
def test_prompt_of_a_chat_is_its_turns(prompt: Any, turns: list[tuple[str, str]]):
    assert turns_of(prompt) == turns


@given(st.text(alphabet="a\n", max_size=8), st.text(alphabet="b\n", max_size=8))
def test_turns_lose_no_text(system: str, user: str):
    bare = f"system\n{system}\nuser\n{user}\nassistant\n"
    assert turns_of(bare) == [("system", system), ("user", user)]
    marked = "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in turns_of(bare))
    assert turns_of(f"{marked}<|im_start|>assistant\n") == turns_of(bare)


def test_tokenizer_of_a_folder_is_the_noted_one_or_lies_in_it_or_beside_it(
    dumps: Path, tokenizer_file: Path
):
    def found() -> str:
        return find_tokenizer(dumps)

    with refused("rollout-tokenizer-missing"):
        found()
    note = {"trainer": "verl", "model": f"{tokenizer_file} (0123456789abcdef)"}
    (dumps.parent / "run.json").write_text(json.dumps(note))
    assert found() == str(tokenizer_file)
    for folder in (  # each comes before the one that was there
        dumps.parent / "senior",
        dumps.parent / "checkpoint",
        dumps / "checkpoint",
    ):
        folder.mkdir()
        (folder / "tokenizer.json").write_text("{}")
        assert Path(found()) == folder
    for name in ("tekken.json", "tokenizer.model"):
        (folder / "tokenizer.json").replace(folder / name)
        assert Path(found()) == folder
        (folder / name).replace(folder / "tokenizer.json")
    (dumps / "1.jsonl.run.json").write_text(json.dumps({"senior": str(tokenizer_file)}))
    assert found() == str(tokenizer_file)


def test_tokenizer_of_one_step_lies_beside_the_folder_of_all(dumps: Path) -> None:
    step, other = dumps / "1.jsonl", dumps / "rollouts.jsonl"
    other.write_bytes(step.read_bytes())
    folder = dumps.parent / "checkpoint"
    folder.mkdir()
    (folder / "tokenizer.json").write_text("{}")
    assert Path(find_tokenizer(step)) == folder.resolve()
    with refused("rollout-tokenizer-missing"):
        find_tokenizer(other)
