"""verl's agent-loop manager in tandem: its workers, and numbered prompts."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import ray

from tandem_plugin.patching.subclasses import in_tandem
from tandem_verl.agent_loop import ManagerInTandem, WorkerInTandem


class Worker:
    """verl's AgentLoopWorker, as far as the manager sees it."""

    async def _run_agent_loop(
        self, sampling_params: Any, trajectory: Any, **sample: Any
    ) -> Any: ...

    async def _agent_loop_postprocess(self, output: Any, validate: bool, **sample: Any) -> Any: ...


class Manager:
    """verl's AgentLoopManagerTQ."""

    def __init__(self) -> None:
        self.agent_loop_workers_class = ray.remote(Worker)
        self.asked: list[bool] = []

    async def _init_agent_loop_workers(self) -> None:
        async def answer() -> None:
            self.asked.append(True)

        handle = SimpleNamespace(tandem_in_place=SimpleNamespace(remote=answer))
        self.agent_loop_workers = [handle] * 2

    def generate_sequences(self, prompts: Any) -> Any:
        return prompts


class Prompts(dict[str, Any]):
    def __len__(self) -> int:
        return 3


def test_prompts_are_numbered_through_each_step() -> None:
    made: Any = in_tandem(Manager, ManagerInTandem)()

    def numbers(**fields: Any) -> list[int]:
        return made.generate_sequences(Prompts(fields))["tandem_row"].tolist()

    assert numbers(global_steps=1) == [0, 1, 2]
    assert numbers(global_steps=1) == [3, 4, 5]
    assert numbers(global_steps=2) == [0, 1, 2]
    assert numbers(global_steps=2, validate=True) == [0, 1, 2]
    assert numbers(global_steps=2) == [3, 4, 5]
    assert made.generate_sequences(Prompts(global_steps=2, tandem_row=[7]))["tandem_row"] == [7]


def test_workers_are_of_ours_and_are_asked_whether_they_are_in_place() -> None:
    made: Any = in_tandem(Manager, ManagerInTandem)()
    assert issubclass(made.agent_loop_workers_class.__ray_actor_class__, WorkerInTandem)
    asyncio.run(made._init_agent_loop_workers())
    assert made.asked == [True, True]
