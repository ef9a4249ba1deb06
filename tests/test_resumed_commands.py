"""Commands that resume a file: over what is as it was and longer, and over nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tandem_plugin import Authorship
from tandem_plugin.cli import app
from tandem_plugin.lab.commands.rollout import RolloutRun
from tandem_plugin.lab.evaluation.checkpoint import fingerprint_folder
from tandem_plugin.lab.rollouts import engine as engine_module

pytest.importorskip("sympy")

Row = dict[str, Any]


def run(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    return result.exit_code, result.stdout, result.stderr


def write(path: Path, rows: Sequence[Row]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def lines(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()]


# tandem grade --out

RESPONSES: list[Row] = [
    {"prompt": f"What is {i} + 1?", "response": f"It is \\boxed{{{i + 1}}}.", "gold": str(i + 1)}
    for i in range(6)
]


@dataclass
class Graded:
    """A file of responses and its grades, of which a kill left the first half."""

    file: Path
    out: Path

    def again(self, *options: object) -> tuple[int, str, str]:
        return run("grade", self.file, "--out", self.out, "--json", *options)


@pytest.fixture
def graded(tmp_path: Path) -> Graded:
    return _graded(tmp_path)


def _graded(folder: Path) -> Graded:
    found = Graded(folder / "responses.jsonl", folder / "grades.jsonl")
    write(found.file, RESPONSES)
    assert found.again()[0] == 0
    kept = found.out.read_bytes().splitlines(keepends=True)[:3]
    found.out.write_bytes(b"".join(kept) + b'{"line": 4, "outc')
    return found


def test_grading_resumes_over_the_same_rows_and_over_more(graded: Graded):
    write(graded.file, [*RESPONSES, {"response": "\\boxed{9}", "gold": "8"}])
    before = graded.out.read_bytes()[:-17]
    code, said, error = graded.again()
    assert code == 0, error
    assert graded.out.read_bytes().startswith(before)
    assert [row["line"] for row in lines(graded.out)] == [1, 2, 3, 4, 5, 6, 7]
    outcomes = json.loads(said)["outcomes"]
    assert {name: count for name, count in outcomes.items() if count} == {
        "correct": 6,
        "incorrect": 1,
    }
    assert graded.again()[0] == 0
    assert len(lines(graded.out)) == 7


CHANGES: dict[str, list[Row]] = {
    "gold": [{**RESPONSES[0], "gold": "99"}, *RESPONSES[1:]],
    "prompt": [{**RESPONSES[0], "prompt": "Copy \\boxed{1}."}, *RESPONSES[1:]],
    "response": [{**RESPONSES[0], "response": "\\boxed{7}"}, *RESPONSES[1:]],
    "cut": RESPONSES[:2],
    "reordered": [RESPONSES[1], RESPONSES[0], *RESPONSES[2:]],
}


@pytest.mark.parametrize("change", CHANGES)
def test_grades_of_other_rows_are_not_resumed(graded: Graded, change: str):
    write(graded.file, CHANGES[change])
    before = graded.out.read_bytes()
    code, said, _ = graded.again()
    assert code == 1
    assert "another --out" in json.loads(said)["error"]
    assert graded.out.read_bytes()[: len(before) - 17] == before[:-17]
    assert len(graded.out.read_bytes().splitlines()) <= 4


def test_grades_by_other_options_are_not_resumed(graded: Graded):
    before = graded.out.read_bytes()
    code, said, _ = graded.again("--seconds", 2)
    assert code == 1
    assert "seconds" in json.loads(said)["error"]
    assert graded.out.read_bytes() == before
    assert graded.again("--workers", 1)[0] == 0  # how many, and not what


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_resumed_grades_are_those_of_one_run_or_there_is_an_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
):
    """Whatever became of the rows: no grade of a row that is not there is ever kept silently."""
    folder = tmp_path_factory.mktemp("any")
    found = _graded(folder)
    found.out.write_bytes(found.out.read_bytes().rpartition(b"\n")[0] + b"\n")
    rows = data.draw(st.lists(st.sampled_from(RESPONSES), max_size=8))
    write(found.file, [*RESPONSES[: data.draw(st.integers(0, 6))], *rows])
    resumes = lines(found.file)[:3] == RESPONSES[:3]
    code, said, error = found.again()
    assert (code == 0) == resumes, said + error
    if resumes:
        anew = folder / "anew.jsonl"
        code, expected, _ = run("grade", found.file, "--out", anew, "--json")
        assert [{**row, "milliseconds": 0} for row in lines(found.out)] == [
            {**row, "milliseconds": 0} for row in lines(anew)
        ]
        assert json.loads(said)["outcomes"] == json.loads(expected)["outcomes"]


# tandem rollout

PROBLEMS: list[Row] = [{"problem": f"What is {i} + 1?", "answer": str(i + 1)} for i in range(4)]


class Engine:
    """Stands in for the engine: answers what is asked, and rightly."""

    def __init__(self) -> None:
        scheduler = SimpleNamespace(max_num_seqs=4)
        self.llm_engine = SimpleNamespace(vllm_config=SimpleNamespace(scheduler_config=scheduler))

    def get_tokenizer(self) -> None:
        return None

    def stream(self, requests: Iterator[tuple[int, int]], most: int) -> Iterator[Any]:
        for problem, sample in requests:
            response = SimpleNamespace(
                text=f"\\boxed{{{problem + 1}}}", finish_reason="stop", token_ids=[1, 2],
                tandem_seed=7, authorship=Authorship.from_bits([1, 0]), tandem_fingerprint="x",
                tandem_schedule={}, overlaps=None,
            )  # fmt: skip
            yield (problem, sample), SimpleNamespace(outputs=[response])


@dataclass
class RolledOut:
    """A run with --grade, of which a kill left two responses."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch

    @property
    def out(self) -> Path:
        return self.folder / "rollouts.jsonl"

    def again(self, *options: object) -> tuple[int, str, str]:
        self.monkeypatch.setattr(engine_module, "start_engine", lambda *_: Engine())
        self.monkeypatch.setattr(RolloutRun, "requests", lambda _, places: iter(places))
        return run(
            *("rollout", "--grade", "--json", "--out", self.out),
            *("--senior", self.folder / "senior", "--junior", self.folder / "junior"),
            *("--problems", self.folder / "problems.jsonl", *options),
        )


@pytest.fixture
def rolled_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RolledOut:
    for name in ("senior", "junior"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
        (tmp_path / name / "model.safetensors").write_bytes(name.encode())
    write(tmp_path / "problems.jsonl", PROBLEMS)
    found = RolledOut(tmp_path, monkeypatch)
    assert found.again()[0] == 0
    kept = found.out.read_bytes().splitlines(keepends=True)[:2]
    found.out.write_bytes(b"".join(kept))
    return found


def test_rollouts_resume_with_the_same_problems_and_with_more(rolled_out: RolledOut):
    more = [*PROBLEMS, {"problem": "What is 4 + 1?", "answer": "5"}]
    before = rolled_out.out.read_bytes()
    write(rolled_out.folder / "problems.jsonl", more)
    code, said, error = rolled_out.again()
    assert code == 0, said + error
    assert rolled_out.out.read_bytes().startswith(before)
    assert [row["problem"] for row in lines(rolled_out.out)] == [0, 1, 2, 3, 4]
    result = json.loads(said)
    assert (result["written"], result["found"], result["reward"]) == (3, 2, 1.0)
    # What was added belongs to the file from now on.
    write(rolled_out.folder / "problems.jsonl", PROBLEMS)
    assert rolled_out.again()[0] == 1


@pytest.mark.parametrize(
    "problems",
    [
        [{**row, "answer": "999"} for row in PROBLEMS],
        [{**PROBLEMS[0], "problem": "What is 0 + 2?"}, *PROBLEMS[1:]],
        PROBLEMS[:3],
        PROBLEMS[::-1],
    ],
    ids=["answers", "problem", "cut", "reordered"],
)
def test_rollouts_to_other_problems_are_not_resumed(rolled_out: RolledOut, problems: list[Row]):
    before = rolled_out.out.read_bytes()
    write(rolled_out.folder / "problems.jsonl", problems)
    code, said, _ = rolled_out.again()
    assert (code, rolled_out.out.read_bytes()) == (1, before)
    assert "another --out" in json.loads(said)["error"]


def test_lines_say_their_grades_and_the_command_their_mean(rolled_out: RolledOut):
    rows: list[Row] = [{"problem": "0 + 1?", "answer": ["9", "1"]}, {"problem": "?", "answer": "x"}]
    write(rolled_out.folder / "problems.jsonl", rows)
    rolled_out.out.unlink()
    code, said, error = rolled_out.again("--instruction", "Box it.")
    assert (code, json.loads(said)["reward"]) == (0, 0.5), error
    found = {row["problem"]: row for row in lines(rolled_out.out)}
    assert [found[i]["outcome"] for i in range(2)] == ["correct", "incorrect"]
    assert [(found[i]["reward"], found[i]["pred"]) for i in range(2)] == [(1.0, "1"), (0.0, "2")]
    assert found[0]["prompt"] == [{"role": "user", "content": "0 + 1?\nBox it."}]


def test_run_that_is_stopped_keeps_no_line_without_its_grade(rolled_out: RolledOut):
    stream = Engine.stream

    def stopped(self: Engine, requests: Iterator[tuple[int, int]], most: int) -> Iterator[Any]:
        yield from stream(self, requests, most)
        raise KeyboardInterrupt

    rolled_out.monkeypatch.setattr(Engine, "stream", stopped)
    assert rolled_out.again()[0] == 130
    assert all(row["reward"] == 1.0 for row in lines(rolled_out.out))


@pytest.mark.parametrize("name", ["senior", "junior"])
@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "tokenizer.json"])
def test_rollouts_by_other_weights_in_the_same_folder_are_not_resumed(
    rolled_out: RolledOut, name: str, file: str
):
    before = rolled_out.out.read_bytes()
    (rolled_out.folder / name / file).write_text("[]")
    code, said, _ = rolled_out.again()
    assert (code, rolled_out.out.read_bytes()) == (1, before)
    assert f"{name}_fingerprint" in json.loads(said)["error"]


def test_rollouts_note_the_fingerprints_that_evaluations_have(rolled_out: RolledOut):
    note = json.loads((rolled_out.folder / "rollouts.jsonl.run.json").read_text())
    assert note["senior_fingerprint"] == fingerprint_folder(rolled_out.folder / "senior")
    assert note["junior_fingerprint"] == fingerprint_folder(rolled_out.folder / "junior")
    # A log, or what a trainer leaves beside the weights, is none of the model.
    (rolled_out.folder / "senior/optimizer.pt").write_bytes(b"x")
    assert rolled_out.again()[0] == 0
