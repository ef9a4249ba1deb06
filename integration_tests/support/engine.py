"""Small tandem engines on either of vLLM's model runners, ended when they are no longer needed."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar
from unittest import mock

from support.device import engine_arguments, is_gpu

T = TypeVar("T")

RUNNERS = ("v1", "v2")
V2_ON_CPU = Path(__file__).parent / "v2_on_cpu"
# vLLM's CPU build takes an executor with a process of its own, to bind its threads to cores; named
# by its path, this one stays, and an engine starts in half the time.
ONE_PROCESS = "vllm.v1.executor.uniproc_executor.UniProcExecutor"


class Restarted(Generic[T]):
    """What tests of a module share, started anew where it died in one of them."""

    def __init__(
        self, start: Callable[[], AbstractContextManager[T]], is_dead: Callable[[T], bool]
    ) -> None:
        self._start, self._is_dead = start, is_dead
        self._stack = ExitStack()
        self._running: T | None = None

    def get(self) -> T:
        if self._running is not None and self._is_dead(self._running):
            self.close()
        if self._running is None:
            self._running = self._stack.enter_context(self._start())
        return self._running

    def close(self) -> None:
        self._running = None
        self._stack.close()


@contextmanager
def on_runner(runner: str) -> Iterator[None]:
    """Engines that start within use this model runner: V2 without a GPU by Triton's interpreter."""
    import torch

    if runner == "v1" or torch.cuda.is_available():
        variables = {"VLLM_USE_V2_MODEL_RUNNER": str(int(runner == "v2"))}
        if torch.cuda.is_available():
            variables["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"
        with mock.patch.dict(os.environ, variables):
            yield
        return
    import vllm.config.vllm as config

    # The front end only looks whether there is a Triton; kernels run in the engine's processes.
    with mock.patch.dict(os.environ, v2_variables()), mock.patch.object(config, "HAS_TRITON", True):
        yield


def v2_variables(*folders: Path) -> dict[str, str]:
    """Variables with which processes take Model Runner V2; folders: further ones to import from."""
    path = [V2_ON_CPU, *folders, os.environ.get("PYTHONPATH")]
    return {
        "TANDEM_TEST_RUNNER": "v2",
        "VLLM_USE_V2_MODEL_RUNNER": "1",
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "PYTHONPATH": os.pathsep.join(str(part) for part in path if part),
    }


def engine_settings(tandem: dict[str, Any] | None, **options: Any) -> dict[str, Any]:
    """Engine arguments for a small CPU machine or a shared GPU; without tandem for None."""
    settings: dict[str, Any] = {
        "enforce_eager": True,
        "max_model_len": 256,
        "max_num_seqs": 16,
        "dtype": "float32",
        **engine_arguments(),
    }
    if options.get("tensor_parallel_size", 1) == 1 and not is_gpu():
        settings["distributed_executor_backend"] = ONE_PROCESS
    if tandem is not None:
        settings["additional_config"] = {
            "tandem": {k: str(v) if isinstance(v, Path) else v for k, v in tandem.items()}
        }
    return settings | options


@dataclass
class AsyncEngine:
    """An ``AsyncLLM`` and the event loop that it lives in."""

    engine: Any
    loop: asyncio.AbstractEventLoop

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)


@contextmanager
def async_engine(
    runner: str,
    senior: Path,
    tandem: dict[str, Any] | None,
    *,
    async_scheduling: bool | None,
    **options: Any,
) -> Iterator[AsyncEngine]:
    """A ``vllm.v1.engine.async_llm.AsyncLLM`` in tandem (or not, for None).

    async_scheduling: None leaves it to vLLM.
    """
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    with on_runner(runner):
        arguments = AsyncEngineArgs(str(senior), **engine_settings(tandem, **options))
        config = arguments.create_engine_config()
        if async_scheduling is not None:
            # vLLM's CPU platform turns it off, although it works there.
            config.scheduler_config.async_scheduling = async_scheduling
        running = AsyncEngine(AsyncLLM.from_vllm_config(config), asyncio.new_event_loop())
        try:
            yield running
        finally:
            running.run(_shut_down(running.engine))
            running.loop.close()


async def _shut_down(engine: Any) -> None:
    """Within the engine's loop: its sockets are closed there, and must be before they are freed."""
    engine.shutdown()
    await asyncio.sleep(0)
    await asyncio.sleep(0)


@contextmanager
def tandem_engine(
    runner: str, senior: Path, tandem: dict[str, Any] | None, **options: Any
) -> Iterator[Any]:
    """A ``vllm.LLM`` in tandem (or not, for None)."""
    from vllm import LLM

    with on_runner(runner):
        engine = LLM(str(senior), **engine_settings(tandem, **options))
        try:
            yield engine
        finally:
            engine.llm_engine.engine_core.shutdown()
            del engine
            gc.collect()
