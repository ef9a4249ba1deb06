"""verl's agent-loop workers in tandem: they mark requests and restrict responses' masks."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from tandem_plugin.errors import ConfigError, EngineError, TandemError
from tandem_plugin.patching.subclasses import Mixin
from tandem_plugin.rules import TandemRules
from tandem_plugin.training.calls import ClientDelegate, Response, Trajectory
from tandem_plugin.training.rows import Row
from tandem_verl.settings import MANAGER_KEY, OWN_MANAGER_KEY, running_config

if TYPE_CHECKING:
    from omegaconf import DictConfig
    from tensordict import TensorDict
    from verl.experimental.agent_loop.agent_loop import AgentLoopOutput

ROW = "tandem_row"
"""The batch column that numbers the prompts of one step."""

ANSWERER = "tandem_answerer"
"""The batch column that names who answers a validation prompt."""


class TandemClient(ClientDelegate):
    """Wraps verl's ``LLMServerClient``."""

    async def generate(
        self,
        request_id: str,
        *,
        prompt_ids: list[int],
        sampling_params: dict[str, Any],
        **options: Any,
    ) -> Any:
        samples = sampling_params.get("n") or 1
        if samples != 1 and self._trajectory.rule is not None:
            raise ConfigError("agent-loop-samples-unsupported", count=samples)
        extra, pictures = sampling_params.get("extra_args"), options.get("image_data")
        call = self._trajectory.call(prompt_ids, extra, pictures)
        output = await self._target.generate(
            request_id,
            prompt_ids=prompt_ids,
            sampling_params={**sampling_params, "extra_args": call.extra_args},
            **options,
        )
        call.returned(output.token_ids)
        return output


def narrow(outputs: Sequence[AgentLoopOutput], trajectory: Trajectory) -> None:
    """Restrict the masks of a trajectory's outputs to the senior's tokens, and attach the facts.

    outputs: verl's, which change, all that the agent loop made of the trajectory; their
    ``response_logprobs`` become zero outside the mask, as in verl for tool outputs.
    """
    responses = [
        Response(
            output.prompt_ids, output.response_ids, output.response_mask, output.response_logprobs
        )
        for output in outputs
    ]
    for output, narrowed in zip(outputs, trajectory.narrow(responses), strict=True):
        if narrowed.facts is not None:
            output.response_mask = narrowed.mask_list
            output.response_logprobs = narrowed.log_probs
            output.extra_fields.update(narrowed.columns)


def make_trajectory(
    rules: TandemRules, trajectory: Mapping[str, Any], sample: Mapping[str, Any]
) -> Trajectory:
    """The trajectory that verl is about to run, with its own seeds and the rule of its step.

    trajectory: verl's ``step``, ``rollout_n`` and ``validate``. sample: the row's fields. Its
    prompt's position in the step, ``tandem_row``, and ``session_id`` identify a response: both are
    the same in every run of one configuration (verl's ``uid`` is random and its ``index`` need not
    be unique). Raises :class:`ConfigError` for a validation prompt that does not state who
    answers it although it should.
    """
    validate, step = bool(trajectory["validate"]), int(trajectory["step"])
    answerer = rules.config.answerer(sample.get(ANSWERER)) if validate else None
    if ROW not in sample:
        raise EngineError("verl-prompt-not-numbered")
    row, session = int(sample[ROW]), int(sample.get("session_id", trajectory["rollout_n"]))
    place = (step, "row", row, session)
    return Trajectory.at(rules, *place, step=step, answerer=answerer)


class WorkerInTandem(Mixin):
    """Before verl's ``AgentLoopWorker``; the batch's masks are made from its output."""

    config: Any
    tokenizer: Any
    llm_client: Any
    _tandem_rules: TandemRules | None = None
    _tandem_trajectory: Trajectory | None = None

    def tandem_rules(self) -> TandemRules:
        """The rules that the engine, given the same settings and tokenizer, also uses."""
        if self._tandem_rules is None:
            config = running_config(self.config, "An agent-loop worker")
            self._tandem_rules = TandemRules.from_tokenizer(config, self.tokenizer)
        return self._tandem_rules

    async def _run_agent_loop(
        self, sampling_params: dict[str, Any], trajectory: Mapping[str, Any], **sample: Any
    ) -> Any:
        fields_of_loop = {key: value for key, value in sample.items() if key not in (ROW, ANSWERER)}
        try:
            worker = copy.copy(self)
            worker._tandem_trajectory = make_trajectory(self.tandem_rules(), trajectory, sample)
            worker.llm_client = TandemClient(self.llm_client, worker._tandem_trajectory)
            verls: Any = super(WorkerInTandem, worker)
            return await verls._run_agent_loop(sampling_params, trajectory, **fields_of_loop)
        except TandemError as error:
            # The trainer only logs what a trajectory raises, and trains on its siblings.
            fields = {k: v for k, v in fields_of_loop.items() if k not in ("agent_name", "trace")}
            failed = _failed_output(error, self.config)
            return await self._agent_loop_postprocess(failed, trajectory["validate"], **fields)

    async def _agent_loop_postprocess(
        self, output: AgentLoopOutput | list[AgentLoopOutput], validate: bool, **fields: Any
    ) -> Any:
        if self._tandem_trajectory is not None:
            parts = output if isinstance(output, list) else [output]
            narrow(parts, self._tandem_trajectory)
            if len(parts) > 1 and self._tandem_trajectory.rule is not None:
                output = await self._tandem_ordered(parts, fields)
        return await super()._agent_loop_postprocess(output, bool(validate), **fields)

    async def _tandem_ordered(self, outputs: list[Any], fields: dict[str, Any]) -> list[Any]:
        """A session's outputs; the last with a token of the senior's has the score and stands last.

        verl's grpo takes a session's advantage from its last output, and would find none in one
        that the junior wrote alone. The outputs are graded in the loop's order. Raises
        :class:`ConfigError` for what verl computes from the outputs' order otherwise.
        """
        check_outputs(self.config, len(outputs))
        await self._compute_score(outputs, kwargs=fields)
        last = outputs[-1]
        if last.reward_score is None:
            raise ConfigError(
                "agent-loop-outputs-unsupported", count=len(outputs), where="with a reward model"
            )
        carrier = next((output for output in reversed(outputs) if any(output.response_mask)), last)
        carrier.reward_score = last.reward_score
        graded = last.extra_fields.get("reward_extra_info", {})
        carrier.extra_fields["reward_extra_info"] = graded
        return [*(output for output in outputs if output is not carrier), carrier]


def check_outputs(config: Any, count: int) -> None:
    """Raise :class:`ConfigError` for a run in which a session may have one output only.

    config: verl's whole configuration. count: of a session's outputs.
    """
    estimator = config.algorithm.adv_estimator
    where = "" if estimator == "grpo" else f"with algorithm.adv_estimator={estimator}"
    if (config.get("distillation") or {}).get("enabled"):
        where = "with distillation.enabled=True"
    if where:
        raise ConfigError("agent-loop-outputs-unsupported", count=count, where=where)


def _failed_output(error: TandemError, config: DictConfig) -> AgentLoopOutput:
    """A stand-in that carries an error's type and sentence to the trainer process, to be raised."""
    from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput

    cause = getattr(error, "cause", None)  # of Ray's error, whose own text is a traceback
    reported = cause if isinstance(cause, TandemError) else error
    # NaN for every metric: verl drops a prompt's responses unseen if all of them are equal.
    score = float("nan")
    metric = (config.algorithm.get("filter_groups") or {}).get("metric")
    return AgentLoopOutput(
        prompt_ids=[0],
        response_ids=[0],
        response_mask=[0],
        response_logprobs=[0.0],
        reward_score=score,
        metrics=AgentLoopMetrics(),
        extra_fields={
            **Row.failure(reported),
            "reward_extra_info": {metric: score} if metric else {},
            "turn_scores": [],
            "tool_rewards": [],
        },
    )


class TandemAgentLoopManager:
    """The class that a run's configuration names as its ``agent_loop_manager_class``."""

    @classmethod
    def create(cls, *args: Any, config: DictConfig, **options: Any) -> Any:
        """The manager that verl would have created, the user's own if there is one, in tandem.

        config: verl's whole configuration. Raises like :func:`running_config`, and
        :class:`ConfigError` for a manager that is not built on verl's.
        """
        from verl.trainer.ppo.v1 import AgentLoopManagerTQ
        from verl.utils.import_utils import load_class_from_fqn

        running_config(config, "An agent-loop manager")
        manager_name = OmegaConf.select(config, OWN_MANAGER_KEY)
        base = (
            load_class_from_fqn(manager_name, "AgentLoopManager")
            if manager_name
            else AgentLoopManagerTQ
        )
        if not issubclass(base, AgentLoopManagerTQ):
            raise ConfigError("verl-manager-unsupported", key=MANAGER_KEY, value=manager_name)
        manager = ManagerInTandem.tandem_over(base)
        return manager.create(*args, config=config, **options)


class ManagerInTandem(Mixin):
    """Before ``AgentLoopManagerTQ``: its workers run in tandem, and it numbers each step's prompts.

    A prompt has a random ``uid`` and an ``index`` that need not be unique; its position in the step
    is the same in every run. The prompts of validation come numbered.
    """

    agent_loop_workers_class: Any

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        workers = self.agent_loop_workers_class
        self.agent_loop_workers_class = WorkerInTandem.tandem_over(workers)
        self._tandem_numbered: dict[bool, tuple[int, int]] = {}
        """(step, prompts so far), for validation and training: prompts of a step may still come
        after a validation at the same step."""

    def generate_sequences(self, prompts: TensorDict) -> Any:
        import torch

        if ROW not in prompts:
            validate = "validate" in prompts and bool(prompts["validate"])
            step = int(prompts["global_steps"])
            numbered, first = self._tandem_numbered.get(validate, (step, 0))
            first = first if numbered == step else 0
            prompts[ROW] = torch.arange(first, first + len(prompts))
            self._tandem_numbered[validate] = step, first + len(prompts)
        return super().generate_sequences(prompts)
