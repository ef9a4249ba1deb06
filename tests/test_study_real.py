"""The study's part with verl: the reference that KL-Reg is anchored to."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1] / "examples" / "study"))

torch = pytest.importorskip("torch", reason="the models are PyTorch's")
pytest.importorskip("transformers", reason="the models are Hugging Face checkpoints")
verl_config = pytest.importorskip("verl.workers.config", reason="the reference is verl's")

from light.model import LanguageModel, Shape, save_model  # noqa: E402
from light.task import Task  # noqa: E402
from real.junior_reference import REFERENCE, use_junior  # noqa: E402
from real.methods import METHODS  # noqa: E402


class Worker:
    """verl's worker, of which the configuration is all that is looked at."""

    def __init__(self, config: Any) -> None:
        self.config = config


def test_reference_is_the_junior_and_the_actor_stays_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    task = Task()
    for name, width in (("senior", 64), ("junior", 32)):
        save_model(LanguageModel(Shape(task.size, width)), task.tokenizer, tmp_path / name)
    monkeypatch.setenv(REFERENCE, str(tmp_path / "junior"))
    module: Any = SimpleNamespace(TrainingWorker=Worker, ActorRolloutRefWorker=type("W", (), {}))
    use_junior(module)
    actor = verl_config.HFModelConfig(path=str(tmp_path / "senior"))
    config = verl_config.TrainingWorkerConfig(model_type="language_model", model_config=actor)
    reference = module.ActorRolloutRefWorker.ref_worker_cls(config).config.model_config
    assert reference.local_path == str(tmp_path / "junior")
    assert reference.hf_config.hidden_size == 32
    assert actor.local_path == str(tmp_path / "senior")
    assert actor.hf_config.hidden_size == 64


def test_hook_is_where_verl_makes_its_reference():
    workers = pytest.importorskip("verl.workers.engine_workers", reason="the reference is verl's")
    assert workers.ActorRolloutRefWorker.ref_worker_cls is workers.TrainingWorker


def test_methods_differ_in_their_own_settings_alone(tmp_path: Path):
    assert METHODS["GRPO"].settings(tmp_path) == ()
    assert not METHODS["GRPO"].environment(tmp_path)
    assert not METHODS["TRL"].environment(tmp_path)
    assert METHODS["KL-Reg 0.05"].environment(tmp_path)[REFERENCE] == str(tmp_path)
    assert any("kl_loss_coef=0.05" in one for one in METHODS["KL-Reg 0.05"].settings(tmp_path))
    assert sum("additional_config.tandem" in one for one in METHODS["TRL"].settings(tmp_path)) == 3
