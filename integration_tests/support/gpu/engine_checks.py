"""What is checked of engines: greedy tokens, records against replay, weight syncs, juniors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from results import Results

from support import traffic, worker
from support.gpu import in_worker
from support.gpu.cases import Cases
from support.gpu.engines import TANDEM, Asked, Running, adapter, checkpoints, running, tokenizer
from support.gpu.parity import Judge
from support.lora import RANK
from support.metrics import metric

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

    subject: what a case says behind the engine. without: why one cannot be here. options: those of
    :func:`running`.
    """
    for asked in engines:
        cases = Cases(results, f"{asked}{subject}")
        if cases.has(*names):
            continue
        with cases.failing("start"):
            if reason := without and without(asked):
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
    """Greedy tokens beside juniors of other shapes."""
    check_each(results, toy, engines, _check_greedy, ("greedy",))


def check_lora(results: Results, toy: bool, engines: Sequence[Asked]) -> None:
    """Greedy tokens of a senior with an adapter (LoRA), beside the base that it is for."""
    folder, merged = adapter()

    def check(engine: Running, cases: Cases) -> None:
        count, length = (10, 12) if toy else (60, 40)
        jobs = traffic.greedy_jobs("adapter", count, tokenizer(), length, SCHEDULES, gap=0.02)
        for job in jobs:
            job.adapter = str(folder)
        of_merged = _judge_of(merged, checkpoints()["senior"], engine.asked.dtype)
        judge(engine, cases, "greedy", jobs, of_merged)
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


def check_tensor_parallel(results: Results, toy: bool, engines: Sequence[Asked]) -> None:
    """Two GPUs, beside a wider junior: vLLM's fused all-reduce has room for one width."""

    def without(asked: Asked) -> str | None:
        if not toy and torch.cuda.device_count() < 2:
            return "one GPU is here, two are needed"
        return None

    options: dict[str, Any] = {"tensor_parallel_size": 2, "without": without}
    subject = ", tensor_parallel_size=2"
    check_each(results, toy, engines, _check_greedy, ("greedy",), subject=subject, **options)


def _check_graphs(engine: Running, cases: Cases) -> None:
    """Whether the engine captured what was asked for: a backend may not allow it."""
    used = engine.call(in_worker.graph_mode)
    as_asked = used == engine.asked.graphs
    found = f"vLLM uses {used}" + ("" if as_asked else ": what follows holds for that")
    cases.add("graphs", True if as_asked else None, found, used=used)


def _check_greedy(engine: Running, cases: Cases) -> None:
    """More requests than places: prompts come in while others decode, and some decode alone."""
    before = engine.replays() if engine.asked.graphs != "eager" else 0
    count, length = (10, 12) if engine.toy else (60, 40)
    jobs = traffic.greedy_jobs("greedy", count, tokenizer(), length, SCHEDULES, gap=0.02)
    judge(engine, cases, "greedy", jobs, judge_of(engine.asked, engine.asked.senior))
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
    junior = engine.call(worker.junior_digest)
    for check, senior, processed in (
        ("first sync", "trained", False),
        ("second sync", "senior", True),
    ):
        engine.call(worker.sync, str(pair[senior]), 5, processed)
        engine.reset_prefix_cache()
        count, length = (5, 8) if engine.toy else (20, 24)
        jobs = traffic.greedy_jobs(check, count, tokenizer(), length, SCHEDULES, gap=0.02)
        kept = engine.call(worker.junior_digest) == junior
        judge(engine, cases, check, jobs, judge_of(engine.asked, senior), kept=kept)


def judge(
    engine: Running,
    cases: Cases,
    check: str,
    jobs: list[traffic.Job],
    judge: Judge,
    *,
    kept: bool = True,
    enough: bool = True,
    told: str = "",
) -> None:
    """Greedy responses by the rule of :mod:`support.gpu.parity`, and their records.

    judge: of the weights that the senior has. kept: whether the junior has its bits. enough, told:
    what else must hold, and what is said of it.
    """
    responses = engine.send(jobs)
    found = judge.judge(responses)
    report = engine.report(jobs, responses)
    whole = len(responses) == len(jobs)
    sentence = told + found.sentence() + ("" if kept else "; the junior changed")
    sentence += f"; {len(report.mismatches)} records other than the replay"
    cases.add(
        check,
        found.passed and kept and enough and whole and not report.mismatches,
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
