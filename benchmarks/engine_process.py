"""A vLLM engine in a process of its own that generates when it is asked and sleeps otherwise.

Several can be alive at once, so that what is compared runs in turn, on the same machine in the
same minutes.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from machine import spread_over_cores

SUPPORT = Path(__file__).resolve().parents[1] / "integration_tests"
if str(SUPPORT) not in sys.path:
    sys.path.append(str(SUPPORT))

__all__ = ["ENGINE_ARGUMENTS", "EngineProcess", "Stretch", "environment", "on_runner"]

MODES: dict[str, dict[str, Any] | None] = {
    "off": None,
    "lockstep": {},
    "junior only": {"schedule": "junior"},
}
"""What a request says about tandem besides its seed; a single model gets "off"."""

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


PROMPT = 2
"""Tokens of a prompt: decoding is measured, at short contexts."""


TANDEM: dict[str, Any] = {"schedule": "word"}
"""What every tandem engine is asked for."""


class EngineError(RuntimeError):
    """The engine's process failed."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """What one stretch of decoding took."""

    tokens: int
    seconds: float
    drafted: dict[str, int]
    """Counters of drafting, where there are drafts."""


def environment() -> dict[str, str]:
    """What the engines' processes get on top of this one's environment, all of them alike.

    vLLM's installation guide for CPUs recommends Intel's OpenMP; it is used where it is installed.
    """
    chosen = {
        # The engine in the process itself: nothing polls while another engine is measured.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_LOGGING_LEVEL": "ERROR",
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

        runner: "v1" or "v2", vLLM's choice where None. tandem: settings beside the junior.
        arguments: the engine's, in place of :data:`ENGINE_ARGUMENTS`.
        """
        settings = {} if junior is None else {**TANDEM, "junior": str(junior), **(tandem or {})}
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve,
            args=(theirs, model, settings, runner, {**ENGINE_ARGUMENTS, **arguments}),
            name="engine",
            daemon=False,
        )
        with _environment_for_children(), on_runner(runner):
            self._process.start()
        theirs.close()
        self._receive()

    def decode_speed(self, mode: str, batch: int, steps: int) -> float:
        """Decoded tokens a second of a batch, by the median of ``steps`` steps.

        The step before, in which the prompts are read, does not count.
        """
        time.sleep(0.3)  # the other engines' threads go to sleep 0.2 s after their last work
        times: list[float] = self._ask("decode", mode, batch, steps)
        return batch / statistics.median(times)

    def stretch(self, batch: int, tokens: int, drafts: int | None = None) -> Stretch:
        """Decode responses of ``tokens`` tokens, with ``drafts`` drafts a round where there are.

        The step in which the prompts are read does not count, nor the one in which the first
        response ends.
        """
        time.sleep(0.3)  # as above
        return Stretch(**self._ask("stretch", batch, tokens, drafts))

    def memory(self) -> dict[str, int]:
        """KV blocks, their size in tokens, bytes of weights by model, bytes of the process."""
        found: dict[str, int] = self._ask("memory")
        return found

    def close(self) -> None:
        """End the process."""
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
def on_runner(runner: str | None) -> Iterator[None]:
    """Engines that start within use this model runner; V2 by Triton's interpreter without a GPU."""
    import torch

    if runner is None:
        yield
    elif torch.cuda.is_available():
        with mock.patch.dict(os.environ, {"VLLM_USE_V2_MODEL_RUNNER": str(int(runner == "v2"))}):
            yield
    else:
        from support import engine

        with engine.on_runner(runner):
            yield


@contextmanager
def _environment_for_children() -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(environment())
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _serve(
    connection: Connection,
    model: Path,
    tandem: dict[str, Any],
    runner: str | None,
    arguments: dict[str, Any],
) -> None:
    """In the engine's process: answer until the connection is closed."""
    os.environ.pop("VLLM_CPU_KVCACHE_SPACE", None)  # would override the engine argument
    from vllm import LLM

    with on_runner(runner):
        additional = {"tandem": tandem} if tandem else {}
        llm = LLM(str(model), additional_config=additional, **arguments)
    connection.send("ready")
    answers: dict[str, Callable[..., Any]] = {
        "decode": _decode,
        "stretch": _stretch,
        "memory": _memory,
    }
    while True:
        try:
            kind, *arguments = connection.recv()
            connection.send(answers[kind](llm, *arguments))
        except (EOFError, BrokenPipeError):
            return


def _decode(llm: Any, mode: str, batch: int, steps: int) -> list[float]:
    """Seconds of each step after the first, in which every prompt is read."""
    from vllm import SamplingParams

    engine, tandem = llm.llm_engine, MODES[mode]
    prompts = np.random.default_rng(0).integers(300, 500, (batch, PROMPT)).tolist()
    for row, prompt in enumerate(prompts):
        params = SamplingParams(
            temperature=1.0,
            max_tokens=steps + 1,
            ignore_eos=True,
            detokenize=False,
            extra_args=None if tandem is None else {"tandem": {"seed": row, **tandem}},
        )
        engine.add_request(f"{time.monotonic_ns()}-{row}", {"prompt_token_ids": prompt}, params)
    times = []
    while engine.has_unfinished_requests():
        start = time.perf_counter()
        engine.step()
        times.append(time.perf_counter() - start)
    if len(times) != steps + 1:
        raise EngineError(f"{steps + 1} tokens each took {len(times)} steps: not one batch.")
    return times[1:]


_seeds = itertools.count()
"""No two responses of one engine are drawn alike."""


def _stretch(llm: Any, batch: int, tokens: int, drafts: int | None) -> dict[str, Any]:
    """Fields of a :class:`Stretch`."""
    from vllm import SamplingParams

    engine = llm.llm_engine
    if drafts is not None:
        scheduler = engine.engine_core.engine_core.scheduler
        scheduler.draft_length = _Fixed(drafts)
        scheduler.follow()
    prompts = np.random.default_rng(0).integers(300, 500, (batch, PROMPT)).tolist()
    tandem = bool(engine.vllm_config.additional_config)
    for row, (prompt, seed) in enumerate(zip(prompts, _seeds, strict=False)):
        params = SamplingParams(
            temperature=1.0, seed=seed, max_tokens=tokens, ignore_eos=True, detokenize=False,
            extra_args={"tandem": {"seed": seed}} if tandem else None,
        )  # fmt: skip
        engine.add_request(f"{time.monotonic_ns()}-{row}", {"prompt_token_ids": prompt}, params)
    before = _drafted(llm) if drafts is not None else {}
    written: dict[str, int] = {}
    marks: list[tuple[float, int]] = []  # times at which all have begun and none has ended
    ended = False
    while engine.has_unfinished_requests():
        for output in engine.step():
            written[output.request_id] = len(output.outputs[0].token_ids)
            ended |= output.finished
        if len(written) == batch and not ended:
            marks.append((time.perf_counter(), sum(written.values())))
    after = _drafted(llm) if drafts is not None else {}
    rounds = {name: after[name] - before[name] for name in after}
    (start, before), (stop, done) = marks[0], marks[-1]
    return {"tokens": done - before, "seconds": stop - start, "drafted": rounds}


class _Fixed:
    """A draft length that follows nothing."""

    def __init__(self, drafts: int) -> None:
        self._drafts = drafts

    def observe(self, drafted: int, written: int) -> None:
        """Take in a round."""

    def choose(self) -> int:
        """The length of the next round."""
        return self._drafts


def _drafted(llm: Any) -> dict[str, int]:
    from tandem_plugin.engine.names import TELL_OF_DRAFTS

    return dict(llm.collective_rpc(TELL_OF_DRAFTS)[0])


def _memory(llm: Any) -> dict[str, int]:
    cache = llm.llm_engine.vllm_config.cache_config
    (weights,) = llm.apply_model(_weights)
    status = Path("/proc/self/status").read_text().splitlines()
    resident = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))
    return {
        "blocks": cache.num_gpu_blocks,
        "block_size": cache.block_size,
        "resident_bytes": resident,
        **weights,
    }


def _weights(model: Any) -> dict[str, int]:
    def size(part: Any) -> int:
        return sum(p.numel() * p.element_size() for p in part.parameters())

    junior = getattr(model, "junior", None)
    return {
        "senior_bytes": size(model),
        "junior_bytes": 0 if junior is None else size(junior),
    }
