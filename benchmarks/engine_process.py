"""A vLLM engine in a process of its own that generates when it is asked and sleeps otherwise.

Several can be alive at once, so that what is compared runs in turn, on the same machine in the
same minutes. The second half of this file is what the engine's process does.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeAlias
from unittest import mock

import engine_weights
import numpy as np
import torch

SUPPORT = Path(__file__).resolve().parents[1] / "integration_tests"
if str(SUPPORT) not in sys.path:
    sys.path.append(str(SUPPORT))

PROMPT = 2
"""Tokens of a prompt: decoding is measured, at short contexts."""

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


Prompts: TypeAlias = list[list[int]] | None
Own: TypeAlias = Mapping[str, Any] | None


class StartError(RuntimeError):
    """The engine did not start, by its own sentence."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """What one stretch of decoding took."""

    tokens: int
    seconds: float
    """By :class:`KernelClock`."""
    wall_seconds: float
    drafted: dict[str, int]
    """Counters of drafting, where there are drafts."""


def draft_figures(counters: Mapping[str, int]) -> dict[str, Any]:
    """What became of drafts, of counters that may be summed over stretches; {} without any."""
    from tandem_plugin.engine.wire import DraftStats

    if not counters:
        return {}
    drafted = DraftStats(**counters)
    return {
        "counters": dict(counters),
        "acceptance": drafted.acceptance,
        "tokens_per_round": drafted.tokens_per_round,
    }


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
        "OMP_NUM_THREADS": str(len(os.sched_getaffinity(0))),
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
        settings = (
            {} if junior is None else {"schedule": "word", "junior": str(junior), **(tandem or {})}
        )
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve,
            args=(theirs, model, settings, runner, {**ENGINE_ARGUMENTS, **arguments}),
            name="engine",
            daemon=False,
        )
        with mock.patch.dict(os.environ, environment()), _on_runner(runner):
            self._process.start()
        theirs.close()
        if refused := self._receive():
            self.close()
            raise StartError(refused)

    def stretch(self, batch: int, tokens: int, own: Own = None, prompts: Prompts = None) -> Stretch:
        """Decode responses of ``tokens`` tokens.

        own: tandem's settings of these requests, in place of the engine's. prompts: token ids,
        random ones if there are none.
        The step in which the prompts are read does not count, nor the one in which the first
        response ends.
        """
        time.sleep(0.3)  # the other engines' threads go to sleep 0.2 s after their last work
        return Stretch(**self.ask("stretch", batch, tokens, own, prompts))

    def ask(self, kind: str, *arguments: Any) -> Any:
        """What :mod:`engine_weights` has under this name, run in the engine's process; ``runner``
        for its model runner, "V1" or "V2"."""
        self._connection.send((kind, *arguments))
        return self._receive()

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

    def _receive(self) -> Any:
        try:
            return self._connection.recv()
        except EOFError:
            self._process.join()
            raise RuntimeError(
                f"The engine's process ended with exit code {self._process.exitcode}: its error "
                "is above."
            ) from None


def _on_runner(runner: str | None) -> AbstractContextManager[None]:
    """Engines that start within use this model runner, or the one that vLLM chooses."""
    if runner is None:
        return nullcontext()
    from support import engine

    found: AbstractContextManager[None] = engine.on_runner(runner)
    return found


def _serve(
    connection: Connection,
    model: Path,
    tandem: dict[str, Any],
    runner: str | None,
    arguments: dict[str, Any],
) -> None:
    """In the engine's process: answer until the connection is closed."""
    os.environ.pop("VLLM_CPU_KVCACHE_SPACE", None)  # would override the engine argument
    try:
        from vllm import LLM

        with _on_runner(runner):
            llm = LLM(
                str(model), additional_config={"tandem": tandem} if tandem else {}, **arguments
            )
    except Exception as error:
        traceback.print_exc()
        connection.send(f"The engine did not start: {error}")
        return
    connection.send(None)
    answers = {name: getattr(engine_weights, name) for name in ("memory", "sync", "sleep")}
    answers |= {"stretch": _stretch, "runner": _runner}
    while True:
        try:
            kind, *arguments = connection.recv()
            connection.send(answers[kind](llm, *arguments))
        except (EOFError, BrokenPipeError):
            return


class KernelClock:
    """Seconds in which no kernel was interpreted, in this process, since it was made.

    On a CPU, Model Runner V2's Triton kernels run in Triton's interpreter: milliseconds for each
    row of what takes a GPU microseconds in all, and nearly the whole step of a small model. Where
    kernels are compiled, this clock is the wall's.
    """

    def __init__(self) -> None:
        self._interpreted = 0.0
        if os.environ.get("TRITON_INTERPRET") != "1":
            return
        from triton.runtime.interpreter import GridExecutor

        launch = GridExecutor.__call__

        def timed(executor: Any, *arguments: Any, **options: Any) -> Any:
            start = time.perf_counter()
            try:
                return launch(executor, *arguments, **options)
            finally:
                self._interpreted += time.perf_counter() - start

        GridExecutor.__call__ = timed

    def perf_counter(self) -> float:
        """As ``time.perf_counter``."""
        return time.perf_counter() - self._interpreted


_clock = KernelClock()

_seeds = itertools.count()
"""No two responses of one engine are drawn alike."""


def _stretch(llm: Any, batch: int, tokens: int, own: Own, prompts: Prompts) -> dict[str, Any]:
    """Fields of a :class:`Stretch`."""
    from vllm import SamplingParams

    engine = llm.llm_engine
    prompts = prompts or np.random.default_rng(0).integers(300, 500, (batch, PROMPT)).tolist()
    tandem = engine.vllm_config.additional_config.get("tandem")
    drafting = bool(tandem) and tandem.get("mode") == "speculative"
    # Model Runner V1 samples rows that have a seed one by one.
    seeded = _runner(llm) == "V2"
    for row, (prompt, seed) in enumerate(zip(prompts[:batch], _seeds, strict=False)):
        params = SamplingParams(
            temperature=1.0, seed=seed if seeded else None, max_tokens=tokens, ignore_eos=True,
            detokenize=False,
            extra_args={"tandem": {"seed": seed, **(own or {})}} if tandem else None,
        )  # fmt: skip
        engine.add_request(f"{time.monotonic_ns()}-{row}", {"prompt_token_ids": prompt}, params)
    before = _drafted(llm) if drafting else {}
    written: dict[str, int] = {}
    # By both clocks, and the tokens: when all have begun and none has ended.
    marks: list[tuple[float, float, int]] = []
    ended = False
    while engine.has_unfinished_requests():
        for output in engine.step():
            written[output.request_id] = len(output.outputs[0].token_ids)
            ended |= output.finished
        if len(written) == batch and not ended:
            marks.append((_clock.perf_counter(), time.perf_counter(), sum(written.values())))
    after = _drafted(llm) if drafting else {}
    rounds = {name: after[name] - before[name] for name in after}
    seconds, wall, tokens = (last - first for first, last in zip(marks[0], marks[-1], strict=True))
    return {"tokens": tokens, "seconds": seconds, "wall_seconds": wall, "drafted": rounds}


def _runner(llm: Any) -> str:
    return "V2" if getattr(llm.llm_engine.vllm_config, "use_v2_model_runner", False) else "V1"


def _drafted(llm: Any) -> dict[str, int]:
    from tandem_plugin.engine.wire import RPC_DRAFT_STATS

    return dict(llm.collective_rpc(RPC_DRAFT_STATS)[0])
