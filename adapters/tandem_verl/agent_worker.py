"""verl's agent-loop workers in tandem: requests go out marked, responses come back narrowed."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from tandem_plugin.config import TandemConfig
from tandem_plugin.errors import EngineError, TandemError
from tandem_plugin.rules import TandemRules
from tandem_plugin.training.fields import ERROR
from tandem_verl.agent_loop import ROW, TandemClient, Trajectory, make_trajectory
from tandem_verl.settings import tandem_config, tandem_rules
from tandem_verl.validation import ANSWERER

__all__ = ["WorkerInTandem"]


class WorkerInTandem:
    """Before verl's ``AgentLoopWorker``, under both trainers.

    Every agent loop passes ``_run_agent_loop``, which alone knows whether the trajectory is
    validation. What it hands to ``_agent_loop_postprocess`` is what ``response_mask`` and, from it,
    ``loss_mask`` are made of.
    """

    config: Any
    tokenizer: Any
    llm_client: Any
    _tandem: tuple[TandemConfig, TandemRules] | None = None
    _tandem_trajectory: Trajectory | None = None

    def tandem_in_place(self) -> bool:
        """Make the rules, so that what is wrong with them is known before anything is generated."""
        self._tandem_rules()
        return True

    def _tandem_rules(self) -> tuple[TandemConfig, TandemRules]:
        if self._tandem is None:
            config = tandem_config(self.config)
            if config is None:
                raise EngineError(
                    "An agent-loop worker in tandem was given a configuration that does not ask "
                    "for tandem: something changed it on the way. Remove that."
                )
            self._tandem = config, tandem_rules(config, self.tokenizer)
        return self._tandem

    async def _run_agent_loop(
        self, sampling_params: dict[str, Any], trajectory: Mapping[str, Any], **sample: Any
    ) -> Any:
        own = {key: value for key, value in sample.items() if key not in (ROW, ANSWERER)}
        try:
            tandem = make_trajectory(*self._tandem_rules(), trajectory, sample)
            one = copy.copy(self)
            one.llm_client = TandemClient(self.llm_client, tandem)
            one._tandem_trajectory = tandem
            verls: Any = super(WorkerInTandem, one)
            return await verls._run_agent_loop(sampling_params, trajectory, **own)
        except TandemError as error:
            if "session_id" not in sample:
                raise
            # Trainer V1 only logs what a trajectory raises, and trains on its siblings.
            fields = {k: v for k, v in own.items() if k not in ("agent_name", "trace")}
            failed = _failed_output(error, self.config)
            return await self._agent_loop_postprocess(failed, trajectory["validate"], **fields)

    async def _agent_loop_postprocess(self, output: Any, validate: Any, **fields: Any) -> Any:
        if self._tandem_trajectory is not None:
            for part in output if isinstance(output, list) else [output]:
                self._tandem_trajectory.narrow(part, self.llm_client.calls)
        verls: Any = super()
        return await verls._agent_loop_postprocess(output, bool(validate), **fields)


def _failed_output(error: TandemError, config: Any) -> Any:
    """A stand-in that carries an error to the trainer process, which raises it."""
    from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput

    # Not a number, whatever verl compares: where all of a prompt's are equal, it drops them unseen.
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
            ERROR: _sentence(error),
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
