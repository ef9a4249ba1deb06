"""A vLLM engine in a process of its own that generates when it is asked and sleeps otherwise.

Several can be alive at once, so that what is compared runs in turn, on the same machine in the
same minutes.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from engine_work import OFF, PROMPT, EngineError, StartError, on_runner, serve
from machine import spread_over_cores

__all__ = [
    "ENGINE_ARGUMENTS",
    "OFF",
    "PROMPT",
    "EngineError",
    "EngineProcess",
    "StartError",
    "Stretch",
    "environment",
]

ENGINE_ARGUMENTS: dict[str, Any] = {
    "dtype": "float32",
    "enforce_eager": True,
    "max_model_len": 256,
    "max_num_seqs": 64,
    "max_num_batched_tokens": 1024,
    "enable_prefix_caching": False,
    "kv_cache_memory_bytes": 2**30,
    "disable_log_stats": True,
}
"""The same for every engine; tandem comes on top."""


TANDEM: dict[str, Any] = {"schedule": "word"}
"""What every tandem engine is asked for."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """What one stretch of decoding took."""

    tokens: int
    seconds: float
    """By :class:`KernelClock`."""
    wall_seconds: float
    drafted: dict[str, int]
    """Counters of drafting, where there are drafts."""


def environment() -> dict[str, str]:
    """What the engines' processes get on top of this one's environment, all of them alike.

    vLLM's installation guide for CPUs recommends Intel's OpenMP; it is used where it is installed.
    """
    chosen = {
        # The engine in the process itself: nothing polls while another engine is measured.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        # On a GPU the log says why an engine starts slowly, and what it captures.
        "VLLM_LOGGING_LEVEL": "INFO" if torch.cuda.is_available() else "ERROR",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": str(spread_over_cores()),
    }
    openmp = Path(sys.prefix) / "lib" / "libiomp5.so"
    if openmp.exists():
        chosen["LD_PRELOAD"] = str(openmp)
    return chosen


class EngineProcess:
    """One engine: ``model`` alone, or in tandem with ``junior``."""

    def __init__(
        self,
        model: Path,
        junior: Path | None = None,
        *,
        runner: str | None = None,
        tandem: dict[str, Any] | None = None,
        **arguments: Any,
    ) -> None:
        """Start one, and wait until it is ready.

        Raises :class:`StartError` with the engine's own sentence where it does not start.

        runner: "v1" or "v2", vLLM's choice where None. tandem: settings beside the junior.
        arguments: the engine's, in place of :data:`ENGINE_ARGUMENTS`.
        """
        settings = {} if junior is None else {**TANDEM, "junior": str(junior), **(tandem or {})}
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=serve,
            args=(theirs, model, settings, runner, {**ENGINE_ARGUMENTS, **arguments}),
            name="engine",
            daemon=False,
        )
        with _environment_for_children(), on_runner(runner):
            self._process.start()
        theirs.close()
        if refused := self._receive():
            self.close()
            raise StartError(refused)

    def stretch(
        self, batch: int, tokens: int, drafts: int | None = None, schedule: str | None = None
    ) -> Stretch:
        """Decode responses of ``tokens`` tokens, with ``drafts`` drafts a round where there are.

        schedule: in place of the engine's; :data:`OFF` for the senior alone.
        The step in which the prompts are read does not count, nor the one in which the first
        response ends.
        """
        time.sleep(0.3)  # the other engines' threads go to sleep 0.2 s after their last work
        return Stretch(**self._ask("stretch", batch, tokens, drafts, schedule))

    def memory(self) -> dict[str, int]:
        """KV blocks, their size in tokens, bytes of weights by model, of the process, of a GPU."""
        found: dict[str, int] = self._ask("memory")
        return found

    def sync(self, checkpoint: Path, rounds: int) -> list[float]:
        """Seconds of each weight sync, from tensors that lie on the engine's device."""
        times: list[float] = self._ask("sync", str(checkpoint), rounds)
        return times

    def sleep(self, level: int, checkpoint: Path) -> dict[str, float]:
        """Sleep and wake up once: seconds ``sleep`` and ``wake``, ``gib_given_back``.

        checkpoint: what the senior is synced from after level 2.
        """
        found: dict[str, float] = self._ask("sleep", level, str(checkpoint))
        return found

    def runner(self) -> str:
        """The model runner that it has: "V1" or "V2"."""
        return str(self._ask("runner"))

    def close(self) -> None:
        """End the process."""
        if not self._connection.closed:
            self._connection.close()
        self._process.join(20)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, *request: Any) -> Any:
        self._connection.send(request)
        return self._receive()

    def _receive(self) -> Any:
        try:
            return self._connection.recv()
        except EOFError:
            self._process.join()
            raise EngineError(
                f"The engine's process ended with exit code {self._process.exitcode}: its error "
                "is above."
            ) from None


@contextmanager
def _environment_for_children() -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(environment())
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
