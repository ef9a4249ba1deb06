"""What is checked of engines: greedy tokens, records against replay, weight syncs, juniors."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from results import Results

from support import traffic, worker
from support.gpu import in_worker
from support.gpu.cases import Cases
from support.gpu.engines import TANDEM, Asked, Running, adapter, checkpoints, running, tokenizer
from support.gpu.parity import Judge
from support.lora import RANK
from support.metrics import metric
from tandem_plugin.errors import EngineError

__all__ = [
    "check_each",
    "check_engines",
    "check_juniors",
    "check_large",
    "check_lora",
    "check_tensor_parallel",
    "check_waits",
    "check_warm_start",
    "missing",
]

SCHEDULES: list[dict[str, Any]] = [
    {},
    {"p": 0.3, "cap": 9},
    {"schedule": "token"},
    {"schedule": "junior"},
    {"schedule": "solo"},
]


def check_each(
    results: Results,
    toy: bool,
    engines: Sequence[Asked],
    check: Callable[[Running, Cases], None],
    names: Sequence[str],
    *,
    subject: str = "",
    without: Callable[[Asked], str | None] | None = None,
    **options: Any,
) -> None:
    """Start each engine and check it, where not all checks of these names passed before.

    subject: what a case says behind the engine. without: why one cannot be here; :func:`missing`
    where None. options: those of :func:`running`.
    """
    for asked in engines:
        cases = Cases(results, f"{asked}{subject}")
        if cases.has(*names):
            continue
        with cases.failing("start"):
            if reason := (without or missing)(asked):
                cases.add("all", None, reason)
                continue
            with running(asked, toy, **options) as engine:
                check(engine, cases)


def check_engines(results: Results, toy: bool, engines: Sequence[Asked]) -> None:
    """All checks of each engine."""

    def check(engine: Running, cases: Cases) -> None:
        if engine.asked.graphs != "eager" and not toy:
            _check_graphs(engine, cases)
        _check_greedy(engine, cases)
        _check_traffic(engine, cases)
        _check_syncs(engine, cases)

    check_each(results, toy, engines, check, ("greedy", "traffic", "first sync", "second sync"))


def check_juniors(results: Results, toy: bool, engines: Sequence[Asked]) -> None:
    """Greedy tokens beside juniors of other shapes; one that this vLLM cannot run is refused."""
    for asked in engines:
        cases = Cases(results, str(asked))
        if cases.has("greedy"):
            continue
        with cases.failing("start"):
            if without := missing(asked):
                cases.add("all", None, without)
                continue
            try:
                with running(asked, toy) as engine:
                    _check_greedy(engine, cases)
            except EngineError as error:
                if "plans GPU attention only for the senior's shapes" not in str(error):
                    raise
                cases.add("greedy", True, f"refused, as it must be before vLLM 0.29: {error}")


def check_lora(results: Results, toy: bool, engines: Sequence[Asked]) -> None:
    """Greedy tokens of a senior with an adapter (LoRA), beside the base that it is for."""
    folder, merged = adapter()

    def check(engine: Running, cases: Cases) -> None:
        count, length = (10, 12) if toy else (60, 40)
        jobs = traffic.greedy_jobs("adapter", count, tokenizer(), length, SCHEDULES, gap=0.02)
        for job in jobs:
            job.adapter = str(folder)
        judge = _judge_of(merged, checkpoints()["senior"], engine.asked.dtype)
        _judge(engine, cases, "greedy", jobs, judge)
        junior = engine.call(worker.bytes_of_the_juniors_own)
        cases.add("one base", junior == 0, f"{junior:,} bytes of weights are the junior's own")

    options = {"enable_lora": True, "max_lora_rank": RANK}
    names, subject = ("greedy", "one base"), ", with an adapter"
    check_each(results, toy, engines, check, names, subject=subject, **options)


def check_waits(results: Results, toy: bool, engines: Sequence[Asked]) -> None:
    """That the host never waits for the device in tandem's part of a step, by PyTorch's own mode.

    At toy size the stand-in for CUDA graphs watches the same functions.
    """

    def check(engine: Running, cases: Cases) -> None:
        if not toy:
            engine.call(in_worker.refuse_waiting)
        _check_greedy(engine, cases)
        _check_traffic(engine, cases)

    subject = ", waiting is an error"
    check_each(results, toy, engines, check, ("greedy", "traffic"), subject=subject)


def check_large(results: Results, toy: bool, engines: Sequence[Asked]) -> None:
    """Batches above the largest CUDA graph, and as many token ids as a real model has."""
    options: dict[str, Any] = {"max_num_seqs": 32, "max_num_batched_tokens": 512}
    options |= {"max_model_len": 256, "sizes": [1, 2, 4, 8], "tight": False}
    check = partial(_check_greedy, gap=0.0)
    subject = ", 32 requests, graphs of 8"
    check_each(results, toy, engines, check, ("greedy",), subject=subject, **options)


def check_tensor_parallel(results: Results, toy: bool, engines: Sequence[Asked]) -> None:
    """Two GPUs, beside a wider junior: vLLM's fused all-reduce has room for one width."""

    def without(asked: Asked) -> str | None:
        if not toy and torch.cuda.device_count() < 2:
            return "one GPU is here, two are needed"
        return missing(asked)

    options: dict[str, Any] = {"tensor_parallel_size": 2, "without": without}
    subject = ", tensor_parallel_size=2"
    check_each(results, toy, engines, _check_greedy, ("greedy",), subject=subject, **options)


def check_warm_start(results: Results, toy: bool, engines: Sequence[Asked]) -> None:
    """A second start loads what the first one compiled, with another record."""
    for asked in engines:
        cases = Cases(results, f"{asked}, started twice")
        if cases.has("cold", "warm"):
            continue
        with (
            cases.failing("start"),
            tempfile.TemporaryDirectory(prefix="tandem-cache-") as cache,
            mock.patch.dict(os.environ, VLLM_CACHE_ROOT=cache),
        ):
            for start in ("cold", "warm"):
                begin = time.monotonic()
                with running(asked, toy) as engine:
                    seconds = round(time.monotonic() - begin, 1)
                    counts = engine.call(in_worker.compilations)
                    wanted = toy or start == "cold" or (counts["loaded"] and not counts["compiled"])
                    found = f"started in {seconds} s: {counts}"
                    cases.add(start, bool(wanted), found, seconds=seconds, **counts)
                    _check_greedy(engine, Cases(results, f"{asked}, {start}"))


def missing(asked: Asked) -> str | None:
    """Why this vLLM has no such engine, by what the engine itself would say."""
    if asked.mode != "speculative":
        return None
    from vllm.engine.arg_utils import EngineArgs

    from support.engine import engine_settings, on_runner

    pair = checkpoints()
    tandem = {"mode": "speculative", "junior": pair["junior"]}
    with on_runner(asked.runner):
        try:
            EngineArgs(str(pair["senior"]), **engine_settings(tandem)).create_engine_config()
        except EngineError as error:
            if "use vLLM" not in str(error):
                raise
            return str(error)
    return None


def _check_graphs(engine: Running, cases: Cases) -> None:
    """Whether the engine captured what was asked for: a backend may not allow it."""
    used = engine.call(in_worker.graph_mode)
    as_asked = used == engine.asked.graphs
    found = f"vLLM uses {used}" + ("" if as_asked else ": what follows holds for that")
    cases.add("graphs", True if as_asked else None, found, used=used)


def _check_greedy(engine: Running, cases: Cases, gap: float = 0.02) -> None:
    """More requests than places: prompts come in while others decode, and some decode alone."""
    before = engine.replays() if engine.asked.graphs != "eager" else 0
    count, length = (10, 12) if engine.toy else (60, 40)
    jobs = traffic.greedy_jobs("greedy", count, tokenizer(), length, SCHEDULES, gap=gap)
    _judge(engine, cases, "greedy", jobs, judge_of(engine.asked, engine.asked.senior))
    if engine.asked.graphs != "eager":
        replayed = engine.replays() - before
        cases.add("replayed graphs", replayed > 0, f"{replayed:,} during the greedy check")


def _check_traffic(engine: Running, cases: Cases) -> None:
    """Sampling parameters, lengths, arrivals and aborts at random: record, replay, nothing lost."""
    before = metric("vllm:num_preemptions_total")
    count = 24 if engine.toy else 300
    jobs = traffic.random_jobs(
        count, tokenizer(), 5, longest=16 if engine.toy else 48, arrival=0.005,
        seeded=engine.asked.runner == "v2" or not engine.toy,
        drafted=engine.asked.mode == "speculative",
    )  # fmt: skip
    responses = engine.send(jobs)
    report = engine.report(jobs, responses)
    preempted = int(metric("vllm:num_preemptions_total") - before)
    wrong = [*report.mismatches, *report.lost]
    cases.add(
        "traffic",
        not wrong and report.tokens > 0 and (engine.toy or preempted > 0),
        f"{report.requests} requests, {report.samples} responses, {report.tokens:,} tokens, "
        f"{preempted} preemptions, {report.aborted} aborted; {len(report.mismatches)} records "
        f"other than the replay, {len(report.lost)} requests lost"
        + "".join(f"; {one}" for one in wrong[:5]),
        preemptions=preempted,
        tokens=report.tokens,
    )


def _check_syncs(engine: Running, cases: Cases) -> None:
    """The senior becomes another and itself again; the junior keeps every bit."""
    pair = checkpoints()
    junior = engine.call(in_worker.junior_digest)
    for check, senior, processed in (
        ("first sync", "trained", False),
        ("second sync", "senior", True),
    ):
        engine.call(worker.sync, str(pair[senior]), 5, processed)
        engine.reset_prefix_cache()
        count, length = (5, 8) if engine.toy else (20, 24)
        jobs = traffic.greedy_jobs(check, count, tokenizer(), length, SCHEDULES, gap=0.02)
        kept = engine.call(in_worker.junior_digest) == junior
        _judge(engine, cases, check, jobs, judge_of(engine.asked, senior), kept=kept)


def _judge(
    engine: Running,
    cases: Cases,
    check: str,
    jobs: list[traffic.Job],
    judge: Judge,
    *,
    kept: bool = True,
) -> None:
    """Greedy responses by the rule of :mod:`support.gpu.parity`, and their records.

    judge: of the weights that the senior has. kept: whether the junior has its bits.
    """
    responses = engine.send(jobs)
    found = judge.judge(responses)
    report = engine.report(jobs, responses)
    whole = len(responses) == len(jobs)
    sentence = found.sentence() + ("" if kept else "; the junior changed")
    sentence += f"; {len(report.mismatches)} records other than the replay"
    cases.add(
        check,
        found.passed and kept and whole and not report.mismatches,
        sentence if whole else f"{len(responses)} of {len(jobs)} responses; {sentence}",
        tokens=found.tokens,
        likeliest=found.likeliest,
        largest=found.largest,
        allowed=found.allowed,
        telling=found.telling,
    )


def judge_of(asked: Asked, senior: str) -> Judge:
    """The judge of an engine whose senior has this checkpoint's weights."""
    pair = checkpoints()
    return _judge_of(pair[senior], pair[asked.junior], asked.dtype)


_judges: dict[tuple[Path, Path, str], Judge] = {}


def _judge_of(senior: Path, junior: Path, dtype: str) -> Judge:
    key = senior, junior, dtype
    if key not in _judges:
        _judges[key] = Judge(senior, junior, dtype, TANDEM, tokenizer())
    return _judges[key]
