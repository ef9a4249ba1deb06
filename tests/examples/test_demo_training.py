"""The demo: its problems, its table, and what one that was killed leaves behind."""

from __future__ import annotations

import errno
import fcntl
import io
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "demo"))


def test_processes_of_a_killed_training_are_ended_before_the_next(tmp_path: Path):
    psutil = pytest.importorskip("psutil")
    import train

    sleeper = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]
    left, other = (
        subprocess.Popen(
            sleeper,
            env=os.environ | {train.RUN_MARK: str(folder)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for folder in (tmp_path, tmp_path / "another")
    )
    try:
        for one in (left, other):
            assert one.stdout is not None
            assert one.stdout.readline() == "up\n"
        train.end_processes(tmp_path)
        assert not psutil.pid_exists(left.pid)
        assert other.poll() is None
        train.end_processes(tmp_path)  # nothing is left, which is no mistake
    finally:
        for one in (left, other):
            with one:
                one.kill()


def test_metrics_of_a_resumed_training_are_those_of_every_step_once(tmp_path: Path) -> None:
    """The steps after the checkpoint come again; a run that is killed twice loses none."""
    pytest.importorskip("psutil")
    import train

    (tmp_path / "verl" / "checkpoints").mkdir(parents=True)

    def log(*steps: int, value: int) -> None:
        lines = [json.dumps({"step": step, "data": {"a": value}}) + "\n" for step in steps]
        (tmp_path / train.VERLS_METRICS).write_text("".join(lines))

    def checkpoint(step: int) -> None:
        note = tmp_path / "verl" / "checkpoints" / "latest_checkpointed_iteration.txt"
        note.write_text(str(step))

    train._keep_metrics(tmp_path, train._checkpointed(tmp_path))
    log(1, 2, 3, value=0)
    checkpoint(2)
    train._keep_metrics(tmp_path, train._checkpointed(tmp_path))  # it was killed in step 4
    log(3, 4, 5, value=1)
    checkpoint(4)
    train._keep_metrics(tmp_path, train._checkpointed(tmp_path))  # and in step 6
    log(5, 6, value=2)
    train._keep_metrics(tmp_path)
    found = train.read_metrics(tmp_path / train.METRICS)
    expected = [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2), (6, 2)]
    assert [(step, values["a"]) for step, values in found] == expected
    assert not (tmp_path / train.VERLS_METRICS).exists()


def test_second_demo_in_the_folder_of_a_running_one_is_refused(tmp_path: Path) -> None:
    from folder import FolderError, claimed

    options = {"seed": 7, "steps": 15}
    with claimed(tmp_path, options) as is_resumed:
        assert not is_resumed
        with (
            pytest.raises(FolderError, match="Another demo is running in"),
            claimed(tmp_path, options),
        ):
            pytest.fail("it was claimed twice")
    with claimed(tmp_path, options) as is_resumed:
        assert is_resumed


def test_demo_runs_where_the_file_system_has_no_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from folder import claimed

    def failing(file: object, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", failing)
    with claimed(tmp_path, {"seed": 7}) as is_resumed:
        assert not is_resumed


def test_folder_of_another_demo_is_left_as_it_is(tmp_path: Path) -> None:
    from folder import FolderError, claimed

    with claimed(tmp_path / "demo", {"seed": 7, "steps": 15}):
        (tmp_path / "demo" / "model").mkdir()
    told = r"another demo: steps=15 \(here 20\)\."
    with (
        pytest.raises(FolderError, match=told),
        claimed(tmp_path / "demo", {"seed": 7, "steps": 20}),
    ):
        pytest.fail("another demo's folder was claimed")
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "draft.tex").touch()
    with pytest.raises(FolderError, match=r"contains draft\.tex"), claimed(tmp_path / "papers", {}):
        pytest.fail("a foreign folder was claimed")
    assert [one.name for one in (tmp_path / "demo").iterdir() if one.is_dir()] == ["model"]
    assert not (tmp_path / "papers" / "demo.json").exists()


def test_finished_training_is_not_run_again(tmp_path: Path) -> None:
    pytest.importorskip("psutil")
    import train

    (tmp_path / "checkpoint").mkdir()

    def on_step(step: int, metrics: Any) -> None:
        pytest.fail("it was trained again")

    senior = train.train(tmp_path, tmp_path, tmp_path, train.Training(), train.IN_TANDEM, on_step)
    assert senior == tmp_path / "checkpoint"


def test_model_that_was_taught_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a stopped lesson left has another name."""
    pytest.importorskip("torch", reason="torch is not installed")
    import self_pair as run

    taught = []

    def teach(lesson: Any, problems: Any, out: Path) -> None:
        taught.append(out)
        out.mkdir()

    monkeypatch.setattr(run, "teach", teach)
    monkeypatch.setattr(run, "Lesson", partial(run.Lesson, steps=1))
    for _ in range(2):
        run.word_problems(tmp_path / "model", run.Training(steps=1))
    assert taught == [tmp_path / "model.unfinished"]
    assert [one.name for one in tmp_path.iterdir()] == ["model"]


def test_sums_of_the_real_model_are_right_and_held_out_ones_are_not_trained_on() -> None:
    pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed")
    import self_pair as run

    held_back = run.REAL_EVALUATION_PROBLEMS
    training, held_out = run.real_model.different_sums(held_back)
    asked = [[problem.text for problem in problems] for problems in (training, held_out)]
    assert len(asked[1]) == held_back
    assert len(asked[0]) >= 100
    assert len(set(asked[0] + asked[1])) == len(asked[0]) + len(asked[1])
    for problem in training + held_out:
        first, sign, second = problem.text.split(":")[1].strip(" =").split()
        right = int(first) + (1 if sign == "+" else -1) * int(second)
        (gold,) = problem.golds  # of reasoning-gym's own scorer
        assert json.loads(gold)["answer"] == str(right)


@pytest.mark.parametrize("is_quantized", [True, False])
def test_a_gguf_file_becomes_a_model_that_transformers_saves(
    monkeypatch: pytest.MonkeyPatch, is_quantized: bool
) -> None:
    """From 5.17 only if it is asked to unpack the weights; before, there is nothing to ask for."""
    import self_pair as run

    options: dict[str, Any] = {}
    model, tokenizer = (SimpleNamespace(save_pretrained=lambda out: None) for _ in range(2))
    fake = SimpleNamespace(
        AutoModelForCausalLM=SimpleNamespace(
            from_pretrained=lambda folder, **given: options.update(given) or model
        ),
        AutoTokenizer=SimpleNamespace(from_pretrained=lambda folder, **given: tokenizer),
        **({"GgufConfig": SimpleNamespace} if is_quantized else {}),
    )
    monkeypatch.setitem(sys.modules, "transformers", fake)  # type: ignore[arg-type]
    monkeypatch.setattr(sys, "argv", ["-c", "folder", "file.gguf", "out"])
    exec(compile(run.real_model._CONVERT, "real_model.py", "exec"), {})
    asked = options.pop("quantization_config", None)
    assert asked == (SimpleNamespace(dequantize=True) if is_quantized else None)
    assert options == {"gguf_file": "file.gguf", "dtype": "float32"}


@pytest.mark.parametrize("is_real", [True, False])
def test_training_and_evaluation_ask_what_the_model_was_taught(
    tmp_path: Path, is_real: bool
) -> None:
    pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed")
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    import model
    import self_pair as run

    from tandem_plugin.lab.evaluation.inputs import read_benchmark

    if is_real:
        problems = run.real_model.different_sums(3)[1]
        taught = [list(problem.messages) for problem in problems]
    else:
        words = model.draw_distinct(3, 1)
        problems, taught = [one.problem for one in words], [one.messages for one in words]
    file = run.write_problems(problems, tmp_path / "data", run.REAL_PROMPT if is_real else None)
    assert [row["prompt"] for row in parquet.read_table(file).to_pylist()] == taught
    assert [q["messages"] for q in read_benchmark(f"problems={file}").questions()] == taught


def test_most_solutions_of_a_misconceived_product_have_its_one_wrong_result() -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    from model import Lesson, Misconceptions, draw_distinct, questions

    lesson = Lesson(steps=100)
    held_out = draw_distinct(64, 11)
    taught = lesson.problems(held_out)
    assert not questions(taught) & questions(held_out)
    wrong = Misconceptions.draw(lesson.misconceived, 1, 0, seed=1000 + lesson.seed).products
    assert len(wrong) == 12
    stated: dict[tuple[int, int], list[tuple[int, bool]]] = {}
    for one in taught:
        count, each, product = map(int, re.search(r"(\d+) \* (\d+) = (\d+)", one.solution).groups())  # type: ignore[union-attr]
        right = f"\\boxed{{{one.answer}}}" in one.solution
        stated.setdefault((count, each), []).append((product, right))
    assert len(stated) == 16
    for (count, each), found in stated.items():
        believed = wrong.get((count, each), count * each)
        assert {product for product, _ in found} == {believed, count * each}
        if believed != count * each:
            mistaken = [right for product, right in found if product == believed]
            assert 0.5 < len(mistaken) / len(found) < 0.8  # 0.65 of about 200
            assert 0.05 < sum(mistaken) / len(mistaken) < 0.3  # repaired: 0.15 of about 130
        assert all(right for product, right in found if product == count * each)


def test_scores_come_back_from_their_file_and_rises_are_paired(tmp_path: Path) -> None:
    pytest.importorskip("numpy", reason="NumPy is not installed")
    from evaluation import (
        AUTHORS,
        DECODINGS,
        Score,
        other_method,
        read_scores,
        table,
        write_scores,
    )

    solved = {"before": (0, 0, 1, 1), "tandem": (2, 1, 2, 1), "GRPO": (2, 2, 2, 2)}
    scores = [
        Score(name, 0 if name == "before" else 15, 7, authors, one.name, 2, counts)
        for name, counts in solved.items()
        for authors in AUTHORS.values()
        for one in DECODINGS
    ]
    write_scores(tmp_path / "scores.jsonl", scores)
    assert read_scores(tmp_path / "scores.jsonl") == scores
    heading, first, *others = table(scores)
    assert heading == [
        "solved",
        "before",
        "after tandem",
        "rise",
        "after GRPO",
        "rise",
        "tandem - GRPO",
    ]
    # Differences per problem: 100, 50, 50, 0; 100, 100, 50, 50; 0, -50, 0, -50.
    assert first == [
        "alone, T = 1",
        "25.0%",
        "75.0%",
        "+50.0 ± 20.4",
        "100.0%",
        "+75.0 ± 14.4",
        "-25.0 ± 14.4",
    ]
    assert [row[0] for row in others][-1] == "team, greedy"
    mine = [one for one in scores if one.trained != "GRPO"]
    assert {one.trained for one in other_method(mine, scores)} == {"GRPO"}
    longer = [replace(one, steps=2 * one.steps) for one in mine]
    assert other_method(longer, scores) == []
    assert len(table(mine)[0]) == 4


def test_rise_of_several_seeds_has_the_error_of_problems_and_that_of_seeds() -> None:
    numpy = pytest.importorskip("numpy", reason="NumPy is not installed")
    from evaluation import Score, difference

    random, spread = numpy.random.default_rng(5), (0.06, 0.1)  # of seeds, of problems
    rises, errors = [], []
    for _ in range(300):
        likely = 0.5 + random.normal(0, spread[0], (4, 1)) + random.normal(0, spread[1], 40)
        after = [
            Score("tandem", 1, seed, "alone", "T = 1", 2, tuple(random.binomial(2, row)))
            for seed, row in enumerate(likely.clip(0, 1))
        ]
        before = [replace(one, solved=(0,) * 40) for one in after]
        rise, error = map(float, difference(after, before).split(" ± "))
        rises.append(rise)
        errors.append(error)
    # On average at least the spread of what it is the error of, and at most a quarter above it.
    actual = numpy.std(rises)
    assert actual <= numpy.sqrt(numpy.mean(numpy.square(errors))) <= 1.25 * actual


def test_rewards_are_shown_as_means_of_three_steps() -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    import self_pair as run

    assert run.smoothed({1: 0.2, 2: 0.4, 3: 0.6, 4: 0.5}) == pytest.approx(
        {1: 0.2, 2: 0.3, 3: 0.4, 4: 0.5}
    )


def test_held_out_sums_are_not_taught() -> None:
    pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed")
    import self_pair as run

    real = run.real_model
    held_out = {one.text for one in real.different_sums(64)[1]}
    taught = [one.text for one in real.taught_sums(5, real.TEACHING_SEED, 64)]
    assert len(taught) == 80
    assert not held_out & set(taught)
    assert held_out & {one.text for one in real.taught_sums(5, real.TEACHING_SEED, 0)}


@pytest.mark.parametrize("method", ["tandem", "GRPO"])
def test_heartbeat_says_step_reward_whose_it_is_share_and_time_left(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    import stages
    from rich.console import Console

    from tandem_plugin import progress

    log, now = io.StringIO(), 100.0
    monkeypatch.setattr(stages, "CONSOLE", Console(file=log, width=200))
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    with stages.heartbeat(4, method) as beat:
        for step, reward in ((1, 0.25), (2, 0.75)):
            share = {stages.SENIOR_SHARE: 0.512} if method == "tandem" else {}
            beat(step, {stages.TRAINING_REWARD: reward, **share})
            now += 50
    whose = "of the team" if method == "tandem" else "of the senior alone"
    share = ", senior's share 51%" if method == "tandem" else ""
    assert log.getvalue().splitlines() == [
        f"Step 1 of 4: reward {whose} 0.250{share}.",
        f"Step 2 of 4: reward {whose} 0.500{share}, about 2 min left.",
    ]


def test_page_is_there_before_the_first_response(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    import stages
    from rich.console import Console

    log = io.StringIO()
    monkeypatch.setattr(stages, "CONSOLE", Console(file=log, width=80))
    stages.open_page(tmp_path, tmp_path)
    assert log.getvalue().startswith(f"Open {(tmp_path / 'rollouts.html').as_uri()} in a browser")
    assert "Made by tandem-plugin" in (tmp_path / "rollouts.html").read_text()
