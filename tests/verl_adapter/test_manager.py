"""Agent-loop managers in tandem: verl's and users', their workers, and numbered prompts."""

from __future__ import annotations

import asyncio
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import ray
from omegaconf import OmegaConf
from refused import refused
from verl.experimental.agent_loop.agent_loop import AgentLoopManager
from verl_stand_ins import IN_TANDEM, tandem_of

from tandem_plugin.patching.subclasses import in_tandem
from tandem_verl import agent_loop
from tandem_verl.agent_loop import ManagerInTandem, NumberingManager, WorkerInTandem
from tandem_verl.configuration import prepare


class Worker:
    """verl's AgentLoopWorker, as far as the manager sees it."""

    async def _run_agent_loop(
        self, sampling_params: Any, trajectory: Any, **sample: Any
    ) -> Any: ...

    async def _agent_loop_postprocess(self, output: Any, validate: bool, **sample: Any) -> Any: ...


class Handle:
    """A handle of a worker actor; ``tandem_in_place`` is there where the class has it."""

    def __init__(self, worker: type) -> None:
        self.worker = worker
        if issubclass(worker, WorkerInTandem):
            self.tandem_in_place = SimpleNamespace(remote=self.answer)

    async def answer(self) -> bool:
        return True


class Manager:
    """verl's AgentLoopManager."""

    workers: Any = Worker

    def __init__(self, config: Any) -> None:
        self.config = config
        self.agent_loop_workers_class = ray.remote(self.workers)

    async def _init_agent_loop_workers(self) -> None:
        made = self.agent_loop_workers_class.__ray_actor_class__
        self.agent_loop_workers = [Handle(made), Handle(made)]

    def generate_sequences(self, prompts: Any) -> Any:
        return prompts


class Prompts(dict[str, Any]):
    def __len__(self) -> int:
        return 3


def test_prompts_are_numbered_through_each_step() -> None:
    made: Any = in_tandem(Manager, NumberingManager)(IN_TANDEM)

    def numbers(**fields: Any) -> list[int]:
        return made.generate_sequences(Prompts(fields))["tandem_row"].tolist()

    assert numbers(global_steps=1) == [0, 1, 2]
    assert numbers(global_steps=1) == [3, 4, 5]
    assert numbers(global_steps=2) == [0, 1, 2]
    assert numbers(global_steps=2, validate=True) == [0, 1, 2]
    assert numbers(global_steps=2) == [3, 4, 5]
    assert made.generate_sequences(Prompts(global_steps=2, tandem_row=[7]))["tandem_row"] == [7]


class UsersWorker(Worker): ...


class OfUsersWorkers(Manager):
    workers = UsersWorker


class OfItsOwnWorkers(Manager):
    async def _init_agent_loop_workers(self) -> None:
        self.agent_loop_workers = [Handle(Worker)]


class OfNoWorkers(Manager):
    workers = SimpleNamespace


def test_workers_are_of_ours_whatever_class_the_users_manager_chose() -> None:
    made: Any = in_tandem(OfUsersWorkers, ManagerInTandem)(IN_TANDEM)
    asyncio.run(made._init_agent_loop_workers())
    assert len(made.agent_loop_workers) == 2
    for handle in made.agent_loop_workers:
        assert issubclass(handle.worker, WorkerInTandem)
        assert issubclass(handle.worker, UsersWorker)


def test_manager_whose_workers_cannot_be_of_ours_is_refused() -> None:
    made: Any = in_tandem(OfItsOwnWorkers, ManagerInTandem)(IN_TANDEM)
    with refused("TP508"):
        asyncio.run(made._init_agent_loop_workers())
    with refused("TP374", name="SimpleNamespace", problem="has no method _run_agent_loop"):
        in_tandem(OfNoWorkers, ManagerInTandem)(IN_TANDEM)


class Derived(AgentLoopManager): ...


@pytest.mark.parametrize("users", [Derived, SimpleNamespace])
def test_managers_of_others_keep_working_if_they_derive_from_verls(
    users: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "users", ModuleType("users"))
    monkeypatch.setattr(sys.modules["users"], "Manager", users, raising=False)
    config = OmegaConf.create(OmegaConf.to_container(IN_TANDEM))
    config.actor_rollout_ref.rollout.agent = {"agent_loop_manager_class": "users.Manager"}
    OmegaConf.set_struct(config, True)
    prepare(config)
    config.trainer.v1.trainer_mode = "sync"  # as the trainer has it
    if users is Derived:
        tandem_of(config)
        made = agent_loop.manager_class(config)
        assert issubclass(made, Derived)
        assert issubclass(made, NumberingManager)
        return
    for starts in (agent_loop.manager_class, tandem_of):
        with refused("TP507", name="users.Manager"):
            starts(config)
