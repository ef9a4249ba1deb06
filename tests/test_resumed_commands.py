"""``tandem rollout`` resumes a file whose settings and problems are as they were."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from tandem_plugin import Authorship
from tandem_plugin.cli import app
from tandem_plugin.lab.commands.rollout import RolloutRun
from tandem_plugin.lab.evaluation.inputs import fingerprint_folder
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


def test_rollouts_resume_with_the_same_problems(rolled_out: RolledOut):
    before = rolled_out.out.read_bytes()
    code, said, error = rolled_out.again()
    assert code == 0, said + error
    assert rolled_out.out.read_bytes().startswith(before)
    assert [row["problem"] for row in lines(rolled_out.out)] == [0, 1, 2, 3]
    result = json.loads(said)
    assert (result["written"], result["found"], result["reward"]) == (2, 2, 1.0)


@pytest.mark.parametrize(
    "problems",
    [
        [{**row, "answer": "999"} for row in PROBLEMS],
        [{**PROBLEMS[0], "problem": "What is 0 + 2?"}, *PROBLEMS[1:]],
        [*PROBLEMS, {"problem": "What is 4 + 1?", "answer": "5"}],
    ],
    ids=["answers", "problem", "more"],
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
