from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tandem_plugin.cli import app
from tandem_plugin.grading import OUTCOMES
from tandem_plugin.grading.rewards.verl_reward import compute_score

pytest.importorskip("sympy")

ROWS = [
    {"response": r"so \boxed{5}", "gold": "5"},
    {"output": r"so \boxed{6}", "gts": ["5", "6"]},
    {"response": r"so \boxed{7}", "answer": 5},
    {"response": "none", "ground_truth": "5"},
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "responses.jsonl"
    path.write_text("\n\n".join(map(json.dumps, ROWS)) + "\n", encoding="utf-8")
    return path


def run(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    return result.exit_code, result.stdout, result.stderr


def test_a_file_gives_one_record_a_line_and_a_summary(file: Path):
    code, records, summary = run("grade", file)
    assert code == 0
    rows = [json.loads(line) for line in records.splitlines()]
    assert [(row["line"], row["outcome"]) for row in rows] == [
        (1, "correct"),
        (3, "correct"),
        (5, "incorrect"),
        (7, "no_answer"),
    ]
    assert "0.5000" in summary


def test_rows_of_standard_input_are_graded_as_those_of_a_file(file: Path, tmp_path: Path):
    out = tmp_path / "grades.jsonl"
    assert run("grade", file, "-o", out, "--json")[0] == 0
    done = CliRunner().invoke(app, ["grade", "-"], input=file.read_bytes())
    records = [
        [json.loads(line) for line in text.splitlines()] for text in (done.stdout, out.read_text())
    ]
    for row in (*records[0], *records[1]):
        del row["milliseconds"]
    assert records[0] == records[1]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 1 is not JSON"),
        ("[]", "not a JSON object"),
        ('{"gold": 1}', "has no text in any of the fields response"),
        ('{"response": "x"}', "has no gold answer in any of the fields gold"),
    ],
)
def test_a_file_that_is_not_what_was_meant_is_refused(tmp_path: Path, line: str, message: str):
    file = tmp_path / "f.jsonl"
    file.write_text(line)
    code, _, error = run("grade", file)
    assert code == 1
    assert message in error


@pytest.mark.parametrize("framework", ["verl", "openrlhf"])
def test_path_names_a_file_with_the_function_that_the_trainer_calls(framework: str):
    code, text, _ = run("path", f"reward-{framework}")
    assert code == 0
    function = {"verl": "def compute_score(", "openrlhf": "def reward_func("}[framework]
    assert function in Path(text.strip()).read_text()


def test_the_reward_for_verl_says_every_outcome():
    result = compute_score("s", r"\boxed{5}", ["4", "5"], extra_info={"index": 1})
    flags = {name: value for name, value in result.items() if name.startswith("outcome_")}
    assert flags == {f"outcome_{name}": float(name == "correct") for name in OUTCOMES}
    assert (result["score"], result["acc"]) == (1.0, 1.0)
    assert (result["pred"], result["grading_rule"]) == ("5", "text")
    assert compute_score("s", "none", "5")["pred"] == ""
    copied = compute_score("s", r"\boxed{2+3}", "5", {"question": "What is $2+3$?"})
    assert (copied["score"], copied["outcome_copied"]) == (0.0, 1.0)


def test_the_reward_for_openrlhf_grades_the_response_alone():
    torch = pytest.importorskip("torch")
    from tandem_plugin.grading.rewards.openrlhf_reward import reward_func

    prompt = r"An example: \boxed{5}. Now add $2+3$."
    rows = [
        (f"{prompt} It is \\boxed{{5}}.", prompt, "5", "correct"),
        (f"{prompt} I do not know.", prompt, "5", "no_answer"),
        (f"cut{prompt[-30:]}\\boxed{{6}}", prompt[-30:], '["5", "6"]', "correct"),
        (f"{prompt} \\boxed{{2+3}}", prompt, "5", "copied"),
        ("x", prompt, "5", "error"),
    ]
    queries, prompts, labels, outcomes = map(list, zip(*rows, strict=True))
    result = reward_func(queries, prompts, labels)
    assert result["rewards"].tolist() == [float(one == "correct") for one in outcomes]
    assert result["scores"] is result["rewards"]
    for name in OUTCOMES:
        flags = result["extra_logs"][f"outcome_{name}"]
        assert flags.tolist() == [float(one == name) for one in outcomes]
    assert all(isinstance(value, torch.Tensor) for value in result["extra_logs"].values())


def test_records_never_replace_the_responses(file: Path, tmp_path: Path):
    (tmp_path / "hard.jsonl").hardlink_to(file)
    before = file.read_bytes()
    for out in (file, tmp_path / "hard.jsonl"):
        code, _, error = run("grade", file, "--out", out)
        assert (code, file.read_bytes()) == (1, before)
        assert "would overwrite the responses" in error
