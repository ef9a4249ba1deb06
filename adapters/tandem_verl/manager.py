"""verl's agent-loop managers in tandem: workers of ours, and numbered prompts."""

from __future__ import annotations

import asyncio
from typing import Any

from tandem_plugin.errors import ConfigError, EngineError
from tandem_plugin.patching.subclasses import ForeignBase, actor_in_tandem, in_tandem
from tandem_verl.agent_loop import ROW, WorkerInTandem
from tandem_verl.switch import KEPT

__all__ = [
    "MANAGER",
    "ManagerInTandem",
    "NumberingManager",
    "TandemAgentLoopManager",
    "manager_class",
    "name_manager",
    "users_manager",
]

MANAGER = "tandem_verl.manager.TandemAgentLoopManager"
"""The agent-loop manager that every run in tandem is given."""

_KEY = "actor_rollout_ref.rollout.agent.agent_loop_manager_class"
_USERS_KEY = f"{KEPT}.agent_loop_manager_class"
"""Where the user's own is kept."""

_VERLS_MANAGER = "verl.trainer.ppo.v1.agent_loop_tq.AgentLoopManagerTQ"


def name_manager(config: Any) -> None:
    """Name our manager in a run's configuration, and keep the user's beside it; repeatable."""
    from omegaconf import OmegaConf

    name = OmegaConf.select(config, _KEY)
    if name != MANAGER:
        if name:
            OmegaConf.update(config, _USERS_KEY, name, force_add=True)
        OmegaConf.update(config, _KEY, MANAGER, force_add=True)


def users_manager(config: Any) -> str | None:
    """The manager class that the user named; None for verl's own."""
    from omegaconf import OmegaConf

    name = OmegaConf.select(config, _USERS_KEY)
    return None if name is None else str(name)


class TandemAgentLoopManager:
    """What a run's configuration names as its ``agent_loop_manager_class``."""

    @classmethod
    def create(cls, *args: Any, config: Any, **options: Any) -> Any:
        """The manager that verl would have created, its own or the user's, in tandem."""
        return manager_class(config).create(*args, config=config, **options)


def manager_class(config: Any) -> Any:
    """The class of a run's agent-loop manager.

    config: verl's whole configuration. Raises :class:`ConfigError` for a manager of the user's that
    is no subclass of verl's: a client could mark its requests, but what is made of the responses
    would not pass where masks are narrowed.
    """
    from verl.experimental.agent_loop.agent_loop import AgentLoopManager
    from verl.utils.import_utils import load_class_from_fqn

    name = users_manager(config)
    base = load_class_from_fqn(name or _VERLS_MANAGER, "AgentLoopManager")
    if not issubclass(base, AgentLoopManager):
        raise ConfigError("TP507", name=name, base=_VERLS_MANAGER.rpartition(".")[2])
    return in_tandem(base, NumberingManager)


class ManagerInTandem(ForeignBase):  # type: ignore[misc]
    """Before verl's ``AgentLoopManager``: its workers run every trajectory in tandem."""

    agent_loop_workers: list[Any]
    agent_loop_workers_class: Any

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        workers = self.agent_loop_workers_class
        self.agent_loop_workers_class = actor_in_tandem(workers, WorkerInTandem)

    async def _init_agent_loop_workers(self) -> None:
        await super()._init_agent_loop_workers()
        try:
            asked = [worker.tandem_in_place.remote() for worker in self.agent_loop_workers]
        except AttributeError as error:
            raise EngineError("TP508", kind=type(self).__name__) from error
        await asyncio.gather(*asked)


class NumberingManager(ManagerInTandem):
    """Before ``AgentLoopManagerTQ``: it numbers the prompts of each step, for unique seeds.

    A prompt has a random ``uid`` and an ``index`` that need not be unique; its place in the step is
    the same in every run. The prompts of validation come numbered.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._tandem_numbered: dict[bool, tuple[int, int]] = {}
        """(step, prompts so far), validation's and training's apart: prompts of a step may still
        come after a validation at the same step."""

    def generate_sequences(self, prompts: Any) -> Any:
        import torch

        if ROW not in prompts:
            validate = "validate" in prompts and bool(prompts["validate"])
            step = int(prompts["global_steps"])
            numbered, first = self._tandem_numbered.get(validate, (step, 0))
            first = first if numbered == step else 0
            prompts[ROW] = torch.arange(first, first + len(prompts))
            self._tandem_numbered[validate] = step, first + len(prompts)
        return super().generate_sequences(prompts)
