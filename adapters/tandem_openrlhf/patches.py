"""Every touch on OpenRLHF's internals, each with what, which versions, why and when it can go.

A patch waits for its module to be imported, so that it costs a process that never imports it
nothing. Patches are put in place only in the processes of a run in tandem
(:mod:`~tandem_openrlhf.ray_job`); one that fails there fails the import, and with it the run. All
were written against OpenRLHF 0.11.2. :data:`PATCHES` lists them; a test holds the list against it.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import make_dataclass
from types import ModuleType
from typing import Any

from tandem_openrlhf.imitation import TOKENS, Imitation, counted_windows, dynamic_counts
from tandem_openrlhf.places import Numbering, placed, taken_place, without_place
from tandem_openrlhf.presence import FRAMEWORK, MEND, confirm_in_actors
from tandem_openrlhf.refusals import check_models, check_run, check_versions
from tandem_openrlhf.settings import VARIABLE, tandem_config
from tandem_openrlhf.trainer import TandemTrainer
from tandem_openrlhf.trajectory import FACTS, narrowed, start_trajectory
from tandem_openrlhf.validation import ANSWERER, named_metrics
from tandem_plugin.boundaries import Vocabulary
from tandem_plugin.config import TandemConfig
from tandem_plugin.engine.names import TELL_OF_DRAFTS
from tandem_plugin.errors import EngineError
from tandem_plugin.patching.in_place import put_in_place
from tandem_plugin.patching.wrapping import wrap_once
from tandem_plugin.rules import TandemRules
from tandem_plugin.training.fields import JUNIOR_MASK
from tandem_plugin.training.imitation import IMITATION_METRIC
from tandem_plugin.training.validation import answerers

__all__ = ["PATCHES", "apply"]

_NO_TOKENS = 1e-30
"""Stands for no trained token where OpenRLHF divides by their number: it changes no other sum."""

_in_trajectory: ContextVar[bool] = ContextVar("in_trajectory", default=False)


def apply() -> None:
    """Put every patch in place, now or when its module is imported; repeatable.

    Raises :class:`ConfigError` for an OpenRLHF that the adapter was not tested with, and
    :class:`EngineError` for one without a module that is patched.
    """
    check_versions()
    put_in_place(FRAMEWORK, PATCHES, MEND)


def _config() -> TandemConfig:
    config = tandem_config()
    if config is None:
        raise EngineError(
            f"{VARIABLE} is not set in this process, though the job runs in tandem: something "
            "removed it from the job's runtime environment."
        )
    return config


def refuse_at_the_driver(module: ModuleType) -> None:
    """Check a run's arguments before any model is loaded.

    Touches: ``DeepspeedStrategy.__init__``, which the driver calls first with the parsed arguments.
    Goes when: OpenRLHF lets plugins validate arguments.
    """

    def init(original: Callable[..., Any], strategy: Any, *rest: Any, **more: Any) -> None:
        original(strategy, *rest, **more)
        check_run(strategy.args, _config())
        check_models(strategy.args, _config())

    wrap_once(module.DeepspeedStrategy, "__init__", init)


def add_the_imitation_term(module: ModuleType) -> None:
    """Add the junior-imitation term to the loss that a micro-batch is about to spend.

    Touches: ``DeepspeedStrategy.backward``. Goes when: :func:`count_the_juniors_tokens` does.
    """

    def backward(
        original: Callable[..., Any], strategy: Any, loss: Any, *rest: Any, **more: Any
    ) -> Any:
        imitation = Imitation.current()
        if imitation is not None:
            loss = imitation.added_to(loss)
        return original(strategy, loss, *rest, **more)

    if _config().lambda_jun:
        wrap_once(module.DeepspeedStrategy, "backward", backward)


def ask_the_engines_for_tandem(module: ModuleType) -> None:
    """Give every engine tandem's settings among its arguments; let one that drafts say how it goes.

    Touches: ``RolloutRayActor`` as ``create_vllm_engines`` finds it in its module; the actor hands
    its keywords to vLLM's ``AsyncEngineArgs``, and gets one method more. Goes when: OpenRLHF passes
    engine arguments on, and a call to the engine's workers with its answer.
    """
    if isinstance(module.RolloutRayActor, _AskingActor):
        return
    actor = module.RolloutRayActor
    if _config().mode == "speculative":
        import ray

        own = actor.__ray_metadata__.modified_class.__ray_actor_class__
        members = {"__module__": own.__module__, "__doc__": own.__doc__, "tandem_drafted": _drafted}
        actor = ray.remote(type(own.__name__, (own,), members))
    module.RolloutRayActor = _AskingActor(actor)  # type: ignore[attr-defined]


async def _drafted(actor: Any) -> dict[str, int]:
    """What became of an engine's drafts."""
    workers = await actor.llm.collective_rpc(TELL_OF_DRAFTS)
    return dict(workers[0])


class _AskingActor:
    """Stands before a Ray actor class: what it starts is asked for tandem."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._actor, name)

    def options(self, **options: Any) -> _AskingActor:
        return _AskingActor(self._actor.options(**options))

    def remote(self, **arguments: Any) -> Any:
        additional = {**(arguments.get("additional_config") or {})}
        additional["tandem"] = _config().settings()
        return self._actor.remote(**{**arguments, "additional_config": additional})


def run_executors_in_tandem(module: ModuleType) -> None:
    """Send every trajectory's calls out with tandem requests; bring its response back narrowed.

    Touches: ``execute`` of ``SingleTurnAgentExecutor``, ``MultiTurnAgentExecutor`` and of every
    executor that a user's agent file derives, through ``AgentExecutorBase.__init_subclass__``. Why:
    whatever an agent does, it does with the engine it is given there and says in what it returns.
    Goes when: OpenRLHF lets plugins wrap the engine and the response of executors.
    """
    base = module.AgentExecutorBase

    def init_subclass(kind: type[Any], /, **options: Any) -> None:
        super(base, kind).__init_subclass__(**options)
        _wrap_execute(kind)

    for kind in (module.SingleTurnAgentExecutor, module.MultiTurnAgentExecutor):
        _wrap_execute(kind)
    base.__init_subclass__ = classmethod(init_subclass)


def _wrap_execute(kind: type[Any]) -> None:
    execute = kind.__dict__.get("execute")
    if execute is not None and not getattr(execute, "__isabstractmethod__", False):
        wrap_once(kind, "execute", _execute)


async def _execute(original: Callable[..., Any], executor: Any, *args: Any, **call: Any) -> Any:
    if _in_trajectory.get():  # an executor that calls another's, or its parent's
        return await original(executor, *args, **call)
    engine, sampling_params = call["llm_engine"], call["sampling_params"]
    config, rules = _engines_rules(engine, call["hf_tokenizer"])
    trajectory = start_trajectory(engine, config, rules, taken_place(sampling_params))
    own = copy.deepcopy(sampling_params)  # one object serves all samples of a prompt
    own.extra_args = without_place(own.extra_args) or None
    token = _in_trajectory.set(True)
    try:
        response = await original(
            executor, *args, **{**call, "llm_engine": trajectory, "sampling_params": own}
        )
    finally:
        _in_trajectory.reset(token)
    return narrowed(response, trajectory)


def _engines_rules(engine: Any, tokenizer: Any) -> tuple[TandemConfig, TandemRules]:
    """The settings and rules of the process of an engine, which runs in tandem."""
    if "_tandem" not in engine.__dict__:
        from tandem_plugin.engine.status import check_engine

        check_engine(engine.llm.vllm_config)
        config = _config()
        engine._tandem = config, TandemRules(config, Vocabulary.from_tokenizer(tokenizer))
    found: tuple[TandemConfig, TandemRules] = engine._tandem
    return found


def place_prompts(module: ModuleType) -> None:
    """Number prompts on their way to the engines; keep what their responses say about authorship.

    Touches: ``SamplesGenerator._dispatch_prompts_to_vllm`` (in which the engines' handles are
    replaced), ``generate_eval_samples`` (which alone knows that it validates) and
    ``_process_response_into_experience``. Why: seeds must be unique and the same in every run, and
    OpenRLHF numbers no prompts; an experience has no field for a plugin, and OpenRLHF takes the
    response's length from its mask. Goes when: OpenRLHF does the first two and measures lengths
    without the mask.
    """

    def dispatch(
        original: Callable[..., Any],
        generator: Any,
        prompts: Any,
        labels: Any,
        *rest: Any,
        **more: Any,
    ) -> Any:
        engines = generator.vllm_engines
        generator.vllm_engines = placed(engines, _numbering(generator).take(len(prompts)))
        try:
            return original(generator, prompts, labels, *rest, **more)
        finally:
            generator.vllm_engines = engines

    def evaluate(original: Callable[..., Any], generator: Any, **more: Any) -> Any:
        samples = []
        for answerer in answerers(_config().validation):
            with _numbering(generator).validation(answerer):
                answered = original(generator, **more)
            for sample in answered:
                setattr(sample, ANSWERER, answerer)
            samples += answered
        return samples

    def process(original: Callable[..., Any], generator: Any, response: Any, **more: Any) -> Any:
        import torch

        experience = original(generator, response, **more)
        facts = response.get(FACTS)
        if facts is not None:
            setattr(experience, FACTS, facts)
            length = facts.response_length(experience.sequences.shape[1])
            experience.response_length = torch.tensor([length])
            if _config().lambda_jun:
                junior = facts.junior_mask(experience.action_mask[0].bool().numpy())
                setattr(experience, JUNIOR_MASK, torch.from_numpy(junior).long().unsqueeze(0))
        return experience

    generator = module.SamplesGenerator
    wrap_once(generator, "_dispatch_prompts_to_vllm", dispatch)
    wrap_once(generator, "generate_eval_samples", evaluate)
    wrap_once(generator, "_process_response_into_experience", process)


def _numbering(generator: Any) -> Numbering:
    if "_tandem" not in generator.__dict__:
        generator._tandem = Numbering()
    found: Numbering = generator._tandem
    return found


def admit_batches(module: ModuleType) -> None:
    """Check every batch before anything is computed from it, and log its metrics with the step's.

    Touches: ``RemoteExperienceMaker.__init__`` and ``make_experience_batch``, through which both
    trainers take their samples. OpenRLHF logs the mean over responses of every number in an
    experience's ``info``. Goes when: OpenRLHF offers plugins a hook on batches and metrics.
    """

    def init(original: Callable[..., Any], maker: Any, *rest: Any, **more: Any) -> None:
        original(maker, *rest, **more)
        maker._tandem = TandemTrainer.start(_config(), maker.tokenizer, maker.args)

    def make_experience_batch(original: Callable[..., Any], maker: Any, samples: Any) -> Any:
        import torch

        maker._tandem.admit(samples)
        experiences = original(maker, samples)
        for experience in experiences:
            for name, value in maker._tandem.metrics.items():
                # The same for every response, so that their mean is the batch's value.
                experience.info[name] = torch.full((len(experience.sequences),), value)
        return experiences

    wrap_once(module.RemoteExperienceMaker, "__init__", init)
    wrap_once(module.RemoteExperienceMaker, "make_experience_batch", make_experience_batch)


def watch_trainer(module: ModuleType) -> None:
    """Go on numbering where a checkpoint or a step ended; ask the engines for their drafts.

    Touches: ``PPOTrainer.init_checkpoint_states`` and ``train_step``, in the class behind Ray's
    actor class: Ray copies inherited methods there when the module is imported, so that patches of
    ``BasePPOTrainer`` come too late, and the driver sends it to the worker as it is here. Goes
    when: OpenRLHF offers plugins hooks on steps.
    """
    kind = module.PPOTrainer.__ray_metadata__.modified_class
    wrap_once(kind, "init_checkpoint_states", _number_from_checkpoint)
    wrap_once(kind, "train_step", _number_step)


def name_the_teams_evaluation(module: ModuleType) -> None:
    """Log what the team solved under names of its own.

    Touches: ``compute_eval_metrics``, before the asynchronous trainer takes it from here. Why:
    OpenRLHF names what it evaluates after the data set alone. Goes when: OpenRLHF lets plugins
    evaluate.
    """

    def compute(
        original: Callable[..., Any], loader: Any, samples: Any, *rest: Any, **more: Any
    ) -> Any:
        return named_metrics(lambda answered: original(loader, answered, *rest, **more), samples)

    wrap_once(module, "compute_eval_metrics", compute)


def _number_from_checkpoint(original: Callable[..., Any], trainer: Any) -> Any:
    states = original(trainer)
    numbering = _numbering(trainer.samples_generator)
    numbering.next_prompt = int(states["total_consumed_prompts"])
    numbering.step = int(states["global_step"])
    return states


def _number_step(original: Callable[..., Any], trainer: Any, *rest: Any, **more: Any) -> Any:
    status, step = _train_with_drafts(original, trainer, *rest, **more)
    _numbering(trainer.samples_generator).step = int(step)
    return status, step


def _train_with_drafts(original: Callable[..., Any], trainer: Any, *rest: Any, **more: Any) -> Any:
    trainer.experience_maker._tandem.ask_for_drafts(trainer.vllm_engines)
    return original(trainer, *rest, **more)


def ask_for_drafts_of_asynchronous_runs(module: ModuleType) -> None:
    """Ask the engines for their drafts before each step of an asynchronous run.

    Touches: ``TrainingActor.train_step``, in the class behind Ray's actor class, as
    :func:`watch_trainer` does. Goes when: it does.
    """
    kind = module.TrainingActor.__ray_metadata__.modified_class
    wrap_once(kind, "train_step", _train_with_drafts)


def number_prompts_of_resumed_generators(module: ModuleType) -> None:
    """Go on numbering where the checkpoint of an asynchronous run ended.

    Touches: ``GenerateSamplesActor.fit``, in the class behind Ray's actor class: the driver sends
    it to the worker as it is here. Why: only there does a generator learn how many prompts were
    consumed before. Goes when: OpenRLHF numbers prompts.
    """
    kind = module.GenerateSamplesActor.__ray_metadata__.modified_class
    wrap_once(kind, "fit", _number_and_fit)


def _number_and_fit(
    original: Callable[..., Any], actor: Any, episode: int, total_consumed_prompts: int
) -> Any:
    _numbering(actor.samples_generator).next_prompt = int(total_consumed_prompts)
    return original(actor, episode, total_consumed_prompts)


def give_experiences_a_junior_mask(module: ModuleType) -> None:
    """Let experiences carry the tokens to imitate, in a run with ``lambda_jun`` above 0.

    Touches: ``Experience``, before other modules take it from here: a subclass with one field more,
    which OpenRLHF splits, pads and batches like its own masks. Goes when: experiences take fields
    of plugins.
    """
    if not _config().lambda_jun or hasattr(module.Experience, JUNIOR_MASK):
        return
    import torch

    field = module.tensor_field("step", default=None)
    module.Experience = make_dataclass(  # type: ignore[attr-defined]
        "Experience",
        [(JUNIOR_MASK, torch.Tensor, field)],
        bases=(module.Experience,),
        namespace={"__module__": module.__name__, "__doc__": module.Experience.__doc__},
    )


def count_the_juniors_tokens(module: ModuleType) -> None:
    """Count the tokens to imitate of every optimizer step, in a run with ``lambda_jun`` above 0.

    Touches: ``iter_grad_accum_global_norm`` as this module has it, and
    ``NaiveReplayBuffer.setup_dynamic_batch``, in which OpenRLHF counts those of its own losses.
    Goes when: OpenRLHF lets plugins add a loss.
    """
    if not _config().lambda_jun:
        return

    def setup_dynamic_batch(original: Callable[..., Any], buffer: Any, strategy: Any) -> Any:
        import torch

        def summed(numbers: list[float]) -> Any:
            if not numbers:
                return []
            group = strategy.ds_device_mesh["dp"].get_group()
            counts = torch.tensor(numbers, device=torch.cuda.current_device())
            torch.distributed.all_reduce(counts, group=group)
            return counts.tolist()

        result = original(buffer, strategy)
        buffer.tandem_junior_tokens = dynamic_counts(buffer, summed)
        return result

    wrap_once(module, "iter_grad_accum_global_norm", counted_windows)
    wrap_once(module.NaiveReplayBuffer, "setup_dynamic_batch", setup_dynamic_batch)


def keep_the_juniors_log_probabilities(module: ModuleType) -> None:
    """Let the actor compute the log-probabilities of the tokens to imitate beside the senior's.

    Touches: ``Actor.forward``, which sets those outside its mask to zero. Goes when:
    :func:`count_the_juniors_tokens` does.
    """

    def forward(
        original: Callable[..., Any],
        actor: Any,
        sequences: Any,
        action_mask: Any = None,
        *rest: Any,
        **more: Any,
    ) -> Any:
        imitation = Imitation.current()
        if imitation is None or action_mask is None:
            return original(actor, sequences, action_mask, *rest, **more)
        return imitation.widened(
            lambda mask: original(actor, sequences, mask, *rest, **more), action_mask
        )

    if _config().lambda_jun:
        wrap_once(module.Actor, "forward", forward)


def meet_the_engines_first(module: ModuleType) -> None:
    """Let the trainer learn at once that an engine could not start.

    Touches: ``ActorPPOTrainer._init_vllm_sync_group``. Why: it opens the group for weights before
    it looks at the engines, and waits five minutes for one that has died. Goes when: OpenRLHF waits
    for its engines before it opens that group.
    """

    def meet(original: Callable[..., Any], trainer: Any, backend: str) -> Any:
        import ray

        ray.get([engine.get_num_unfinished_requests.remote() for engine in trainer.vllm_engines])
        return original(trainer, backend)

    wrap_once(module.ActorPPOTrainer, "_init_vllm_sync_group", meet)


def average_over_no_tokens(module: ModuleType) -> None:
    """Let the mean over no token be 0, not "not a number".

    Touches: ``masked_mean``, before other modules take it from here. Why: a response that the
    junior wrote alone has an empty mask, which OpenRLHF never has. Means over any token are as they
    were. Goes when: OpenRLHF takes empty masks.
    """

    def masked_mean(original: Callable[..., Any], tensor: Any, mask: Any, dim: Any = None) -> Any:
        if mask is None:
            return original(tensor, mask, dim)
        return (tensor * mask).sum(dim=dim) / mask.sum(dim=dim).clamp(min=1)

    wrap_once(module, "masked_mean", masked_mean)


def lose_nothing_over_no_tokens(module: ModuleType) -> None:
    """Let the loss of an optimizer step without a trained token be 0.

    Touches: ``aggregate_loss``, before other modules take it from here. Why: OpenRLHF divides by
    the step's number of trained tokens or responses. Goes when: OpenRLHF takes empty masks.
    """

    def aggregate_loss(
        original: Callable[..., Any],
        loss: Any,
        loss_mask: Any,
        token_level_loss: bool = True,
        dp_size: int = 1,
        batch_num_tokens: Any = None,
        global_batch_size: Any = None,
    ) -> Any:
        return original(
            loss,
            loss_mask,
            token_level_loss,
            dp_size,
            _one_for_zero(batch_num_tokens),
            _one_for_zero(global_batch_size),
        )

    wrap_once(module, "aggregate_loss", aggregate_loss)


def _one_for_zero(count: Any) -> Any:
    """A number, or a tensor of one, of which nothing is divided by zero."""
    if count is None:
        return None
    return count + (count == 0)


def train_on_masks_with_holes(module: ModuleType) -> None:
    """Let a micro-batch without a trained token weigh nothing in the metrics; imitate the junior.

    Touches: ``ActorPPOTrainer.training_step``. Why: ``ppo_train`` divides by the number of trained
    tokens of every micro-batch; and the junior-imitation term must enter the loss in there. Goes
    when: OpenRLHF takes empty masks and lets plugins add a loss.
    """

    def training_step(original: Callable[..., Any], trainer: Any, *args: Any) -> Any:
        weight = _config().lambda_jun
        step = functools.partial(original, trainer)
        status = _imitating(step, weight, trainer, *args) if weight else step(*args)
        if status["num_action_tokens"] == 0:
            status["num_action_tokens"] = _NO_TOKENS
        return status

    wrap_once(module.ActorPPOTrainer, "training_step", training_step)


def _imitating(
    training_step: Callable[..., Any],
    weight: float,
    trainer: Any,
    experience: Any,
    kl_ctl: float,
    step: int,
    *rest: Any,
) -> Any:
    """One micro-batch with the junior-imitation term in its loss and in its metrics."""
    from openrlhf.utils.loss_utils import get_loss_batch_info

    mask = getattr(experience, JUNIOR_MASK)
    if trainer.args.train.dynamic_batch_enable:
        tokens = trainer.replay_buffer.tandem_junior_tokens[step]
    else:
        tokens = getattr(experience, TOKENS)
    ranks = get_loss_batch_info(trainer.strategy, mask, batch_num_tokens=1, global_batch_size=1)
    imitation = Imitation(weight, mask, tokens, ranks["dp_size"])
    with imitation.accompany():
        status = training_step(experience, kl_ctl, step, *rest)
    if imitation.loss is None:
        raise EngineError(
            "lambda_jun is above 0, but this optimizer step left the junior-imitation term out: "
            "OpenRLHF's trainer is not what the adapter was tested with."
        )
    status["metrics"][IMITATION_METRIC] = imitation.loss.detach()
    status["weights"][IMITATION_METRIC] = "sample"
    return status


PATCHES: tuple[tuple[str, Callable[[ModuleType], None]], ...] = (
    ("openrlhf.utils.deepspeed.deepspeed", refuse_at_the_driver),
    ("openrlhf.utils.deepspeed.deepspeed", add_the_imitation_term),
    ("openrlhf.trainer.ppo_utils.experience", give_experiences_a_junior_mask),
    ("openrlhf.models.actor", keep_the_juniors_log_probabilities),
    ("openrlhf.trainer.ray.ppo_actor", count_the_juniors_tokens),
    ("openrlhf.trainer.ray.vllm_engine", ask_the_engines_for_tandem),
    ("openrlhf.trainer.ray.vllm_engine", confirm_in_actors),
    ("openrlhf.trainer.ray.ppo_actor", confirm_in_actors),
    ("openrlhf.trainer.ppo_trainer", confirm_in_actors),
    ("openrlhf.trainer.ppo_trainer_async", confirm_in_actors),
    ("openrlhf.utils.agent", run_executors_in_tandem),
    ("openrlhf.trainer.ppo_utils.samples_generator", place_prompts),
    ("openrlhf.trainer.ppo_utils.experience_maker", admit_batches),
    ("openrlhf.trainer.ppo_trainer", name_the_teams_evaluation),
    ("openrlhf.trainer.ppo_trainer", watch_trainer),
    ("openrlhf.trainer.ppo_trainer_async", number_prompts_of_resumed_generators),
    ("openrlhf.trainer.ppo_trainer_async", ask_for_drafts_of_asynchronous_runs),
    ("openrlhf.models.utils", average_over_no_tokens),
    ("openrlhf.models.loss", lose_nothing_over_no_tokens),
    ("openrlhf.trainer.ray.ppo_actor", meet_the_engines_first),
    ("openrlhf.trainer.ray.ppo_actor", train_on_masks_with_holes),
)
"""(module of OpenRLHF, patch that is applied once it is imported)."""
