"""What a demo that was killed leaves behind, and the problems of the one with a real model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[2] / "examples" / "demo"))


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


def test_sums_of_the_real_model_are_right_and_held_out_ones_are_not_trained_on() -> None:
    pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed")
    import run

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
    import run

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
    import run

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
