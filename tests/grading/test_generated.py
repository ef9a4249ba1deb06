"""Tasks of reasoning-gym: generated, prepared for each trainer, and graded by their own scorers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from refused import refused

from tandem_plugin.grading import Grader, generated
from tandem_plugin.grading.generated import check_task, gold_of
from tandem_plugin.grading.rewards import openrlhf_reward, trl_reward, verl_reward
from tandem_plugin.lab.data import prepare, read_problems
from tandem_plugin.lab.evaluation.inputs import read_benchmark

reasoning_gym = pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed")
factory = pytest.importorskip("reasoning_gym.factory")

SOURCE = "reasoning-gym:chain_sum,count=40,seed=1,max_terms=3,max_digits=1,min_digits=1"


def graded_tasks() -> list[str]:
    names = []
    for name in sorted(factory.DATASETS):
        try:
            check_task(name)
        except ValueError:
            continue
        names.append(name)
    return names


def test_same_source_gives_same_problems_and_seeds_side_by_side_do_not() -> None:
    first, again = read_problems(SOURCE), read_problems(SOURCE)
    other = read_problems(SOURCE.replace("seed=1", "seed=2"))
    assert first == again
    assert len(first) == 40
    shared = {one.text for one in first.problems} & {one.text for one in other.problems}
    assert len(shared) < 10  # by the library's own seeds 39 of 40 would be shared


@pytest.mark.parametrize("name", graded_tasks())
def test_every_accepted_task_takes_its_own_answer_and_evaluates_no_other(
    name: str, tmp_path: Path
) -> None:
    task = reasoning_gym.create_dataset(name, size=3, seed=5)
    proof = tmp_path / "evaluated"
    hostile = (
        f"__import__('pathlib').Path({str(proof)!r}).touch()",
        f"exec(\"open({str(proof)!r}, 'w')\")",
        "9**9**9**9",
        "[" * 500,
        "1" * 3_000,
        "",
    )
    with Grader() as grader:
        for entry in task:
            gold = gold_of(name, entry)
            right = grader.grade(f"So it is \\boxed{{{entry['answer']}}}.", gold)
            assert (right.outcome, right.gold) == ("correct", str(entry["answer"]))
            for text in hostile:
                assert grader.grade(f"\\boxed{{{text}}}", gold).reward == 0.0
    assert not proof.exists()


@pytest.mark.parametrize("name", ["countdown", "puzzle24", "simple_integration", "no_such_task"])
def test_a_task_whose_scorer_evaluates_text_is_rejected(name: str) -> None:
    with refused("generated-task-unsupported"):
        read_problems(f"reasoning-gym:{name}")


def test_partial_points_are_no_reward_and_a_broken_gold_is_an_error() -> None:
    (entry,) = reasoning_gym.create_dataset("syllogism", size=1, seed=0)
    gold = gold_of("syllogism", entry)
    with Grader() as grader:
        assert grader.grade(f"\\boxed{{{entry['answer']} it is}}", gold).outcome == "incorrect"
        assert grader.grade("\\boxed{1}", gold[:-2]).outcome == "error"
        assert grader.grade("\\boxed{1}", gold.replace("syllogism", "countdown")).outcome == "error"


def test_settings_that_a_task_does_not_take_are_rejected() -> None:
    for setting in ("no_such=1", "max_terms=0", "count=-1", "count=1e999", "max_terms=text"):
        with refused("generated-set-failed"):
            read_problems(f"reasoning-gym:chain_sum,{setting}")


def test_the_three_trainers_rewards_grade_what_was_prepared_for_them(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    torch = pytest.importorskip("torch")
    problems = read_problems(SOURCE)
    answers = [json.loads(one.golds[0])["answer"] for one in problems.problems]
    texts = [f"Then \\boxed{{{text if i % 2 else 'none'}}}." for i, text in enumerate(answers)]
    wanted = [float(i % 2) for i in range(len(texts))]
    table = parquet.read_table(prepare(problems, "verl", tmp_path / "verl").files["train"])
    rows = table.to_pylist()
    golds = [row["reward_model"]["ground_truth"] for row in rows]
    source = rows[0]["data_source"]
    scores = [
        verl_reward.compute_score(source, *one)["score"] for one in zip(texts, golds, strict=True)
    ]
    assert scores == wanted
    columns = {name: [row[name] for row in rows] for name in ("reward_model", "extra_info")}
    assert trl_reward.math_reward(texts, **columns) == wanted
    lines = prepare(problems, "openrlhf", tmp_path / "openrlhf").files["train"].read_text()
    records = [json.loads(line) for line in lines.splitlines()]
    queries = [f"Q{text}" for text in texts]
    labels = [record["label"] for record in records]
    rewards = openrlhf_reward.reward_func(queries, ["Q"] * len(queries), labels)["rewards"]
    assert torch.equal(rewards, torch.tensor(wanted))


def test_a_benchmark_of_a_task_has_a_name_that_can_be_a_folder() -> None:
    benchmark = read_benchmark(SOURCE)
    assert benchmark.name == "reasoning-gym-chain_sum"
    assert len(benchmark.problems) == 40


_FIRST_GRADES = """
from concurrent.futures import ThreadPoolExecutor
from tandem_plugin.grading.generated import judge

gold = '{"reasoning_gym": "chain_sum", "answer": "5", "metadata": {}}'
with ThreadPoolExecutor(8) as threads:
    print(*threads.map(lambda _: judge("5", gold)[0], range(64)))
"""


def test_threads_that_grade_first_wait_for_one_import_of_the_library() -> None:
    command = [sys.executable, "-c", _FIRST_GRADES]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"] * 64


def test_a_broken_gold_and_a_missing_library_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    with refused("generated-gold-unreadable"):
        generated.judge("1", '{"reasoning_gym": "syllogism"}')
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with refused("grading-needs-reasoning-gym"):
        generated.check_task("syllogism")
