"""The rollouts of TRL's ``GRPOTrainer``: written in tandem, checked, and masked."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.boundaries import Vocabulary
from tandem_plugin.config import TandemConfig
from tandem_plugin.engine.local_models import check_before_start
from tandem_plugin.errors import EngineError
from tandem_plugin.training.refusals import Unproven, check_settings, check_versions
from tandem_plugin.training.rows import masked_log_probs
from tandem_trl.batch import Batch, TRLRun
from tandem_trl.checkpoints import note_checkpoints
from tandem_trl.engine import Engine, TandemPrompt, answered, start_next_engine_in_tandem
from tandem_trl.loss import checked_loss
from tandem_trl.refusals import UNPROVEN, check_trainer

if TYPE_CHECKING:
    from trl import GRPOTrainer
    from trl.generation.vllm_generation import VLLMGeneration


def tandem_rollouts(engine: Mapping[str, Any] | None = None, **settings: Any) -> TandemRollouts:
    """The ``rollout_func`` for the next ``GRPOTrainer`` created in this process.

    settings: :class:`~tandem_plugin.TandemConfig`'s, such as ``schedule="word", p=0.5``. engine:
    arguments of ``vllm.LLM``, which override TRL's own. Raises :class:`ConfigError` for invalid
    settings; the trainer's are checked at its first rollout, before any update.
    """
    return TandemRollouts(TandemConfig.from_mapping(settings), engine or {})


class TandemRollouts:
    """Generates a batch's responses in tandem; TRL trains the senior's tokens alone.

    TRL receives their mask as ``env_mask``, or as the mask of its tool loop.
    """

    def __init__(self, config: TandemConfig, engine: Mapping[str, Any]) -> None:
        unproven = Unproven(config, UNPROVEN)
        check_versions("trl", unproven)
        unproven.log_warnings()
        check_settings(config)
        self.config, self._arguments = config, engine
        self.check_model(engine.get("model"))
        self._generation: VLLMGeneration | None = None
        self._engine: Engine | None = None
        self._tandem: TRLRun | None = None
        self._batch: Batch | None = None
        start_next_engine_in_tandem(config, engine, self._engine_started)

    def check_model(self, model: str | None) -> None:
        """Raise for a senior that the engine would reject, once the trainer has loaded it.

        model: its checkpoint, if it is known; engine options and the junior are always checked.
        Raises like :func:`check_before_start`.
        """
        check_before_start(self.config, model, self._arguments.get)

    def _engine_started(self, generation: VLLMGeneration, engine: Engine | None) -> None:
        self._generation, self._engine = generation, engine

    def __call__(self, prompts: list[Any], trainer: GRPOTrainer) -> dict[str, Any]:
        """One response to each prompt of this process, or its first turn if TRL has tools.

        Raises :class:`ConfigError` for incompatible settings of the trainer, :class:`EngineError`
        if its engine is not in tandem, and like :meth:`TRLRun.take`.
        """
        if not self.has_begun:
            check_trainer(trainer, self.config).log_warnings()
            self.begin(trainer)
            trainer._tool_call_loop = functools.partial(self._tool_loop, trainer._tool_call_loop)
        prompt_ids, *_ = trainer._tokenize_prompts(prompts)
        prompt_ids = self.begin_batch(prompt_ids)
        _, completions, log_probs, _ = trainer.vllm_generation.generate(
            prompts=prompt_ids, images=None, num_generations=1
        )
        log_probs = [[first for first, *_ in tokens] for tokens in log_probs]
        response = {"prompt_ids": prompt_ids, "completion_ids": completions, "logprobs": log_probs}
        if trainer.tools:  # TRL continues with its tool loop, and takes the mask from there
            return response
        mask, response["logprobs"] = self._admitted(prompt_ids, completions, None, log_probs)
        return {**response, "env_mask": mask}

    def _tool_loop(
        self, loop: Callable[..., Any], prompts: Any, prompt_ids: Any, *more: Any
    ) -> tuple[Any, ...]:
        """TRL's tool loop, whose mask keeps the senior's tokens of those that calls wrote.

        Touches: ``_tool_call_loop`` of one ``GRPOTrainer`` (TRL 1.16), which returns the mask, the
        messages, the token ids, the log-probabilities and counts. Why: with tools TRL ignores the
        mask of the rollouts. Goes when: TRL multiplies both.
        """
        mask, messages, completions, log_probs, *counts = loop(prompts, prompt_ids, *more)
        mask, log_probs = self._admitted(prompt_ids, completions, mask, log_probs)
        return (mask, messages, completions, log_probs, *counts)

    def _admitted(
        self, prompt_ids: Any, completions: Any, generated: Any, log_probs: Any
    ) -> tuple[list[list[int]], list[Any]]:
        """The masks of finished responses, and their log-probabilities under them."""
        masks = self.finish_batch(prompt_ids, completions, generated)
        return [mask.astype(int).tolist() for mask in masks], [
            masked_log_probs(one, mask) for one, mask in zip(log_probs, masks, strict=True)
        ]

    def begin(self, trainer: GRPOTrainer) -> None:
        """Verify the engine before the first rollout, and let every loss be checked."""
        generation = trainer.vllm_generation
        if self._generation is None or generation is not self._generation:
            raise EngineError("trl-engine-not-in-tandem")
        vocabulary = Vocabulary.from_tokenizer(trainer.processing_class)
        self._tandem = TRLRun.start(self.config, vocabulary, trainer, self._engine)
        know_ends(trainer, self._tandem.engine_ends())
        note_checkpoints(self._tandem, trainer)
        options = generation.generation_kwargs
        extra = {**(options.get("extra_args") or {}), **(options.get("vllm_xargs") or {})}
        generation.generate = functools.partial(answered, generation.generate, extra.get("tandem"))
        trainer.compute_loss = functools.partial(
            checked_loss, self._tandem.check_loss, trainer.compute_loss
        )

    def begin_batch(self, prompt_ids: Sequence[Sequence[int]]) -> list[TandemPrompt]:
        """This process's prompts of the next generation, each of which knows its row."""
        self._batch = self.run.begin_batch(len(prompt_ids))
        pairs = zip(prompt_ids, self._batch.trajectories, strict=True)
        return [TandemPrompt(ids, trajectory) for ids, trajectory in pairs]

    def finish_batch(
        self, prompt_ids: Any, completions: Any, generated: Any = None
    ) -> list[NDArray[np.bool_]]:
        """The tokens to train of each finished response: bool ``[length]``.

        generated: 1 for each token of a response that a call wrote, 0 for feedback; None if there
        is no feedback. Raises like :meth:`TRLRun.take`.
        """
        if self._batch is None:
            raise EngineError("trl-batch-taken-twice")
        batch, self._batch = self._batch, None
        prompt_ids = [list(ids) for ids in prompt_ids]
        rows = batch.rows(prompt_ids, completions, generated or [[1] * len(c) for c in completions])
        self.run.take(batch, prompt_ids, rows)
        return [row.response_mask for row in rows]

    @property
    def has_begun(self) -> bool:
        """Whether :meth:`begin` was called."""
        return self._tandem is not None

    @property
    def run(self) -> TRLRun:
        """The run, once it began."""
        assert self._tandem is not None
        return self._tandem


def know_ends(trainer: GRPOTrainer, added: Iterable[int]) -> None:
    """Let TRL know the junior's ends, at which the engine ends responses as well.

    It counts a response that ends otherwise as truncated, and ``mask_truncated_completions`` keeps
    those out of training. Touches: ``eos_token_ids`` of one ``GRPOTrainer`` (TRL 1.16). Goes when:
    TRL takes a response's reason to finish from the engine.
    """
    trainer.eos_token_ids = [*trainer.eos_token_ids, *sorted(added)]
