"""What an engine's own process does when it is asked: decode, and answer for its weights."""

from __future__ import annotations

import itertools
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from engine_weights import memory, sleep, sync

SUPPORT = Path(__file__).resolve().parents[1] / "integration_tests"
if str(SUPPORT) not in sys.path:
    sys.path.append(str(SUPPORT))

__all__ = ["OFF", "PROMPT", "EngineError", "StartError", "on_runner", "serve"]

OFF = "off"
"""In place of a schedule: the senior alone."""

PROMPT = 2
"""Tokens of a prompt: decoding is measured, at short contexts."""


class EngineError(RuntimeError):
    """The engine's process failed."""


class StartError(EngineError):
    """The engine did not start, by its own sentence."""


@contextmanager
def on_runner(runner: str | None) -> Iterator[None]:
    """Engines that start within use this model runner, or the one that vLLM chooses."""
    if runner is None:
        yield
        return
    from support import engine

    with engine.on_runner(runner):
        yield


def serve(
    connection: Connection,
    model: Path,
    tandem: dict[str, Any],
    runner: str | None,
    arguments: dict[str, Any],
) -> None:
    """In the engine's process: answer until the connection is closed."""
    os.environ.pop("VLLM_CPU_KVCACHE_SPACE", None)  # would override the engine argument
    try:
        llm = _start(model, tandem, runner, arguments)
    except Exception as error:
        traceback.print_exc()
        connection.send(f"The engine did not start: {error}")
        return
    connection.send(None)
    answers: dict[str, Callable[..., Any]] = {
        "stretch": _stretch,
        "memory": memory,
        "runner": _runner,
        "sync": sync,
        "sleep": sleep,
    }
    while True:
        try:
            kind, *arguments = connection.recv()
            connection.send(answers[kind](llm, *arguments))
        except (EOFError, BrokenPipeError):
            return


def _start(
    model: Path, tandem: dict[str, Any], runner: str | None, arguments: dict[str, Any]
) -> Any:
    from vllm import LLM

    with on_runner(runner):
        additional = {"tandem": tandem} if tandem else {}
        return LLM(str(model), additional_config=additional, **arguments)


class KernelClock:
    """Seconds in which no kernel was interpreted, in this process, since it was made.

    On a CPU, Model Runner V2's Triton kernels run in Triton's interpreter: milliseconds for each
    row of what takes a GPU microseconds in all, and nearly the whole step of a small model. Where
    kernels are compiled, this clock is the wall's.
    """

    def __init__(self) -> None:
        self.interpreted = 0.0
        """Seconds in the interpreter so far."""
        if os.environ.get("TRITON_INTERPRET") == "1":
            self._watch()

    def perf_counter(self) -> float:
        """As ``time.perf_counter``, in whose place it can stand."""
        return time.perf_counter() - self.interpreted

    def _watch(self) -> None:
        from triton.runtime.interpreter import GridExecutor

        launch = GridExecutor.__call__

        def timed(executor: Any, *arguments: Any, **options: Any) -> Any:
            start = time.perf_counter()
            try:
                return launch(executor, *arguments, **options)
            finally:
                self.interpreted += time.perf_counter() - start

        GridExecutor.__call__ = timed


_clock = KernelClock()


_seeds = itertools.count()
"""No two responses of one engine are drawn alike."""


def _stretch(
    llm: Any, batch: int, tokens: int, drafts: int | None, schedule: str | None
) -> dict[str, Any]:
    """Fields of a :class:`Stretch`."""
    from vllm import SamplingParams

    engine = llm.llm_engine
    _choose_drafts(engine, drafts)
    prompts = np.random.default_rng(0).integers(300, 500, (batch, PROMPT)).tolist()
    tandem = engine.vllm_config.additional_config.get("tandem")
    drafting = bool(tandem) and tandem.get("mode") == "speculative"
    # Model Runner V1 samples rows that have a seed one by one.
    seeded = _runner(llm) == "V2"
    own = {} if schedule is None else {"schedule": schedule}
    in_tandem = bool(tandem) and schedule != OFF
    for row, (prompt, seed) in enumerate(zip(prompts, _seeds, strict=False)):
        params = SamplingParams(
            temperature=1.0, seed=seed if seeded else None, max_tokens=tokens, ignore_eos=True,
            detokenize=False, extra_args={"tandem": {"seed": seed, **own}} if in_tandem else None,
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


def _choose_drafts(engine: Any, drafts: int | None) -> None:
    """Let each round have so many drafts, in an engine with a table of them; None leaves it."""
    scheduler = engine.engine_core.engine_core.scheduler
    table = getattr(scheduler, "dynamic_sd_lookup", None)
    if drafts is not None and table is not None:
        scheduler.dynamic_sd_lookup = [drafts] * len(table)


def _drafted(llm: Any) -> dict[str, int]:
    from tandem_plugin.engine.wire_names import RPC_DRAFT_STATS

    return dict(llm.collective_rpc(RPC_DRAFT_STATS)[0])
