"""OpenRLHF's trainers go on with tandem's parts only, in engines that run in tandem."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from refused import refused

from tandem_openrlhf.batch import OpenRLHFRun
from tandem_openrlhf.numbering import Numbering
from tandem_openrlhf.patches.generation import Generator, ResumedGenerator
from tandem_openrlhf.patches.loss import ImitatingTrainer, Imitation
from tandem_openrlhf.patches.training import Maker, Policy, SynchronousTrainer, Trainer
from tandem_plugin import TandemConfig, TandemRules, Vocabulary
from tandem_plugin.training.checkpoint_note import NOTE


class Foreign:
    """Stands for a class of OpenRLHF's whose parts are not tandem's."""

    experience_maker = samples_generator = trainer = None
    begun = False

    def init_checkpoint_states(self) -> Any: ...

    def train_step(self, samples: Any) -> Any: ...

    def save_logs_and_checkpoints(self, step: int) -> None: ...

    def save_best_checkpoint(self, metrics: Any, step: int) -> None: ...

    def evaluate(self) -> Any: ...

    def init_model_from_pretrained(self) -> None: ...

    def fit(self, episode: int, total_consumed_prompts: int) -> None:
        self.begun = True


@pytest.mark.parametrize("ours", [Trainer, SynchronousTrainer])
def test_trainer_without_tandems_check_of_batches_stops(ours: type) -> None:
    with refused("trainer-class-replaced"):
        ours.tandem_over(Foreign)()


def test_generator_and_policy_that_are_not_tandems_stop() -> None:
    generating = ResumedGenerator.tandem_over(Foreign)()
    with refused("trainer-class-replaced"):
        generating.fit(1, 12)
    assert not generating.begun
    with refused("trainer-class-replaced"):
        Policy.tandem_over(Foreign)().init_model_from_pretrained()


def started(**settings: Any) -> OpenRLHFRun:
    arguments = SimpleNamespace(rollout=SimpleNamespace(n_samples_per_prompt=4))
    config = TandemConfig.from_mapping({"schedule": "word", "seed": 3, **settings})
    return OpenRLHFRun.start(TandemRules(config, Vocabulary(("a", "Ġb"), "a test")), arguments)


class Resumed:
    """OpenRLHF's trainer at a checkpoint behind step 3, with 12 prompts drawn."""

    def __init__(self, place: Path = Path("nowhere"), start: str = "A/base") -> None:
        self.args = SimpleNamespace(
            ckpt=SimpleNamespace(path=str(place), output_dir=str(place / "last")),
            actor=SimpleNamespace(model_name_or_path=start),
        )
        self.vllm_engines: list[Any] = []
        self.tokenizer = SimpleNamespace(decode=str)
        self.experience_maker = object.__new__(Maker)
        self.experience_maker.tandem = started()
        self.samples_generator = object.__new__(Generator)
        self.samples_generator.numbering = Numbering()

    def init_checkpoint_states(self) -> dict[str, int]:
        return {"total_consumed_prompts": 12, "global_step": 3}

    def train_step(self, samples: Any) -> tuple[dict[str, float], int]:
        return {}, 4

    def fit(self, global_step: int = 0) -> None: ...

    def evaluate(self) -> Any: ...

    def save_logs_and_checkpoints(self, global_step: int) -> None:
        self._save(f"global_step{global_step}")

    def save_best_checkpoint(self, metrics: Any, global_step: int) -> None:
        if metrics:  # the best so far
            self._save(f"best_global_step{global_step}")

    def _save(self, tag: str) -> None:
        """As DeepSpeed does, and beside it the senior's export."""
        place = Path(self.args.ckpt.path)
        for folder in (place / "_actor" / tag, place / f"{tag}_hf"):
            folder.mkdir(parents=True)
        (place / "_actor" / "latest").write_text(tag)


@pytest.mark.parametrize("ours", [Trainer, SynchronousTrainer])
def test_checkpoints_and_exports_say_with_which_settings_they_were_made(
    ours: type, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = ours.tandem_over(Resumed)(tmp_path)
    trainer.save_logs_and_checkpoints(3)
    trainer.save_best_checkpoint({"acc": 1}, 4)
    trainer.save_best_checkpoint({}, 5)
    trainer.fit()
    noted = {str(file.parent.relative_to(tmp_path)) for file in tmp_path.rglob(NOTE)}
    tags = ("global_step3", "best_global_step4")
    assert noted == {"last", *(f"_actor/{tag}" for tag in tags), *(f"{tag}_hf" for tag in tags)}

    def resumed(start: str = "A/base", **settings: Any) -> str:
        later = ours.tandem_over(Resumed)(tmp_path, start)
        later.experience_maker.tandem = started(**settings)
        capsys.readouterr()
        if ours is SynchronousTrainer:
            later.init_checkpoint_states()
        else:
            later.fit(3)
        return capsys.readouterr().out

    assert resumed() == ""
    assert "with changes: p=0.25 (was null); fingerprint=" in resumed(p=0.25)
    with refused("checkpoint-tandem-dropped", junior="A/base"):
        resumed("A/trained")


def test_prompts_are_numbered_on_from_a_checkpoint_for_the_step_that_follows() -> None:
    trainer = SynchronousTrainer.tandem_over(Resumed)()
    trainer.init_checkpoint_states()
    assert trainer.samples_generator.numbering == Numbering(next_prompt=12, step=4)
    trainer.train_step([])
    assert trainer.samples_generator.numbering == Numbering(next_prompt=12, step=5)


class Spending:
    """OpenRLHF's trainer, whose step has no forward pass."""

    def __init__(self) -> None:
        self.actor = SimpleNamespace(forward=None)
        self.strategy = SimpleNamespace(backward=lambda loss: None)

    def training_step(self, experience: Any, kl_ctl: float, step: int) -> Any:
        self.strategy.backward(0.0)
        return {"metrics": {}, "weights": {}}


def test_loss_that_is_spent_without_the_juniors_log_probabilities_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    imitation = Imitation(0.5, mask=None, tokens=4, ranks=1)
    monkeypatch.setattr(ImitatingTrainer, "_tandem_imitation", lambda *_: imitation)
    with refused("openrlhf-junior-logprobs-missing", lambda_jun=0.5):
        ImitatingTrainer.tandem_over(Spending)().training_step(None, 0.0, 0)
