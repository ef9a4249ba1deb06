"""The rollouts of TRL's ``GRPOTrainer``: written in tandem, checked, and masked."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tandem_plugin.config import TandemConfig
from tandem_plugin.errors import EngineError
from tandem_plugin.patching.in_place import Framework
from tandem_plugin.patching.wrapping import wrap_once
from tandem_plugin.rules import TandemRules
from tandem_plugin.training.calls import NarrowedResponse, Response
from tandem_trl.batch import Batch, TRLRun
from tandem_trl.checkpoints import note_checkpoints
from tandem_trl.engine import Engine, TandemPrompt, answered, start_next_engine_in_tandem
from tandem_trl.loss import checked_loss
from tandem_trl.start import GRPOSettings, TRLSettings

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
        self.config, self._arguments = config, engine
        self._start = TRLSettings.begin(config)
        self._start.check_models(engine.get("model"), engine.get)
        self._settings: TRLSettings | None = None
        self._generation: VLLMGeneration | None = None
        self._engine: Engine | None = None
        self._tandem: TRLRun | None = None
        self._batch: Batch | None = None
        self._shown: list[Any] | None = None
        """The images of each prompt of the current generation; None without any."""
        self._fields: Mapping[str, Any] = {}
        """What TRL's processor made of them."""
        check_grpo_trainers_at_creation()
        Framework("TRL").put()
        start_next_engine_in_tandem(config, engine, self._check_model, self._engine_started)

    def check(
        self, kind: type[TRLSettings], args: Any, model: Any, trainer: Any, **options: Any
    ) -> None:
        """Check a trainer's settings, before a model is loaded or once more is known.

        kind: of the trainer. model: its name or the model itself. trainer: it, or its class before
        it exists. options: further ones of :meth:`TRLSettings.of`. Raises like :meth:`Start.check`.
        """
        name = model if isinstance(model, str) else getattr(model, "name_or_path", None)
        settings = kind.of(args, self._arguments, name, trainer, **options)
        self._start.check(settings)
        self._settings = settings

    def _check_model(self, model: Any, sampled: Mapping[str, Any]) -> None:
        """Check the trainer's model and how it samples, before its engine starts.

        The rest of its settings follows at its first rollout if a user's function calls this one.
        """
        settings = self._settings or TRLSettings.of(None, self._arguments, None)
        self._start.check(settings.with_model(model, sampling=sampled))

    def _engine_started(self, generation: VLLMGeneration, engine: Engine | None) -> None:
        self._generation, self._engine = generation, engine

    def __call__(self, prompts: list[Any], trainer: GRPOTrainer) -> dict[str, Any]:
        """One response to each prompt of this process, or its first turn if TRL has tools.

        Raises :class:`ConfigError` for incompatible settings of the trainer, :class:`EngineError`
        if its engine is not in tandem, and like :meth:`TRLRun.take`.
        """
        if not self.has_begun:
            self.begin(GRPOSettings, trainer)
            trainer._tool_call_loop = functools.partial(self._tool_loop, trainer._tool_call_loop)
        prompt_ids, self._shown, self._fields = trainer._tokenize_prompts(prompts)
        prompt_ids = self.begin_batch(prompt_ids)
        _, completions, log_probs, _ = trainer.vllm_generation.generate(
            prompts=prompt_ids, images=self._shown, num_generations=1
        )
        log_probs = [[first for first, *_ in tokens] for tokens in log_probs]
        response = {"prompt_ids": prompt_ids, "completion_ids": completions, "logprobs": log_probs}
        if trainer.tools:  # TRL continues with its tool loop, and takes the mask from there
            return response
        masks = [[1] * len(tokens) for tokens in completions]
        masks, response["logprobs"] = self._narrowed(prompt_ids, completions, masks, log_probs)
        return {**response, "env_mask": masks}

    def with_images(self, generate: Callable[..., Any], prompts: Any) -> tuple[Any, ...]:
        """TRL's generation, with the images of prompts and tools for its losses.

        Touches: ``_generate`` of one ``GRPOTrainer`` (TRL 1.16), which returns both last. Why: TRL
        takes what a rollout function was sent for text. Goes when: it takes images from its output.
        """
        *returned, images, of_tools = generate(prompts)
        shown, self._shown = self._shown, None
        if shown is not None:
            turns = zip(shown, of_tools or [[]] * len(shown), strict=True)
            images = [[*(first or ()), *later] or None for first, later in turns]
        return (*returned, images, of_tools)

    def _tool_loop(
        self,
        loop: Callable[..., Any],
        prompts: Any,
        prompt_ids: Any,
        completion_ids: Any,
        completions: Any,
        log_probs: Any,
        *_: Any,
    ) -> tuple[Any, ...]:
        """TRL's tool loop; of what calls wrote, its mask keeps the senior's tokens.

        Its calls see the images of the first turn as well, which TRL's own loop would not.

        Touches: ``_tool_call_loop`` of one ``GRPOTrainer`` (TRL 1.16), which returns the mask, the
        messages, the token ids, the log-probabilities and counts. Why: with tools TRL ignores the
        mask of the rollouts. Goes when: TRL multiplies both.
        """
        turn = (completion_ids, completions, log_probs, self._shown, self._fields)
        mask, messages, written, log_probs, *counts = loop(prompts, prompt_ids, *turn)
        mask, log_probs = self._narrowed(prompt_ids, written, mask, log_probs)
        return (mask, messages, written, log_probs, *counts)

    def _narrowed(self, *columns: Any) -> tuple[list[list[int]], list[Any]]:
        """The masks of finished responses, and their log-probabilities under them.

        columns: of :class:`Response`'s fields.
        """
        responses = [Response(*fields) for fields in zip(*columns, strict=True)]
        finished = self.finish_batch(responses)
        return [response.mask_list for response in finished], [
            response.log_probs for response in finished
        ]

    def begin(self, kind: type[TRLSettings], trainer: GRPOTrainer) -> None:
        """Verify the engine before the first rollout, and let every loss be checked."""
        generation = trainer.vllm_generation
        if self._generation is None or generation is not self._generation:
            raise EngineError("trl-engine-not-in-tandem")
        resumes = bool(trainer.state.global_step)
        self.check(kind, trainer.args, trainer.model, trainer, tools=trainer.tools, resumes=resumes)
        rules = TandemRules.from_tokenizer(self.config, trainer.processing_class)
        self._tandem = TRLRun.start(rules, trainer, self._engine)
        know_ends(trainer, self._tandem.engine_ends())
        note_checkpoints(self._tandem, trainer)
        options = generation.generation_kwargs
        extra = {**(options.get("extra_args") or {}), **(options.get("vllm_xargs") or {})}
        generation.generate = functools.partial(answered, generation.generate, extra)
        trainer.compute_loss = functools.partial(
            checked_loss, self._tandem.check_loss, trainer.compute_loss
        )
        trainer._calculate_rewards = functools.partial(
            self._tandem.keep_golds, trainer._calculate_rewards
        )
        trainer.log = functools.partial(self._tandem.log_validation, trainer.log)

    def begin_batch(self, prompt_ids: Sequence[Sequence[int]]) -> list[TandemPrompt]:
        """This process's prompts of the next generation; each knows its row."""
        self._batch = self.run.begin_batch(len(prompt_ids))
        pairs = zip(prompt_ids, self._batch.trajectories, strict=True)
        return [TandemPrompt(ids, trajectory) for ids, trajectory in pairs]

    def finish_batch(self, responses: Sequence[Response]) -> list[NarrowedResponse]:
        """The finished responses of this process, each with the senior's tokens alone to train.

        Their masks are false for feedback, which no call wrote. Raises like :meth:`TRLRun.take`.
        """
        if self._batch is None:
            raise EngineError("trl-batch-taken-twice")
        batch, self._batch = self._batch, None
        finished = batch.narrow(responses)
        rows = [batch.row(number, response) for number, response in enumerate(finished)]
        self.run.take(batch, [list(response.prompt_ids) for response in responses], rows)
        return finished

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


def check_grpo_trainers_at_creation() -> None:
    """Let a ``GRPOTrainer`` with rollouts in tandem be checked before it loads a model.

    And let its first generation be followed already: :meth:`TandemRollouts.with_images`. Touches:
    ``GRPOTrainer.__init__`` (TRL 1.16); repeatable. Why: a rollout function sees the trainer at its
    first rollout, when both models are loaded. Goes when: TRL shows a rollout function its trainer
    at creation.
    """
    from trl import GRPOTrainer

    names = inspect.signature(GRPOTrainer.__init__)

    def created(create: Callable[..., None], trainer: Any, *args: Any, **options: Any) -> None:
        bound = names.bind_partial(trainer, *args, **options).arguments
        rollouts = bound.get("rollout_func")
        if not isinstance(rollouts, TandemRollouts):
            create(trainer, *args, **options)
            return
        tools, kind = bound.get("tools"), type(trainer)
        rollouts.check(GRPOSettings, bound.get("args"), bound.get("model"), kind, tools=tools)
        create(trainer, *args, **options)
        trainer._generate = functools.partial(rollouts.with_images, trainer._generate)

    wrap_once(GRPOTrainer, "__init__", created)
