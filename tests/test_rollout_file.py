from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refused import refused
from typer.testing import CliRunner

from tandem_plugin import Authorship
from tandem_plugin.cli import app
from tandem_plugin.lab.commands.problems import Asking, answer, chat, prompt, read_prompts
from tandem_plugin.lab.commands.rollout import RolloutRun, mean_reward, write_rollouts
from tandem_plugin.lab.data import Problem, prepare, read_problems
from tandem_plugin.lab.evaluation.benchmark import read_benchmark
from tandem_plugin.lab.evaluation.engine_process import _Place, _Prompts
from tandem_plugin.lab.evaluation.generation import Sampling
from tandem_plugin.lab.rollouts.rollout_file import RolloutFile, run_file

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
    with refused("TP753", line=2, one="rollout"):
        RolloutFile(path, SETTINGS)
    assert path.read_bytes() == before


@pytest.mark.parametrize("change", [{"seed": 1}, {"parameters": {"p": 0.3}}, {"new": True}])
def test_other_settings_are_refused_naming_the_difference(tmp_path: Path, change: dict[str, Any]):
    path = tmp_path / "out.jsonl"
    write(path)
    before = path.read_bytes()
    (name,) = change
    with refused("TP756", name=name):
        RolloutFile(path, SETTINGS | change)
    assert path.read_bytes() == before


def test_rollouts_without_a_note_of_their_settings_are_refused(tmp_path: Path):
    path = tmp_path / "out.jsonl"
    write(path)
    run_file(path).unlink()
    with refused("TP755", note="out.jsonl.run.json"):
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
        refused("TP752"),
    ):
        RolloutFile(path, SETTINGS)
    RolloutFile(path, SETTINGS).__exit__(None, None, None)


def test_folder_in_place_of_the_file_is_an_error_of_one_sentence(tmp_path: Path):
    with refused("TP751", reason="Is a directory"):
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
    ("text", "code"),
    [
        ("", "TP726"),
        ('{"problem": "x"}\n{', "TP976"),
        ('{"problem": "x"}\n{"prompt": [{"role": "user", "content": null}]}', "TP976"),
        ('{"problem": "x"}\n{"problem": "y", "answer": {}, "label": {"x": 1}}', "TP976"),
    ],
)
def test_wrong_problems_are_refused_by_file_and_row(tmp_path: Path, text: str, code: str):
    file = tmp_path / "problems.jsonl"
    file.write_text(text)
    with refused(code) as caught:
        read_prompts(str(file))
    assert str(file) in str(caught.value)
    assert caught.value.fields.get("row", 2) == 2


def asked(text: str, *golds: str) -> Problem:
    return Problem(1, ({"role": "user", "content": text.strip()},), golds, text)


class Tokenizer:
    chat_template = "a template"

    def encode(self, text: str) -> list[str]:
        return [text]

    def apply_chat_template(self, turns: list[dict[str, str]], **_: Any) -> list[str]:
        return ["user:", *(turn["content"] for turn in turns)]


def test_raw_text_is_sent_as_it_stands_and_a_chat_only_through_a_template():
    text, turns = asked("Q: 1+1?\nA: "), Problem(2, tuple(MESSAGES), ())
    raw, templated = Asking(raw=True), Asking()
    assert raw.ids(text, Tokenizer()) == ["Q: 1+1?\nA: "]
    assert templated.ids(text, Tokenizer()) == ["user:", "Q: 1+1?\nA: "]
    assert templated.ids(turns, Tokenizer()) == ["user:", "Q"]
    with refused("TP978"):
        raw.ids(turns, Tokenizer())


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
    (problem,) = read_prompts(str(source), "required")
    asking = Asking.chosen(grade=True, instruction=None, raw=False)
    prepared = prepare(read_problems(source), "openrlhf", tmp_path / "out").files["train"]
    turns = json.loads(prepared.read_text())["input"]
    assert asking.prompt(problem) == turns
    assert ("step by step" in turns[0]["content"]) == ("boxed" not in text)
    benchmark = read_benchmark(str(source))
    job = {"files": [{"questions": benchmark.questions(), "benchmark": "sums"}]}
    engine: Any = SimpleNamespace(
        get_tokenizer=lambda: tokenizer,
        llm_engine=SimpleNamespace(model_config=SimpleNamespace(max_model_len=10**6)),
    )
    evaluated = _Prompts(engine, job, Sampling(1))
    assert asking.ids(problem, tokenizer) == evaluated.ids(_Place(0, 0, 0))


def test_instruction_is_the_users_own_where_one_is_given():
    own = Asking.chosen(grade=True, instruction="Be short.", raw=False)
    assert own.prompt(asked("Q"))[0]["content"] == "Q\nBe short."
    assert Asking.chosen(grade=False, instruction="Be short.", raw=False) == own
    assert Asking.chosen(grade=False, instruction=None, raw=False).prompt(asked("Q")) == "Q"
    assert Asking.chosen(grade=True, instruction=None, raw=True).prompt(asked("Q")) == "Q"
    with refused("TP977"):
        Asking.chosen(grade=True, instruction="Be short.", raw=True)


class Engine:
    """Stands in for the engine: responses to the problems, in another order than asked."""

    def __init__(self, answers: dict[int, str]) -> None:
        self.answers = answers
        scheduler = SimpleNamespace(max_num_seqs=4)
        self.llm_engine = SimpleNamespace(
            vllm_config=SimpleNamespace(scheduler_config=scheduler),
            model_config=SimpleNamespace(max_model_len=100),
        )

    def get_tokenizer(self) -> Tokenizer:
        return Tokenizer()

    def stream(self, requests: Any, most: int) -> Any:
        for problem, text in self.answers.items():
            response = SimpleNamespace(
                text=text, finish_reason="stop", token_ids=[1, 2], tandem_seed=7,
                authorship=Authorship.from_bits([1, 0]), tandem_fingerprint="x", tandem_schedule={},
            overlaps=None,
            )  # fmt: skip
            yield (problem, 0), SimpleNamespace(outputs=[response])


def graded(path: Path, answers: dict[int, str], problems: list[Problem]) -> None:
    from tandem_plugin.grading import Grader

    engine: Any = Engine(answers)
    run = RolloutRun(engine, problems, Asking("Box it."), 0, {}, {})
    places = [(problem, 0) for problem in answers]
    with RolloutFile(path, SETTINGS) as file:
        write_rollouts(run, file, places, len(places), Grader())


def test_graded_lines_say_reward_and_why_and_the_mean_is_that_of_all(tmp_path: Path):
    pytest.importorskip("sympy")
    path = tmp_path / "out.jsonl"
    problems = [asked("1+1?", "2"), asked("1/2?", "1/2", "0.5"), asked("x?", "x")]
    graded(path, {1: "so \\boxed{0.50}", 0: "\\boxed{3}"}, problems)
    graded(path, {2: "nothing"}, problems)
    rows = {row["problem"]: row for row in map(json.loads, path.read_text().splitlines())}
    assert [rows[i]["reward"] for i in range(3)] == [0.0, 1.0, 0.0]
    assert [rows[i]["outcome"] for i in range(3)] == ["incorrect", "correct", "no_answer"]
    assert [rows[i]["pred"] for i in range(3)] == ["3", "0.50", ""]
    assert rows[0]["prompt"] == [{"role": "user", "content": "1+1?\nBox it."}]
    assert mean_reward(path, {(0, 0), (1, 0), (2, 0)}) == pytest.approx(1 / 3)
    assert mean_reward(path, {(0, 0), (1, 0)}) == 0.5
    assert mean_reward(path, set()) is None


def test_run_that_fails_keeps_no_line_without_its_grade(tmp_path: Path, monkeypatch: Any):
    pytest.importorskip("sympy")
    path = tmp_path / "out.jsonl"

    def broken(self: Engine, requests: Any, most: int) -> Any:
        yield from stream(self, requests, most)
        raise KeyboardInterrupt

    stream = Engine.stream
    monkeypatch.setattr(Engine, "stream", broken)
    with pytest.raises(KeyboardInterrupt):
        graded(path, {0: "\\boxed{2}", 1: "\\boxed{2}"}, [asked("a", "2"), asked("b", "2")])
    assert all(json.loads(line)["reward"] == 1.0 for line in path.read_text().splitlines())


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
        (["--engine", "additional-config={}"], "TP962"),
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
