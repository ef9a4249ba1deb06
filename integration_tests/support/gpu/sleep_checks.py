"""What is checked of sleeping engines: weights and authors after waking, and memory given back."""

from __future__ import annotations

from collections.abc import Sequence

from results import Results

from support import sleeping, traffic, worker
from support.gpu import in_worker
from support.gpu.cases import Cases
from support.gpu.engine_checks import SCHEDULES, check_each, judge, judge_of
from support.gpu.engines import Asked, Running, checkpoints, tokenizer

LEAST_GIB = 0.2
"""What a level must give back at least: the KV cache alone has more."""


def check_sleep(results: Results, toy: bool, engines: Sequence[Asked]) -> None:
    """Level 1, and level 2 with a sync of other weights and of the senior's own.

    At toy size a sleep is the stand-in of ``support/sleeping.py``, which knows level 2 alone.
    """

    def check(engine: Running, cases: Cases) -> None:
        if toy:
            engine.call(sleeping.prepare)
        else:
            _check_level_1(engine, cases)
        _check_level_2(engine, cases, "level 2", "trained")
        _check_level_2(engine, cases, "level 2, again", "senior")

    options = {} if toy else {"enable_sleep_mode": True, "num_gpu_blocks_override": 8_000}
    names = ["level 2, again", *([] if toy else ["level 1"])]
    check_each(results, toy, engines, check, names, **options)


def _check_level_1(engine: Running, cases: Cases) -> None:
    junior = engine.call(worker.junior_digest)
    asleep = _sleep(engine, 1)
    engine.running.run(engine.running.engine.wake_up())
    engine.reset_prefix_cache()
    _judge(engine, cases, "level 1", "senior", junior, asleep)


def _check_level_2(engine: Running, cases: Cases, check: str, senior: str) -> None:
    """Weights are woken, then synced, then the cache is woken: as trainers do it."""
    junior = engine.call(worker.junior_digest)
    checkpoint = str(checkpoints()[senior])
    if engine.toy:
        engine.call(sleeping.sleep)
        engine.call(sleeping.wake_up, None)
        engine.call(sleeping.pack_the_junior_anew)
        given = None
    else:
        given = _sleep(engine, 2)
        engine.running.run(engine.running.engine.wake_up(["weights"]))
    engine.call(worker.sync, checkpoint, 1_000)
    if not engine.toy:
        engine.running.run(engine.running.engine.wake_up(["kv_cache"]))
    engine.reset_prefix_cache()
    _judge(engine, cases, check, senior, junior, given)


def _sleep(engine: Running, level: int) -> float:
    """Returns how many GiB of the device it gave back."""
    before = engine.call(in_worker.free_gib)
    engine.running.run(engine.running.engine.sleep(level))
    return float(engine.call(in_worker.free_gib) - before)


def _judge(
    engine: Running, cases: Cases, check: str, senior: str, junior: str, given: float | None
) -> None:
    count, length = (5, 8) if engine.toy else (20, 24)
    jobs = traffic.greedy_jobs(check[::-1], count, tokenizer(), length, SCHEDULES, gap=0.02)
    judge(
        engine,
        cases,
        check,
        jobs,
        judge_of(engine.asked, senior),
        kept=engine.call(worker.junior_digest) == junior,
        enough=given is None or given >= LEAST_GIB,
        told="" if given is None else f"{given:.2f} GiB given back; ",
    )
