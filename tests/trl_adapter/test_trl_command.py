"""``python -m tandem_trl.grpo``: its arguments, its trainer and its reward."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from refused import refused

from tandem_plugin.training.command import split_arguments

README = Path(__file__).parents[2] / "README.md"


def test_trl_reads_its_part_of_the_readmes_command():
    pytest.importorskip("trl", reason="TRL is not installed")
    from trl.scripts.grpo import make_parser

    text = README.read_text(encoding="utf-8").replace("\\\n", " ")
    (command,) = re.findall(r"^python -m tandem_trl\.grpo (.*)$", text, re.MULTILINE)
    settings, others = split_arguments(shlex.split(command))
    assert settings == {"schedule": "word", "rollouts": "runs/trl/rollouts"}
    cpu = ["--use_cpu", "True", "--bf16", "False"]
    script, training, model, _ = make_parser().parse_args_and_config([*others, *cpu])[:4]
    assert model.model_name_or_path == "Qwen/Qwen2.5-0.5B-Instruct"
    assert (training.max_completion_length, training.max_steps) == (512, 100)
    assert (training.vllm_mode, training.use_vllm) == ("colocate", True)
    assert script.reward_funcs == ["tandem_plugin.grading.rewards.trl_reward.math_reward"]


@pytest.mark.parametrize("arguments", [["--max_steps", "1"], ["--tandem.engine", '{"a": 1}']])
def test_command_without_settings_is_rejected(arguments: list[str]) -> None:
    pytest.importorskip("trl", reason="TRL is not installed")
    pytest.importorskip("vllm", reason="vLLM is not installed")
    from tandem_trl.grpo import prepare

    with refused("TP426"):
        prepare(arguments)


def test_command_gives_trls_script_a_trainer_in_tandem(monkeypatch: pytest.MonkeyPatch) -> None:
    trl = pytest.importorskip("trl", reason="TRL is not installed")
    pytest.importorskip("vllm", reason="vLLM is not installed")
    from tandem_trl import engine
    from tandem_trl.grpo import prepare

    original = trl.GRPOTrainer
    monkeypatch.setattr(trl, "GRPOTrainer", original)
    monkeypatch.setattr(engine, "_next", [])
    others = prepare(["--tandem.schedule=word", "--tandem.p", "0.25", "--max_steps", "1"])
    assert others == ["--max_steps", "1"]
    assert trl.GRPOTrainer.func is original
    rollouts = trl.GRPOTrainer.keywords["rollout_func"]
    assert rollouts.config.parameters == {"p": 0.25}
    assert len(engine._next) == 1


def test_rewards_are_those_of_the_columns_that_a_data_set_has() -> None:
    pytest.importorskip("sympy", reason="SymPy is not installed")
    from tandem_plugin.grading.rewards.trl_reward import math_reward

    texts = ["so \\boxed{4}", "so \\boxed{5}", "nothing"]
    chats = [[{"role": "assistant", "content": text}] for text in texts]
    logged: dict[str, float] = {}
    golds = {"reward_model": [{"ground_truth": "4"}] * 3}
    assert math_reward(chats, log_metric=logged.__setitem__, **golds) == [1.0, 0.0, 0.0]
    assert logged["grading/correct"] == pytest.approx(1 / 3)
    assert logged["grading/no_answer"] == pytest.approx(1 / 3)
    assert math_reward(texts, answer=["4", "5", "6"]) == [1.0, 1.0, 0.0]
    with refused("TP727", columns="question"):
        math_reward(texts, question=["a", "b", "c"])
