from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest
from refused import refused

from tandem_plugin.grading import Grade, Grader, GradingLimits

RADICAL, RADICAL_GOLD = r"\boxed{\sqrt{8}}", r"2\sqrt{2}"
ENDLESS = r"\boxed{\sum_{k=1}^{99999}\frac{1}{k^{1.5}+\sin k}}"


def test_an_endless_answer_is_lost_alone(grader: Grader):
    lost = dict(grader.deaths)
    grades = grader.grade_batch([(RADICAL, RADICAL_GOLD), (ENDLESS, r"\sqrt{2}")] * 2)
    assert [grade.outcome for grade in grades] == ["correct", "timeout"] * 2
    assert grades[1].rule == "time_limit"
    assert "1.5 s" in str(grades[1].message)
    assert grader.deaths["time_limit"] == lost.get("time_limit", 0) + 2
    assert grader.grade(RADICAL, RADICAL_GOLD).outcome == "correct"


def test_grading_works_in_an_event_loop(grader: Grader):
    async def both() -> list[Grade]:
        pairs = ((RADICAL, RADICAL_GOLD), ("no box", "5"))
        return await asyncio.gather(*(asyncio.wrap_future(grader.submit(*pair)) for pair in pairs))

    assert [grade.outcome for grade in asyncio.run(both())] == ["correct", "no_answer"]


def test_importing_grading_imports_no_computer_algebra():
    code = (
        "import sys, tandem_plugin.grading as g; assert not {'sympy', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_plain_answers_need_no_worker():
    with Grader() as grader:
        assert grader.grade(r"\boxed{1{,}200}", 1200).outcome == "correct"
        assert grader.grade(r"\boxed{(1, 2)}", "(1,3)").outcome == "incorrect"
        assert grader._pool._forkserver is None


@pytest.mark.parametrize("limits", [{"seconds": 0.0}, {"memory_mb": 10}, {"workers": 0}])
def test_limits_that_cannot_be_kept_are_refused(limits: dict[str, float]):
    with refused("grading-limit-too-small"):
        GradingLimits(**limits)  # type: ignore[arg-type]


def test_missing_sympy_is_said_at_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with refused("grading-needs-sympy"):
        Grader()


@pytest.mark.parametrize(
    ("response", "gold", "message"),
    [
        (r"\boxed{5}", None, "A gold answer must be text or a number, not NoneType."),
        (r"\boxed{5}", [], "There is no gold answer to compare with."),
        (r"\boxed{5}", "", "A gold answer is empty."),
        (r"\boxed{5}", float("nan"), "A gold answer must be text or a finite number, not nan."),
        ("no box", None, "A gold answer must be text or a number, not NoneType."),
        (r"\boxed{5}", "1" * 5000, "A gold is longer than 2000 characters."),
        (None, "5", "A response must be text, not NoneType."),
    ],
)
def test_what_cannot_be_graded_is_an_error_on_record(
    grader: Grader, response: object, gold: object, message: str
):
    grade = grader.grade(response, gold)
    assert (grade.outcome, grade.reward, grade.message) == ("error", 0.0, message)


def test_too_long_an_answer_is_wrong_without_being_read(grader: Grader):
    grade = grader.grade("\\boxed{" + "9" * 500_000 + "}", "5")
    assert (grade.outcome, grade.rule) == ("incorrect", "too_long")
