"""SkyRL's trainers in tandem: they train on what was admitted, and say so in their checkpoints."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tandem_plugin.patching.subclasses import Mixin
from tandem_skyrl.batch import SkyRLRun

if TYPE_CHECKING:
    from skyrl.backends.skyrl_train.training_batch import TrainingInputBatch
    from skyrl.train.generators.base import GeneratorOutput

WHITENED = ("reinforce++",)
"""Estimators with advantages that SkyRL whitens over whole responses."""


class TandemTrainer(Mixin):
    """Before a class of SkyRL's trainers."""

    cfg: Any
    all_metrics: dict[str, Any]
    global_step: int
    tokenizer: Any

    def __init__(self, *arguments: Any, tandem: SkyRLRun, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._tandem = tandem
        tandem.note(self._tandem_start)  # while both models are what the engines have
        tandem.trainer = self

    def convert_to_training_input(
        self, generator_output: GeneratorOutput, uids: Sequence[str]
    ) -> TrainingInputBatch:
        """SkyRL's batch of the responses that it trains, which are checked here."""
        self.all_metrics.update(self._tandem.take(generator_output, uids))
        return super().convert_to_training_input(generator_output, uids)

    def compute_advantages_and_returns(self, data: TrainingInputBatch) -> TrainingInputBatch:
        """SkyRL's advantages; those that it whitens, over the senior's tokens alone.

        To whiten what is whitened over other tokens gives the same as to whiten the original.
        """
        data = super().compute_advantages_and_returns(data)
        if self.cfg.trainer.algorithm.advantage_estimator in WHITENED:
            from skyrl.backends.skyrl_train.utils.ppo_utils import masked_whiten

            mask = data["loss_mask"].to(data["advantages"].dtype)
            data["advantages"] = masked_whiten(data["advantages"], mask) * data["response_mask"]
        return data

    def train_critic_and_policy(self, data: TrainingInputBatch) -> Any:
        """SkyRL's update, with the masks that were admitted."""
        self.all_metrics.update(self._tandem.check_batch(data))
        return super().train_critic_and_policy(data)

    async def eval(self, *arguments: Any, **options: Any) -> dict[str, Any]:
        """SkyRL's evaluation by each who answers; the team's metrics begin with ``team/``."""
        metrics: dict[str, Any] = {}
        for validation in self._tandem.validations.passes(self._tandem.config.validation):
            trainer = copy.copy(self)
            trainer.cfg = copy.deepcopy(self.cfg)
            trainer.cfg.trainer.export_path = validation.folder(self.cfg.trainer.export_path)
            self._tandem.answerer = validation.answerer
            measured = await super(TandemTrainer, trainer).eval(*arguments, **options)
            metrics |= validation.named(measured) if validation.is_one_of_several else measured
            accuracy, problems = measured.get("eval/all/avg_score"), len(self.eval_dataset)
            metrics |= validation.add(accuracy, problems, self.global_step)
        self._tandem.forget_validation()
        return metrics

    def save_checkpoints(self) -> str:
        """SkyRL's checkpoint, with a note of its settings."""
        folder: str = super().save_checkpoints()
        self._tandem_write_note(folder)
        return folder

    def save_models(self) -> None:
        """SkyRL's export of the policy, with the same note."""
        super().save_models()
        step = f"global_step_{self.global_step}"
        self._tandem_write_note(f"{self.cfg.trainer.export_path}/{step}/policy")

    def load_checkpoints(self) -> Any:
        """SkyRL's resumption, which logs what changes.

        Raises like :meth:`CheckpointNote.check_resumed`.
        """
        step, folder, *extras = super().load_checkpoints()
        if step > 0:
            self._tandem.note(self._tandem_start).check_resumed(folder)
        return (step, folder, *extras)

    @property
    def _tandem_start(self) -> str:
        """The model that the senior starts from."""
        return str(self.cfg.trainer.policy.model.path)

    def _tandem_write_note(self, folder: str) -> None:
        if "://" not in folder:  # elsewhere than in files
            self._tandem.note(self._tandem_start).write(folder)
