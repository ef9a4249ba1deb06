"""Graders in files: what they say stands beside this package's own grades."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from refused import refused

from tandem_plugin.grading.generated import gold_of
from tandem_plugin.lab.data import Problem, PromptTemplate
from tandem_plugin.lab.evaluation import graders, solo_handoff
from tandem_plugin.lab.evaluation.generation import Sampling
from tandem_plugin.lab.evaluation.graders import FileGrader, read_grader
from tandem_plugin.lab.evaluation.inputs import Benchmark, Checkpoint
from tandem_plugin.lab.evaluation.measures import measured, shown_measures
from tandem_plugin.lab.evaluation.results import read_summary

LENIENT = """
import os, time


def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    if "sleep" in solution_str:
        time.sleep(30)
    if "die" in solution_str:
        os._exit(3)
    if "raise" in solution_str:
        raise ValueError("no answer like this")
    return {"score": 0.5, "acc": float(ground_truth in solution_str), "answer_present": 1.0}
"""


def grader(folder: Path, text: str = LENIENT) -> FileGrader:
    file = folder / "graders" / "lenient.py"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    return read_grader(f"lenient={file}")


def test_a_file_grades_by_its_own_rule_and_survives_its_responses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graders, "_SECONDS", 5.0)
    responses = ["It is 12.", "It is 3.", "raise", "die", "sleep", "It is 12 again."]
    with grader(tmp_path).start() as running:
        found = running.grade_batch([(one, ["13", "12"]) for one in responses])
    assert [one.outcome for one in found] == [
        *("correct", "incorrect", "error", "error", "timeout", "correct")
    ]
    assert found[2].message == "ValueError: no answer like this"
    assert {one.rule for one in found} == {"lenient"}


GRADING = """
import sys
from pathlib import Path
from tandem_plugin.lab.evaluation.graders import FileGrader
with FileGrader("stuck", Path(sys.argv[1])).start() as running:
    running.grade_batch([("x", ["1"])])
"""
STUCK = """
import os


def compute_score(*_):
    print(os.getpid(), flush=True)
    while True:
        pass
"""


def test_a_stuck_grader_ends_with_a_command_that_is_killed(tmp_path: Path) -> None:
    file = grader(tmp_path, STUCK).path
    program = tmp_path / "program.py"  # a process that is spawned imports it again
    program.write_text(f"if __name__ == '__main__':\n    exec({GRADING!r})\n")
    command = subprocess.Popen(
        [sys.executable, str(program), str(file)], stdout=subprocess.PIPE, text=True
    )
    assert command.stdout is not None
    pid = int(command.stdout.readline())
    os.kill(command.pid, signal.SIGKILL)
    command.wait(30)
    end = time.monotonic() + 60
    while Path(f"/proc/{pid}").exists() and "\nState:\tZ" not in status(pid):
        assert time.monotonic() < end
        time.sleep(0.05)


def status(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return "\nState:\tZ"


def test_a_grader_that_cannot_decide_is_rejected_before_it_grades(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with refused("grader-not-a-file", given="release"):
        read_grader("release")
    with refused("grader-file-missing"):
        read_grader(f"release={tmp_path / 'none.py'}")
    with monkeypatch.context() as without, refused("grader-package-missing", package="math-verify"):
        without.setattr(graders.importlib.util, "find_spec", lambda name: None)
        grader(tmp_path, "import math_verify")
    with (
        grader(tmp_path, "import nothing_of_this_name").start() as running,
        refused("grader-does-not-load") as caught,
    ):
        running.grade_batch([("12", ["12"])])
    assert "No module named 'nothing_of_this_name'" in str(caught.value)
    generated = gold_of("chain_sum", {"answer": "3", "metadata": {}})
    with grader(tmp_path).start() as running, refused("grader-of-generated-task", name="lenient"):
        running.grade_batch([("3", [generated])])


def test_both_graders_stand_beside_each_other_in_a_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sympy", reason="SymPy is not installed")
    problems = tuple(
        Problem(i, ({"role": "user", "content": f"Add {i}."},), (str(i + 10),)) for i in range(3)
    )
    benchmark = Benchmark("sums", problems, PromptTemplate())
    # Boxed and right; right without a box; wrong: by our grader 1, by the other 2 of 3.
    texts = ["So \\boxed{10}.", "So it is 11.", "So \\boxed{3}."]
    folder = tmp_path / "s" / "solo"
    folder.mkdir(parents=True)
    rows = [
        {
            "problem_number": i, "sample": 0, "prompt": list(problem.messages),
            "answer": list(problem.golds), "response": text, "prompt_ids": [1],
            "response_ids": [2, 3], "finish_reason": "stop", "tandem_seed": None,
        }
        for i, (problem, text) in enumerate(zip(problems, texts, strict=True))
    ]  # fmt: skip

    def generate(files: Any, sampling: Any, engine: Any) -> None:
        (file,) = files
        with solo_handoff.RolloutFile(file.path, file.settings(sampling, engine)) as out:
            for i, row in enumerate(rows):
                out.append(i, 0, row)

    monkeypatch.setattr(solo_handoff, "generate", generate)
    senior = Checkpoint("s", str(tmp_path), "0")
    own = solo_handoff.run_solo(tmp_path, senior, [benchmark], Sampling(1), {})
    alone = json.loads(own.read_text())
    other = grader(tmp_path)
    both = solo_handoff.run_solo(tmp_path, senior, [benchmark], Sampling(1), {}, None, [other])
    summary = read_summary(both)
    found = {one.name: value.macro for one, value in measured(summary, 10).items()}
    assert found == {"pass@1": pytest.approx(1 / 3), "pass@1, lenient": pytest.approx(2 / 3)}
    assert [one.name for one in shown_measures(summary, None)] == ["pass@1", "pass@1, lenient"]
    assert [row["correct_by"] for row in summary.problems["sums"]] == [
        {"lenient": 1}, {"lenient": 1}, {"lenient": 0}
    ]  # fmt: skip
    assert summary.settings["graders"]["lenient"]["sha256"] == other.settings()["sha256"]
    assert "graders" not in alone["settings"]
    grades = (folder / "sums.lenient.grades.jsonl").read_text().splitlines()
    assert [json.loads(row)["outcome"] for row in grades] == ["correct", "correct", "incorrect"]
