"""Every touch on verl's internals, each with what, which versions, why and when it can go.

A patch waits for its module to be imported (:mod:`~tandem_plugin.patching.after_import`), so that
it costs a process that never imports it nothing, and does nothing in a run that does not ask for
tandem. All were written against verl 0.9.1. :data:`PATCHES` lists them; a test holds the list
against verl.
"""

from __future__ import annotations

import copy
import functools
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from tandem_plugin.engine.names import TELL_OF_DRAFTS
from tandem_plugin.errors import EngineError, TandemError
from tandem_plugin.patching.in_place import check_in_place, put_in_place
from tandem_plugin.patching.versions import check_version
from tandem_plugin.patching.wrapping import wrap_once
from tandem_plugin.training.fields import (
    AUTHORSHIP,
    ERROR,
    FINGERPRINT,
    JUNIOR_MASK,
    PASSAGES,
    SCHEDULE,
    SEED,
    TRAINED,
)
from tandem_plugin.training.imitation import IMITATION_METRIC, imitation_loss
from tandem_verl.agent_loop import ROW, TandemClient, Trajectory, make_trajectory
from tandem_verl.refusals import check_models, check_policy, check_run, check_versions
from tandem_verl.rows import columns_of, padded_junior_mask, rows_of_batch, rows_of_keys
from tandem_verl.sessions import advantages_of_sessions
from tandem_verl.settings import tandem_config, tandem_rules
from tandem_verl.switch import tandem_node
from tandem_verl.trainer import TandemTrainer
from tandem_verl.validation import ANSWERED_BY, ANSWERER

__all__ = ["JUNIOR_TOKENS", "LAMBDA_JUN", "PATCHES", "apply"]

LAMBDA_JUN = "tandem_lambda_jun"
"""The weight of the junior-imitation term, among a batch's settings on its way to the workers."""

JUNIOR_TOKENS = "tandem_junior_tokens"
"""The number of tokens to imitate in a mini-batch, over all ranks."""


def apply() -> None:
    """Put every patch in place, now or when its module is imported; repeatable.

    Raises :class:`ConfigError` for a verl that the adapter was not tested with, and
    :class:`EngineError` for one without a module that is patched.
    """
    import verl

    check_version("verl", verl.__version__)
    guarded = [(module, functools.partial(_apply, patch)) for module, patch in PATCHES]
    put_in_place("verl", guarded, 'Install verl 0.9.1: pip install "tandem-plugin[verl]".')


def _apply(patch: Callable[[ModuleType], None], module: ModuleType) -> None:
    """A hook that moved must stop tandem runs, and only those."""
    try:
        patch(module)
    except Exception as error:
        from tandem_verl.plugin import refuse

        refuse(error)


def refuse_at_the_driver(module: ModuleType) -> None:
    """Check a tandem run's settings where verl checks its own.

    Touches: ``verl.utils.config.validate_config``. Why: both trainers' ``main`` call it first,
    before Ray is started. Goes when: verl offers plugins a hook on the configuration.
    """

    def validate_config(original: Callable[..., Any], config: Any, *rest: Any, **more: Any) -> Any:
        tandem = tandem_config(config)
        if tandem is not None:
            for warning in check_versions():
                print(f"warning: {warning}", file=sys.stderr, flush=True)
            check_run(config, tandem)
            check_models(config, tandem)
        return original(config, *rest, **more)

    wrap_once(module, "validate_config", validate_config)


def run_agent_loops_in_tandem(module: ModuleType) -> None:
    """Send every trajectory's calls out with tandem requests; bring its responses back narrowed.

    Touches: ``AgentLoopWorker._run_agent_loop``, on whose shallow copy ``llm_client`` and
    ``_agent_loop_postprocess`` are replaced. Why: every agent loop of both trainers passes here; it
    alone knows whether the trajectory is validation, and what it hands to postprocess is what
    ``response_mask`` and, from it, ``loss_mask`` are made of. Goes when: verl lets plugins wrap the
    client and the output of agent loops.
    """

    async def _run_agent_loop(
        original: Callable[..., Any],
        worker: Any,
        sampling_params: dict[str, Any],
        trajectory: Mapping[str, Any],
        **sample: Any,
    ) -> Any:
        if tandem_node(worker.config) is None:
            return await original(worker, sampling_params, trajectory, **sample)
        own = {key: value for key, value in sample.items() if key not in (ROW, ANSWERER)}
        postprocess = worker._agent_loop_postprocess
        copied = copy.copy(worker)
        try:
            check_policy(worker.config)
            tandem = _trajectory(worker, trajectory, sample)
            client = TandemClient(worker.llm_client, tandem)

            async def narrow(output: Any, validate: bool, **kwargs: Any) -> Any:
                for part in output if isinstance(output, list) else [output]:
                    tandem.narrow(part, client.calls)
                return await postprocess(output, validate, **kwargs)

            copied.llm_client = client
            copied._agent_loop_postprocess = narrow
            return await original(copied, sampling_params, trajectory, **own)
        except TandemError as error:
            if "session_id" not in sample:
                raise
            # Trainer V1 only logs what a trajectory raises, and trains on its siblings.
            fields = {k: v for k, v in own.items() if k not in ("agent_name", "trace")}
            failed = _failed_output(module, error, worker.config)
            return await postprocess(failed, bool(trajectory["validate"]), **fields)

    wrap_once(module.AgentLoopWorker, "_run_agent_loop", _run_agent_loop)


def _trajectory(
    worker: Any, trajectory: Mapping[str, Any], sample: Mapping[str, Any]
) -> Trajectory:
    if "_tandem" not in worker.__dict__:
        config = tandem_config(worker.config)
        assert config is not None
        worker._tandem = config, tandem_rules(config, worker.tokenizer)
    config, rules = worker._tandem
    return make_trajectory(config, rules, trajectory, sample)


def _failed_output(module: ModuleType, error: TandemError, config: Any) -> Any:
    """A stand-in that carries an error to the trainer process, which raises it."""
    # Not a number, whatever verl compares: where all of a prompt's are equal, it drops them unseen.
    score = float("nan")
    metric = (config.algorithm.get("filter_groups") or {}).get("metric")
    return module.AgentLoopOutput(
        prompt_ids=[0],
        response_ids=[0],
        response_mask=[0],
        response_logprobs=[0.0],
        reward_score=score,
        metrics=module.AgentLoopMetrics(),
        extra_fields={
            ERROR: _sentence(error),
            AUTHORSHIP: [0],
            SEED: 0,
            FINGERPRINT: "",
            SCHEDULE: {},
            PASSAGES: [],
            TRAINED: [],
            JUNIOR_MASK: [0],
            "reward_extra_info": {metric: score} if metric else {},
            "turn_scores": [],
            "tool_rewards": [],
        },
    )


def _sentence(error: TandemError) -> str:
    """The error's type and sentence, without the traceback that Ray makes an error's text of."""
    cause = getattr(error, "cause", None)
    said = cause if isinstance(cause, TandemError) else error
    return f"{type(said).__name__}: {said}"


def carry_authorship_through_transfer_queue(module: ModuleType) -> None:
    """Give authorship, seed, fingerprint (and the tokens to imitate) columns in V1's TransferQueue.

    Touches: ``AgentLoopOutput.as_dict``. Why: it names the columns; what stays in ``extra_fields``
    travels as one untyped dictionary a row. Trainer V0 makes columns of ``extra_fields`` itself.
    Goes when: V1 does as well.
    """
    import torch

    def as_dict(original: Callable[..., Any], output: Any) -> dict[str, Any]:
        fields: dict[str, Any] = original(output)
        extra = fields["extra_fields"]
        if AUTHORSHIP in extra:
            fields[AUTHORSHIP] = torch.tensor(extra[AUTHORSHIP], dtype=torch.int64)
            fields[SEED] = extra[SEED]
            fields[FINGERPRINT] = extra[FINGERPRINT]
        if JUNIOR_MASK in extra:
            fields[JUNIOR_MASK] = torch.tensor(extra[JUNIOR_MASK], dtype=torch.int64)
        return fields

    wrap_once(module.AgentLoopOutput, "as_dict", as_dict)


def number_prompts(module: ModuleType) -> None:
    """Number the prompts of each step, for seeds that are unique and the same in every run.

    Touches: ``AgentLoopManagerTQ.generate_sequences``. Why: in trainer V1 a prompt has a random
    ``uid`` and an ``index`` that need not be unique; its place in the step is neither. Trainer V0
    numbers rows itself (``priority``), and the prompts of verl's own validation come numbered.
    Goes when: V1 does as well.
    """
    import torch

    def generate_sequences(original: Callable[..., Any], manager: Any, prompts: Any) -> Any:
        if tandem_node(manager.config) is not None and ROW not in prompts:
            validate = "validate" in prompts and bool(prompts["validate"])
            step = int(prompts["global_steps"])
            # Apart, since prompts of a step may still come after a validation at the same step.
            phases = manager.__dict__.setdefault("_tandem_numbered", {})
            numbered, first = phases.get(validate, (None, 0))
            first = first if numbered == step else 0
            prompts[ROW] = torch.arange(first, first + len(prompts))
            phases[validate] = step, first + len(prompts)
        return original(manager, prompts)

    wrap_once(module.AgentLoopManagerTQ, "generate_sequences", generate_sequences)


def watch_trainer_v1(module: ModuleType) -> None:
    """Check a run at its start and every batch before anything is learned from it; dump authorship.

    Touches: ``PPOTrainer._init_tokenizer`` (the first thing that a trainer does, before workers),
    ``_build_replay_buffer`` (whose ``sample`` gives the trainer every batch, and metrics with it),
    ``_compute_advantage`` (in which :mod:`~tandem_verl.sessions` stands before
    ``compute_advantage_for_multi_trajectories``), ``_update_actor`` (whose batch carries masks and
    settings to the workers), ``_dump_generations``, what :func:`_validate_by_each` does, and the
    ``server_handles`` of its server managers. Goes when: verl offers plugins hooks on a trainer's
    start and batches, and reads a session's advantage off its reward.
    """

    def _init_tokenizer(original: Callable[..., Any], trainer: Any) -> Any:
        result = original(trainer)
        trainer._tandem = TandemTrainer.start(trainer.config, trainer.tokenizer)
        if trainer._tandem is not None:
            check_in_place("verl")
        return result

    def _build_replay_buffer(original: Callable[..., Any], trainer: Any) -> Any:
        buffer = original(trainer)
        if tandem_node(trainer.config) is not None:
            sample = buffer.sample

            @functools.wraps(sample)
            def watched(*args: Any, **kwargs: Any) -> Any:
                batch, metrics = sample(*args, **kwargs)
                return batch, {**metrics, **_examine(trainer, batch, module.tq)}

            buffer.sample = watched
        return buffer

    def _update_actor(
        original: Callable[..., Any], trainer: Any, batch: Any, metrics: dict[str, Any]
    ) -> Any:
        tandem = _started(trainer)
        if tandem is None:
            return original(trainer, batch, metrics)
        tandem.check_update(rows_of_keys(batch, module.tq, []))
        if not tandem.imitates:
            return original(trainer, batch, metrics)
        batch.extra_info[LAMBDA_JUN] = tandem.config.lambda_jun
        result = original(trainer, batch, metrics)
        tandem.check_imitation(metrics)
        return result

    def _compute_advantage(
        original: Callable[..., Any], trainer: Any, batch: Any, metrics: dict[str, Any]
    ) -> Any:
        if _started(trainer) is None:
            return original(trainer, batch, metrics)
        verls = module.compute_advantage_for_multi_trajectories
        own = functools.partial(advantages_of_sessions, verls)
        module.compute_advantage_for_multi_trajectories = own  # type: ignore[attr-defined]
        try:
            return original(trainer, batch, metrics)
        finally:
            module.compute_advantage_for_multi_trajectories = verls  # type: ignore[attr-defined]

    def _dump_generations(original: Callable[..., Any], trainer: Any, **dump: Any) -> Any:
        tandem = _started(trainer)
        if tandem is not None:
            dump = _of_pass(tandem, _with_rows(tandem, dump))
        return original(trainer, **dump)

    wrap_once(module.PPOTrainer, "_init_tokenizer", _init_tokenizer)
    wrap_once(module.PPOTrainer, "_build_replay_buffer", _build_replay_buffer)
    wrap_once(module.PPOTrainer, "_compute_advantage", _compute_advantage)
    wrap_once(module.PPOTrainer, "_update_actor", _update_actor)
    wrap_once(module.PPOTrainer, "_dump_generations", _dump_generations)
    _validate_by_each(module.PPOTrainer)


def _validate_by_each(trainer_class: Any) -> None:
    """Let the senior, the team or both answer validation prompts, under names of their own.

    Touches, in both trainers: ``_validate``, which then runs once for each answerer over prompts
    that say who it is, and ``_maybe_log_val_generations``, whose table has one place a step. Why:
    verl validates in one way only. Goes when: verl takes several validations with names.
    """

    def _validate(original: Callable[..., Any], trainer: Any, *args: Any, **more: Any) -> Any:
        tandem: TandemTrainer | None = getattr(trainer, "_tandem", None)
        if tandem is None:
            return original(trainer, *args, **more)
        if any(args) or any(more.values()):
            raise EngineError(
                f"{type(trainer).__name__} merges the validations of several processes, so that "
                "tandem cannot name their metrics. Use one of verl's own trainers."
            )
        return tandem.validate(trainer, functools.partial(original, trainer))

    def _maybe_log_val_generations(
        original: Callable[..., Any], trainer: Any, inputs: Any, outputs: Any, scores: Any
    ) -> Any:
        tandem: TandemTrainer | None = getattr(trainer, "_tandem", None)
        one = None if tandem is None else tandem.validating
        if one is not None and not one.is_alone:
            one.samples.extend(zip(one.labelled(inputs), outputs, scores, strict=True))
            if not one.is_last:
                return None
            inputs, outputs, scores = zip(*one.samples, strict=True) if one.samples else ((),) * 3
        return original(trainer, inputs=inputs, outputs=outputs, scores=scores)

    wrap_once(trainer_class, "_validate", _validate)
    wrap_once(trainer_class, "_maybe_log_val_generations", _maybe_log_val_generations)


def _examine(trainer: Any, batch: Any, tq: Any) -> dict[str, float]:
    """Check a batch that trainer V1 has just been given; return its metrics."""
    tandem = _started(trainer)
    if tandem is None:
        return {}
    validates = batch.partition_id != "train"
    one = tandem.validating
    if one is not None and one.answerer == "senior":
        columns = []
    else:
        columns = [AUTHORSHIP, SEED, FINGERPRINT]
        columns += [JUNIOR_MASK] if tandem.imitates and not validates else []
    rows = rows_of_keys(batch, tq, columns)
    if validates:
        tandem.admit_validation(rows)
        metrics = {}
    else:
        metrics = {**tandem.admit(rows), **_drafting(trainer, tandem)}
    folder = "validation_data_dir" if validates else "rollout_data_dir"
    if trainer.config.trainer.get(folder):
        tandem.remember(batch.keys, rows)
    return metrics


def _drafting(trainer: Any, tandem: TandemTrainer) -> dict[str, float]:
    """What became of the drafts since the last step; nothing from engines that do not draft."""
    if tandem.config.mode != "speculative":
        return {}
    managers = (
        getattr(trainer, name, None) for name in ("llm_server_manager", "standalone_server_manager")
    )
    return tandem.drafting([server for one in managers if one for server in one.server_handles])


def _started(trainer: Any) -> TandemTrainer | None:
    """The checks that a trainer of verl's began with; None for a run that does not ask for tandem.

    Raises :class:`EngineError` for a trainer that asks for tandem and did not begin with them.
    """
    tandem: TandemTrainer | None = vars(trainer).get("_tandem")
    if tandem is None and tandem_node(trainer.config) is not None:
        raise EngineError(
            f"{type(trainer).__name__} did not start as verl's own trainers do, so that tandem "
            "could not be checked. Use trainer V1 in one of its own modes."
        )
    return tandem


def _with_rows(tandem: TandemTrainer, dump: dict[str, Any]) -> dict[str, Any]:
    """A V1 dump with tandem's columns; rows that verl made up to fill a batch are left out."""
    keys = dump["reward_extra_infos_dict"].get("uid", [])
    kept = [i for i, key in enumerate(keys) if tandem.remembers(key)]
    if not kept:
        return dump
    rows = tandem.recall([keys[i] for i in kept])
    extra = dump["reward_extra_infos_dict"]
    columns = {
        name: [values[i] for i in kept] if len(values) == len(keys) else values
        for name, values in extra.items()
    }
    lists = {name: [dump[name][i] for i in kept] for name in ("inputs", "outputs", "gts", "scores")}
    return {**dump, **lists, "reward_extra_infos_dict": {**columns, **columns_of(rows)}}


def _of_pass(tandem: TandemTrainer, dump: dict[str, Any]) -> dict[str, Any]:
    """A validation's dump, in a folder of its answerer's where there are two; others unchanged."""
    one = tandem.validating
    if one is None:
        return dump
    extra = {
        **dump["reward_extra_infos_dict"],
        ANSWERED_BY: [one.answerer] * len(dump["inputs"]),
    }
    return {**dump, "reward_extra_infos_dict": extra, "dump_path": one.dump_path(dump["dump_path"])}


def watch_trainer_v0(module: ModuleType) -> None:
    """The same for the legacy trainer.

    Touches: ``RayPPOTrainer.__init__`` (before workers), ``extract_reward``, through which every
    batch passes before anything is computed from it, ``_update_actor`` (right before the update,
    and with the update's metrics), ``_log_rollout_data``, ``_dump_generations``, and what
    :func:`_validate_by_each` does. Goes when: verl drops V0.
    """
    started: list[TandemTrainer] = []

    def start(
        original: Callable[..., Any],
        trainer: Any,
        config: Any,
        tokenizer: Any,
        *rest: Any,
        **more: Any,
    ) -> None:
        trainer._tandem = TandemTrainer.start(config, tokenizer)
        if trainer._tandem is not None:
            check_in_place("verl")
            started.append(trainer._tandem)
        original(trainer, config, tokenizer, *rest, **more)

    def _update_actor(original: Callable[..., Any], trainer: Any, batch: Any) -> Any:
        tandem = _started(trainer)
        if tandem is None:
            return original(trainer, batch)
        tandem.check_update(rows_of_batch(batch))
        metrics = {**tandem.metrics, **_drafting(trainer, tandem)}
        if tandem.imitates:
            batch.batch[JUNIOR_MASK] = padded_junior_mask(batch)
            batch.meta_info[LAMBDA_JUN] = tandem.config.lambda_jun
        output = original(trainer, batch)
        if tandem.imitates:
            batch.batch.pop(JUNIOR_MASK)
            tandem.check_imitation(output.meta_info["metrics"])
        output.meta_info["metrics"].update(metrics)
        return output

    def _log_rollout_data(
        original: Callable[..., Any], trainer: Any, batch: Any, extra: Any, *rest: Any, **more: Any
    ) -> Any:
        if _started(trainer) is not None:
            extra = {**extra, **columns_of(rows_of_batch(batch))}
        return original(trainer, batch, extra, *rest, **more)

    def extract_reward(original: Callable[..., Any], batch: Any) -> Any:
        for tandem in started:
            rows = rows_of_batch(batch)
            if tandem.validating is None:
                tandem.admit(rows)
            else:
                tandem.admit_validation(rows)
                tandem.validating.rows.extend(rows)
        return original(batch)

    def _dump_generations(original: Callable[..., Any], trainer: Any, **dump: Any) -> Any:
        tandem: TandemTrainer | None = trainer._tandem
        if tandem is not None and tandem.validating is not None:
            extra = {**dump["reward_extra_infos_dict"], **columns_of(tandem.validating.rows)}
            dump = _of_pass(tandem, {**dump, "reward_extra_infos_dict": extra})
        return original(trainer, **dump)

    wrap_once(module.RayPPOTrainer, "__init__", start)
    wrap_once(module.RayPPOTrainer, "_update_actor", _update_actor)
    wrap_once(module.RayPPOTrainer, "_log_rollout_data", _log_rollout_data)
    wrap_once(module.RayPPOTrainer, "_dump_generations", _dump_generations)
    wrap_once(module, "extract_reward", extract_reward)
    _validate_by_each(module.RayPPOTrainer)


def imitate_the_junior(module: ModuleType) -> None:
    """Add the junior-imitation term to the loss of a run that asks for it.

    Touches: ``ppo_loss``, before the workers take it from here. Why: the actor's loss has no place
    for another term. Goes when: verl lets plugins register additional losses.
    """

    def ppo_loss(
        original: Callable[..., Any], config: Any, model_output: Any, data: Any, **more: Any
    ) -> Any:
        from verl.utils import tensordict_utils
        from verl.utils.metric import AggregationType, Metric

        loss, metrics = original(config, model_output, data, **more)
        weight = tensordict_utils.get_non_tensor_data(data, LAMBDA_JUN, 0.0)
        if not weight:
            return loss, metrics
        log_probs = module.no_padding_2_padding(model_output["log_probs"], data)
        mask = data[JUNIOR_MASK]
        if mask.is_nested:
            mask = mask.to_padded_tensor(0, (len(log_probs), log_probs.shape[1]))
        term = imitation_loss(log_probs, mask, data[JUNIOR_TOKENS], data["dp_size"])
        metrics[IMITATION_METRIC] = Metric(value=term.detach(), aggregation=AggregationType.SUM)
        return loss + weight * term, metrics

    wrap_once(module, "ppo_loss", ppo_loss)


def count_the_juniors_tokens(module: ModuleType) -> None:
    """Count the tokens to imitate of a mini-batch, over all ranks, before it is split.

    Touches: ``FSDPEngine.forward_backward_batch``, where verl counts those of its own losses. Goes
    when: :func:`imitate_the_junior` does.
    """
    import torch

    def forward_backward_batch(
        original: Callable[..., Any], engine: Any, data: Any, *rest: Any, **more: Any
    ) -> Any:
        from verl.utils import tensordict_utils

        if tensordict_utils.get_non_tensor_data(data, LAMBDA_JUN, 0.0):
            mask = data[JUNIOR_MASK]
            count = (mask.values() if mask.is_nested else mask).sum().to(module.get_device_id())
            torch.distributed.all_reduce(count, group=engine.get_data_parallel_group())
            tensordict_utils.assign_non_tensor(data, **{JUNIOR_TOKENS: count.item()})
        return original(engine, data, *rest, **more)

    wrap_once(module.FSDPEngine, "forward_backward_batch", forward_backward_batch)


def imitate_nothing_in_padding(module: ModuleType) -> None:
    """Leave the rows that verl makes up to fill a batch without tokens to imitate.

    Touches: ``construct_minimal_padding_template``. Why: it copies the first row and then clears
    the masks that it knows. Goes when: verl makes padding of nothing.
    """

    def construct(original: Callable[..., Any], *args: Any, **more: Any) -> Any:
        sample, tag = original(*args, **more)
        if JUNIOR_MASK in sample:
            sample[JUNIOR_MASK] = sample["response_mask"].clone()
        return sample, tag

    wrap_once(module, "construct_minimal_padding_template", construct)


def check_running_engine(module: ModuleType) -> None:
    """Stop when the engine that verl's server has just started does not run in tandem.

    Touches: ``vLLMHttpServer.run_server``. Why: vLLM drops a plugin that fails to load and ignores
    additional configuration that nobody reads. Goes when: vLLM refuses unknown configuration.
    """

    async def run_server(original: Callable[..., Any], server: Any, *args: Any, **more: Any) -> Any:
        result = await original(server, *args, **more)
        if tandem_node(server.config) is not None:
            try:
                from tandem_plugin.engine.status import check_engine

                check_engine(server.engine.vllm_config)
            except BaseException:
                server.engine.shutdown()
                raise
        return result

    wrap_once(module.vLLMHttpServer, "run_server", run_server)


def let_servers_tell_of_drafts(module: ModuleType) -> None:
    """Let the server of an engine that drafts say what became of its drafts.

    Touches: ``vLLMHttpServer``, which gets one method more. Why: its ``collective_rpc`` keeps what
    the workers answer to itself. Goes when: it returns it.
    """

    async def tandem_drafted(server: Any) -> dict[str, int]:
        workers = await server.engine.collective_rpc(TELL_OF_DRAFTS)
        return dict(workers[0])

    module.vLLMHttpServer.tandem_drafted = tandem_drafted


def pass_on_refusals(module: ModuleType) -> None:
    """Let the sentence with which the engine refuses a request leave the server's process.

    Touches: ``vLLMHttpServer.generate``. Why: vLLM raises an ``EngineGenerateError`` without a
    word in its place, and an exception's cause does not survive the way through Ray. Goes when:
    vLLM raises what request validation raised.
    """

    async def generate(original: Callable[..., Any], server: Any, *args: Any, **more: Any) -> Any:
        try:
            return await original(server, *args, **more)
        except Exception as error:
            refusal: BaseException | None = error
            while refusal is not None and not isinstance(refusal, TandemError):
                refusal = refusal.__cause__
            if refusal is None or refusal is error:
                raise
            raise refusal from None

    wrap_once(module.vLLMHttpServer, "generate", generate)


PATCHES: tuple[tuple[str, Callable[[ModuleType], None]], ...] = (
    ("verl.utils.config", refuse_at_the_driver),
    ("verl.experimental.agent_loop.agent_loop", run_agent_loops_in_tandem),
    ("verl.experimental.agent_loop.agent_loop", carry_authorship_through_transfer_queue),
    ("verl.trainer.ppo.v1.agent_loop_tq", number_prompts),
    ("verl.trainer.ppo.v1.trainer_base", watch_trainer_v1),
    ("verl.trainer.ppo.ray_trainer", watch_trainer_v0),
    ("verl.workers.utils.losses", imitate_the_junior),
    ("verl.workers.engine.fsdp.transformer_impl", count_the_juniors_tokens),
    ("verl.trainer.ppo.padding_utils", imitate_nothing_in_padding),
    ("verl.workers.rollout.vllm_rollout.vllm_async_server", check_running_engine),
    ("verl.workers.rollout.vllm_rollout.vllm_async_server", pass_on_refusals),
    ("verl.workers.rollout.vllm_rollout.vllm_async_server", let_servers_tell_of_drafts),
)
"""(module of verl, patch that is applied once it is imported)."""
