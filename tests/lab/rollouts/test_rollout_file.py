from __future__ import annotations

import errno
import fcntl
import json
import os
import resource
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refused import refused
from typer.testing import CliRunner

from tandem_plugin.cli import app
from tandem_plugin.lab.data import INSTRUCTION, Problem, prepare, read_problems
from tandem_plugin.lab.data.problem import prompt_ids
from tandem_plugin.lab.evaluation.engine_process import response_set
from tandem_plugin.lab.evaluation.generation import GenerationFile, Sampling
from tandem_plugin.lab.evaluation.inputs import read_benchmark
from tandem_plugin.lab.evaluation.text_handoff import TextHandoff
from tandem_plugin.lab.rollouts.engine import check_template_args
from tandem_plugin.lab.rollouts.rollout import check_row
from tandem_plugin.lab.rollouts.rollout_file import (
    Grades,
    RolloutFile,
    find_tokenizer,
    placed_rows,
    rollout_files,
    run_file,
)
from tandem_plugin.lab.rollouts.run import prompt_of, question_of

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
        row = json.loads(path.read_text())
        assert len(row.pop("row_sha256")) == 16
        assert row == {"problem": 0, "sample": 1, "response": "a"}
        assert file.done == {(0, 1)}
    assert json.loads(run_file(path).read_text()) == SETTINGS


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
    with refused("rollout-line-invalid", line=2):
        RolloutFile(path, SETTINGS)
    assert path.read_bytes() == before
    path.write_bytes(lines[0] + b"else")  # not torn: a rollout begins otherwise
    with refused("rollout-line-invalid", line=2):
        RolloutFile(path, SETTINGS)


@pytest.mark.parametrize("change", [{"seed": 1}, {"parameters": {"p": 0.3}}, {"new": True}])
def test_other_settings_are_refused_naming_the_difference(tmp_path: Path, change: dict[str, Any]):
    path = tmp_path / "out.jsonl"
    write(path)
    before = path.read_bytes()
    (name,) = change
    with refused("rollout-settings-changed", name=name):
        RolloutFile(path, SETTINGS | change)

    def fails(row: object) -> None:
        raise ValueError("of another kind")

    with refused("rollout-settings-changed", name=name):  # why the rows may be others
        RolloutFile(path, SETTINGS | change, fails)
    with refused("rollout-line-invalid", line=1):
        RolloutFile(path, SETTINGS, fails)
    run_file(path).unlink()
    with refused("rollout-note-missing", note="out.jsonl.run.json"):
        RolloutFile(path, SETTINGS)
    assert path.read_bytes() == before


def test_empty_file_may_be_started_with_other_settings(tmp_path: Path):
    path = tmp_path / "out.jsonl"
    write(path, samples=0)
    with RolloutFile(path, SETTINGS | {"seed": 3}) as file:
        assert file.done == set()
    assert json.loads(run_file(path).read_text())["seed"] == 3


def test_row_that_was_edited_is_refused_by_its_line_however_it_is_written(tmp_path: Path):
    path = tmp_path / "out.jsonl"
    write(path)
    first, *others = path.read_text().splitlines(keepends=True)
    row = json.loads(first)
    reordered = dict(sorted(row.items(), reverse=True))
    path.write_text(json.dumps(reordered, indent=None, ensure_ascii=False) + "\n" + "".join(others))
    RolloutFile(path, SETTINGS).__exit__(None, None, None)  # another writer's spelling is no edit
    for changed in ({"response": "b"}, {"more": 1}, {"problem": 7}, {"row_sha256": "0" * 16}):
        content = (json.dumps(row | changed) + "\n" + "".join(others)).encode()
        path.write_bytes(content)
        with refused("rollout-line-invalid", line=1):
            RolloutFile(path, SETTINGS)
        assert path.read_bytes() == content


def test_blank_lines_are_read_over(tmp_path: Path):
    path = tmp_path / "out.jsonl"
    places = write(path)
    path.write_bytes(path.read_bytes().replace(b"\n", b"\n \n\n", 2))
    with RolloutFile(path, SETTINGS) as file:
        assert file.done == set(places)
    assert [found[:2] for found in placed_rows(path)] == places


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir], ids=["pipe", "folder"])
def test_special_file_is_refused_without_waiting(tmp_path: Path, make: Callable[[Path], None]):
    path = tmp_path / "out.jsonl"
    make(path)
    signal.alarm(30)  # opening a pipe waits for its other end
    try:
        with refused("file-unwritable"):
            RolloutFile(path, SETTINGS)
    finally:
        signal.alarm(0)


def test_two_processes_do_not_write_one_file(tmp_path: Path):
    path = tmp_path / "out.jsonl"
    with (
        RolloutFile(path, SETTINGS),
        refused("file-locked"),
    ):
        RolloutFile(path, SETTINGS)
    RolloutFile(path, SETTINGS).__exit__(None, None, None)


def test_file_system_without_locks_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def failing(file: object, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", failing)
    path = tmp_path / "out.jsonl"
    assert len(write(path)) == 3
    assert "No locks available" in caplog.text
    assert len(list(placed_rows(path))) == 3


@pytest.mark.parametrize("note", [b"", b"\0" * 300])
def test_note_that_a_loss_of_power_emptied_costs_no_rollout(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, note: bytes
):
    path = tmp_path / "out.jsonl"
    places = write(path)
    rows = path.read_bytes()
    run_file(path).write_bytes(note)
    path.write_bytes(rows + b"\0" * 512)
    with RolloutFile(path, SETTINGS) as file:
        assert file.done == set(places)
    assert path.read_bytes() == rows
    assert str(run_file(path)) in caplog.text
    assert json.loads(run_file(path).read_text()) == SETTINGS
    with refused("rollout-settings-changed"):  # from now on, as before
        RolloutFile(path, SETTINGS | {"seed": 1})


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
    problems = read_problems(file, golds="optional").problems
    assert [prompt_of(one) for one in problems] == ["1+1?", "2+2?", "\u20283+3?\n ", MESSAGES]
    answers = [question_of(one, None).fields.get("answer") for one in problems[:3]]
    assert answers == ["2", ["4", "four"], None]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "problem-set-empty"),
        ('{"problem": "x"}\n{', "problem-row-invalid"),
        (
            '{"problem": "x"}\n{"prompt": [{"role": "user", "content": null}]}',
            "problem-row-invalid",
        ),
        (
            '{"problem": "x"}\n{"problem": "y", "answer": {}, "label": {"x": 1}}',
            "problem-row-invalid",
        ),
    ],
)
def test_wrong_problems_are_refused_by_file_and_row(tmp_path: Path, text: str, code: str):
    file = tmp_path / "problems.jsonl"
    file.write_text(text)
    with refused(code) as caught:
        read_problems(file, golds="optional")
    assert str(file) in str(caught.value)
    assert caught.value.fields.get("row", 2) == 2


def asked(text: str, *golds: str) -> Problem:
    return Problem(1, ({"role": "user", "content": text.strip()},), golds, text)


def token_ids(
    problem: Problem, instruction: str | None, tokenizer: Any, given: dict[str, Any] | None = None
) -> list[Any]:
    """What ``tandem rollout`` sends."""
    return prompt_ids(question_of(problem, instruction).turns, tokenizer, given or {})


class Tokenizer:
    chat_template = "a template"

    def encode(self, text: str, **_: Any) -> list[str]:
        return [text]

    def apply_chat_template(self, turns: list[dict[str, str]], **_: Any) -> list[str]:
        return ["user:", *(turn["content"] for turn in turns)]


def test_text_is_sent_as_it_stands_and_a_template_is_applied_if_there_is_one():
    text, turns = asked("Q: 1+1?\nA: "), Problem(2, tuple(MESSAGES), ())
    assert token_ids(text, None, BaseTokenizer()) == ["Q: 1+1?\nA: "]
    assert token_ids(text, None, Tokenizer()) == ["user:", "Q: 1+1?\nA: "]
    assert token_ids(turns, None, Tokenizer()) == ["user:", "Q"]
    assert token_ids(turns, None, BaseTokenizer()) == ["Q"]


class BaseTokenizer(Tokenizer):
    chat_template = None


@pytest.mark.parametrize("tokenizer", [Tokenizer(), BaseTokenizer()], ids=["chat", "base"])
@pytest.mark.parametrize("text", ["1+1?", "Give 1+1 in \\boxed{}."])
def test_graded_problem_is_asked_as_training_data_and_evaluations_ask_it(
    tmp_path: Path, tokenizer: Any, text: str
):
    """The token ids are those of ``tandem eval``, the turns those of ``tandem data prepare``."""
    source = tmp_path / "sums.jsonl"
    source.write_text(json.dumps({"problem": text, "answer": "2"}) + "\n")
    (problem,) = read_problems(source).problems
    prepared = prepare(read_problems(source), "openrlhf", tmp_path / "out").files["train"]
    turns = json.loads(prepared.read_text())["input"]
    assert prompt_of(problem, INSTRUCTION) == turns
    assert ("step by step" in turns[0]["content"]) == ("boxed" not in text)
    senior: Any = None
    file = GenerationFile(tmp_path, read_benchmark(str(source)), senior, None, None)
    (evaluated,) = response_set(file, Sampling(1)).questions
    assert token_ids(problem, INSTRUCTION, tokenizer) == prompt_ids(evaluated.turns, tokenizer)


class ThinkingTokenizer(Tokenizer):
    chat_template = (
        "{%- for m in messages %}{% generation %}{{ m.role }}{% endgeneration %}{% endfor %}"
        "{# depth #}{% if enable_thinking is defined and not enable_thinking %}<think>{% endif %}"
    )

    def apply_chat_template(self, turns: list[dict[str, str]], **given: Any) -> list[str]:
        assert given.pop("add_generation_prompt")
        given = {k: v for k, v in given.items() if k not in ("return_dict", "tokenize")}
        return [*(turn["content"] for turn in turns), *map(repr, given.items())]


def test_chat_templates_arguments_reach_every_prompt_of_rollouts_and_evaluations(tmp_path: Path):
    given, tokenizer = {"enable_thinking": False, "depth": 2}, ThinkingTokenizer()
    expected = ["Q", "('enable_thinking', False)", "('depth', 2)"]
    problem = Problem(1, tuple(MESSAGES), ())
    assert token_ids(problem, None, tokenizer, given) == expected
    source = tmp_path / "q.jsonl"
    source.write_text(json.dumps({"messages": MESSAGES, "answer": "2"}) + "\n")
    benchmark = replace(read_benchmark(str(source)), template_args=given)
    senior: Any = SimpleNamespace(path="s", fingerprint="f")
    file = GenerationFile(tmp_path, benchmark, senior, None, None)
    limits = SimpleNamespace(model_config=SimpleNamespace(max_model_len=10**6))
    engine: Any = SimpleNamespace(get_tokenizer=lambda: tokenizer, llm_engine=limits)
    (asked,) = response_set(file, Sampling(1)).questions
    assert prompt_ids(asked.turns, tokenizer, given)[1:] == expected[1:]
    handoff = TextHandoff(engine, Sampling(1), 1, given)
    handoff.add(0, {"messages": asked.turns, "golds": asked.golds}, (1, 2), 3)
    assert handoff._waiting[0].prompt[1:] == expected[1:]  # type: ignore[comparison-overlap]
    assert file.settings(Sampling(1), {})["benchmark"]["template_args"] == given
    assert "template_args" not in read_benchmark(str(source)).settings()


@pytest.mark.parametrize(
    ("tokenizer", "given", "unused"),
    [
        (ThinkingTokenizer(), {"enable_thinking": True}, []),
        (ThinkingTokenizer(), {"enable_thinking": True, "depth": 1, "role": 2}, ["depth", "role"]),
        (ThinkingTokenizer(), {"chat_template": "{{ depth }}", "depth": 1}, []),
        (BaseTokenizer(), {"enable_thinking": True}, ["enable_thinking"]),
        (BaseTokenizer(), {"chat_template": "{{ x }}", "x": 1, "y": 1}, ["y"]),
        (SimpleNamespace(chat_template={"a": "{{ x }}", "b": "{{ y }}"}), {"x": 1, "z": 2}, ["z"]),
        (SimpleNamespace(chat_template="{% odd x %}"), {"x": 1, "z": 2}, ["z"]),
        (ThinkingTokenizer(), {}, []),
    ],
)
def test_argument_that_the_template_does_not_use_is_an_error(
    tokenizer: Any, given: dict[str, Any], unused: list[str]
):
    for name in unused:
        with refused("template-argument-unused", name=name):
            check_template_args(tokenizer, {name: given[name], **given})
    used = {name: value for name, value in given.items() if name not in unused}
    check_template_args(tokenizer, used)


def test_prompt_that_the_template_cannot_render_is_refused_with_its_reason():
    class Strict(Tokenizer):
        def apply_chat_template(self, turns: list[dict[str, str]], **given: Any) -> list[str]:
            raise TypeError("'int' object is not iterable")

    with refused("chat-template-failed", error_type="TypeError"):
        token_ids(Problem(1, tuple(MESSAGES), ()), None, Strict(), {"tools": 1})


def test_grading_needs_an_answer_to_every_problem(tmp_path: Path):
    problems = tmp_path / "problems.jsonl"
    problems.write_text('{"problem": "1+1?", "answer": 2}\n{"problem": "2+2?"}\n')
    out = tmp_path / "out.jsonl"
    arguments = ["rollout", "--senior", "s", "--problems", str(problems), "--out", str(out)]
    done = CliRunner().invoke(app, [*arguments, "--grade"])
    assert (done.exit_code, out.exists()) == (1, False)
    assert "row 2: It has no answer in any of" in done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--set", "p=2"], "p=2 is not a probability"),
        (["--engine", "additional-config={}"], "engine-argument-unknown"),
        (["--seed", str(2**63)], "out of range"),
        (["--template-arg", "tokenize=true"], "template-argument-unknown"),
        (["--template-arg", "thinking"], "option-not-assignment"),
        (["--set", "p=0.2", "--set", "p=0.3"], "option-set-twice"),
        (["--engine", "seed=1", "--engine", "seed=2"], "option-set-twice"),
        *(
            (["--set", f"{name}=1"], f"would set what --{option} sets")
            for name, option in (
                ("junior", "junior"),
                ("seed", "seed"),
                ("schedule", "schedule"),
                ("boundaries", "boundaries"),
                ("max_tokens", "max-tokens"),
                ("samples", "samples"),
            )
        ),
        (["--set", "junior=x", "--junior", "y"], "set-is-an-option"),
        (["--set", "sede=1"], "Did you mean '--seed'?"),
        (["--set", "caps=1"], "Did you mean 'cap'?"),
        (["--set", "moode=speculative"], "Did you mean 'mode'?"),
        *(
            (["--set", f"{name}=1"], "set-name-unknown")
            for name in (
                "validation",
                "lambda_jun",
                "rollouts",
                "require",
                "max_unknown_share",
                "after",
                "",
            )
            if name
        ),
        (["--schedule", "handover", "--set", "cap=3"], "set-name-unknown"),
        (["--set", "mode=fast"], "setting-invalid"),
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


def test_folder_of_a_run_stands_for_its_rollouts(tmp_path: Path):
    (tmp_path / "metrics.jsonl").touch()
    dumps = [tmp_path / "rollouts" / f"{step}.jsonl" for step in (2, 10)]
    dumps[0].parent.mkdir()
    for dump in dumps:
        dump.touch()
    assert rollout_files(tmp_path) == rollout_files(tmp_path / "rollouts") == dumps


def test_what_holds_no_rollouts_is_told_apart(tmp_path: Path):
    with refused("path-missing", path=str(tmp_path / "none")):
        rollout_files(tmp_path / "none")
    with refused("folder-without-rollouts", path=str(tmp_path)):
        rollout_files(tmp_path)
    file = tmp_path / "rollouts.jsonl"
    file.touch()
    with refused("rollout-file-empty", file=str(file)):
        find_tokenizer(file)
    file.write_text("\n{}\n")
    with refused("rollout-file-without-rollouts", file=str(file), line=2):
        find_tokenizer(file)
    with refused("rollout-file-name-invalid", path="/"):
        run_file(Path("/"))
    with refused("file-unreadable", path=str(tmp_path / "none")):
        Grades(tmp_path / "none")


def test_files_of_an_evaluation_are_found_below_its_folder(tmp_path: Path):
    responses = [
        tmp_path / "base" / "solo" / "sums.jsonl",
        tmp_path / "step-2" / "handoff" / "step" / "small" / "sums.jsonl",
    ]
    others = [
        tmp_path / "base" / "solo" / "sums.grades.jsonl",
        tmp_path / "base" / "legibility" / "small" / "sums.scores.jsonl",
        tmp_path / "other" / "notes.jsonl",
    ]
    for file in (*responses, *others):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    for file in (*responses, *others[:2]):
        run_file(file).write_text(json.dumps({"senior": str(tmp_path)}))
    run_file(tmp_path / "base" / "solo" / "gone.jsonl").touch()
    assert rollout_files(tmp_path) == responses
    assert rollout_files(tmp_path / "base") == responses[:1]
    assert rollout_files(tmp_path / "step-2") == responses[1:]
    rows = {"response_ids": [1], "tandem_seed": None}
    responses[0].write_text(json.dumps(rows) + "\n")
    assert find_tokenizer(tmp_path) == str(tmp_path)
    direct = tmp_path / "direct.jsonl"
    direct.touch()
    assert rollout_files(tmp_path) == [direct], "files of the folder itself come first"


@pytest.mark.parametrize("note", ["[]", "{", '{"a": 1, "a": 2}'])
def test_settings_that_cannot_be_read_stop_before_anything_is_written(tmp_path: Path, note: str):
    path = tmp_path / "out.jsonl"
    write(path)
    before = path.read_bytes()
    run_file(path).write_text(note)
    with refused("rollout-note-unreadable", note=str(run_file(path))):
        RolloutFile(path, SETTINGS)
    assert path.read_bytes() == before


def test_a_full_disk_is_a_sentence(tmp_path: Path):
    path = tmp_path / "out.jsonl"
    with RolloutFile(path, SETTINGS) as file:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
        try:
            with refused("file-write-failed", path=str(path)):
                file.append(0, 0, {"response": "a"})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_schedules_of_segments_are_one_for_each():
    row = {"response_ids": [1, 2], "authorship": [True, False], "tandem_seed": 1}
    row |= {"tandem_fingerprint": "0" * 16, "tandem_segments": [[1, 0, 2]]}
    with refused("rollout-segment-schedules-invalid", segments=1):
        check_row(row | {"tandem_segment_schedules": [None, None]})
