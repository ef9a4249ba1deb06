"""Grading's processes: who gets the next one, and what happens where none can be started."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from refused import refused

from tandem_plugin.grading import GradingLimits, pool

pytest.importorskip("sympy")


def test_a_process_that_cannot_start_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_BOOT", "import sys; sys.exit(1)")
    with refused("grading-workers-not-started", output=""):
        pool.WorkerPool(GradingLimits(workers=1)).ask([("1", "1")])


def test_workers_that_die_before_they_work_are_not_awaited_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool._Worker, "has_greeted", lambda self: False)
    workers = pool.WorkerPool(GradingLimits(workers=1))
    with refused("grading-workers-died", attempts=pool._ATTEMPTS):
        workers.ask([("1", "1")])
    assert workers.deaths == {"forkserver": pool._ATTEMPTS}


def test_places_are_given_in_the_order_in_which_they_were_requested() -> None:
    places, served = pool._Places(1), []
    first = places.take()

    def wait(name: int) -> None:
        place = places.take()
        served.append(name)
        places.give(place)

    threads = [threading.Thread(target=wait, args=(name,)) for name in range(20)]
    for count, thread in enumerate(threads, 1):
        thread.start()
        while len(places._waiting) < count:
            time.sleep(0.001)
    places.give(first)
    assert places.take() is None  # requested last
    for thread in threads:
        thread.join()
    assert served == list(range(20))


def test_who_requests_again_and_again_is_not_before_the_others() -> None:
    places, rounds = pool._Places(2), 20

    def longest_wait(_: int) -> int:
        most = 0
        for _round in range(rounds):
            before = count[0]
            place = places.take()
            most = max(most, count[0] - before)
            count[0] += 1
            time.sleep(0.0005)
            places.give(place)
        return most

    count = [0]
    with ThreadPoolExecutor(40) as threads:
        waits = list(threads.map(longest_wait, range(40)))
    assert max(waits) <= 2 * 40  # of 800: a turn of everyone else, and those just before


def test_an_interrupted_wait_loses_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(pool.queue.SimpleQueue):  # type: ignore[type-arg,name-defined]
        def get(self) -> None:  # type: ignore[override]
            raise KeyboardInterrupt

    places = pool._Places(1)
    place = places.take()
    monkeypatch.setattr(pool.queue, "SimpleQueue", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        places.take()
    places.give(place)
    assert places.take() is place
