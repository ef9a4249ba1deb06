"""The rollouts of TRL's ``GRPOTrainer``: written in tandem, checked, and masked."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tandem_plugin.boundaries import Vocabulary
from tandem_plugin.config import TandemConfig
from tandem_plugin.engine.generation_ends import added_ends
from tandem_plugin.engine.local_models import check_before_start
from tandem_plugin.errors import EngineError
from tandem_plugin.training.refusals import Unproven, check_settings, check_versions
from tandem_plugin.training.rows import masked_log_probs
from tandem_trl.batch import TRLRun
from tandem_trl.checkpoints import note_checkpoints
from tandem_trl.engine import LLMInTandem, start_next_engine_in_tandem
from tandem_trl.loss import checked_loss
from tandem_trl.refusals import UNPROVEN, check_trainer

if TYPE_CHECKING:
    from trl import GRPOTrainer


def tandem_rollouts(engine: Mapping[str, Any] | None = None, **settings: Any) -> TandemRollouts:
    """The ``rollout_func`` for the next ``GRPOTrainer`` created in this process.

    settings: :class:`~tandem_plugin.TandemConfig`'s, such as ``schedule="word", p=0.5``. engine:
    arguments of ``vllm.LLM``, which override TRL's own. Raises :class:`ConfigError` for invalid
    settings; the trainer's are checked at its first rollout, before any update.
    """
    return TandemRollouts(TandemConfig.from_mapping(settings), engine or {})


class TandemRollouts:
    """Generates a batch's responses in tandem; TRL receives the senior's tokens as ``env_mask``."""

    def __init__(self, config: TandemConfig, engine: Mapping[str, Any]) -> None:
        unproven = Unproven(config, UNPROVEN)
        check_versions("trl", unproven)
        unproven.log_warnings()
        check_settings(config)
        self.config, self._arguments = config, engine
        self.check_model(engine.get("model"))
        self._engine: LLMInTandem | None = None
        self._tandem: TRLRun | None = None
        start_next_engine_in_tandem(config, engine, self._engine_started)

    def check_model(self, model: str | None) -> None:
        """Raise for a senior that the engine would reject, once the trainer has loaded it.

        model: its checkpoint, if it is known; engine options and the junior are always checked.
        Raises like :func:`check_before_start`.
        """
        check_before_start(self.config, model, self._arguments.get)

    def _engine_started(self, engine: LLMInTandem) -> None:
        self._engine = engine

    def __call__(self, prompts: list[Any], trainer: GRPOTrainer) -> dict[str, Any]:
        """One response to each prompt of this process, as TRL requests them.

        Raises :class:`ConfigError` for incompatible settings of the trainer, :class:`EngineError`
        if its engine is not in tandem, and like :meth:`TRLRun.take`.
        """
        tandem = self._tandem or self._begin(trainer)
        prompt_ids, *_ = trainer._tokenize_prompts(prompts)
        batch = tandem.begin_batch(len(prompt_ids))
        tandem.engine.trajectories = batch.trajectories
        _, completions, log_probs, _ = trainer.vllm_generation.generate(
            prompts=prompt_ids, images=None, num_generations=batch.group_size
        )
        rows = batch.rows(prompt_ids, completions, [[1] * len(one) for one in completions])
        tandem.take(batch, prompt_ids, rows)
        response = {
            "prompt_ids": prompt_ids,
            "completion_ids": [row.response_ids.tolist() for row in rows],
            "logprobs": [
                masked_log_probs([first for first, *_ in tokens], row.response_mask)
                for tokens, row in zip(log_probs, rows, strict=True)
            ],
        }
        if batch.by_team:
            response["env_mask"] = [row.response_mask.astype(int).tolist() for row in rows]
        return response

    def _begin(self, trainer: GRPOTrainer) -> TRLRun:
        """Verify the setup before the first rollout."""
        check_trainer(trainer, self.config).log_warnings()
        if self._engine is None or trainer.vllm_generation.llm is not self._engine:
            raise EngineError("trl-engine-not-in-tandem")
        know_ends(trainer, self._engine)
        vocabulary = Vocabulary.from_tokenizer(trainer.processing_class)
        self._tandem = TRLRun.start(self.config, vocabulary, trainer, self._engine)
        note_checkpoints(self._tandem, trainer)
        trainer.compute_loss = functools.partial(
            checked_loss, self._tandem.check_loss, trainer.compute_loss
        )
        return self._tandem


def know_ends(trainer: GRPOTrainer, engine: LLMInTandem) -> None:
    """Let TRL know the junior's ends, at which the engine ends responses as well.

    It counts a response that ends otherwise as truncated, and ``mask_truncated_completions`` keeps
    those out of training. Touches: ``eos_token_ids`` of one ``GRPOTrainer`` (TRL 1.16). Goes when:
    TRL takes a response's reason to finish from the engine.
    """
    added = added_ends(engine.llm_engine.vllm_config)
    trainer.eos_token_ids = [*trainer.eos_token_ids, *sorted(added)]
