"""The grader's processes: killed, forked, inherited, left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tandem_plugin.grading import Grader, GradingLimits

RADICAL, RADICAL_GOLD = r"\boxed{\sqrt{8}}", r"2\sqrt{2}"
ENDLESS = r"\boxed{\sum_{k=1}^{99999}\frac{1}{k^{1.5}+\sin k}}"


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader(GradingLimits(seconds=1.5, workers=2)) as shared:
        yield shared


def test_a_killed_worker_costs_its_answer_and_is_replaced():
    with Grader(GradingLimits(seconds=2, workers=1)) as grader:
        nursery = grader._pool.start().process.pid
        killer = threading.Thread(target=signal_first_child, args=(nursery, signal.SIGKILL, []))
        killer.start()
        grade = grader.grade(ENDLESS, r"\sqrt{2}")
        killer.join()
        assert (grade.outcome, grade.rule) == ("timeout", "worker_died")
        assert grader.grade(RADICAL, RADICAL_GOLD).outcome == "correct"
        assert grader.deaths == {"worker_died": 1}


def test_a_worker_that_stands_still_is_killed_at_the_wall_limit():
    with Grader(GradingLimits(seconds=0.6, workers=1)) as grader:
        nursery = grader._pool.start().process.pid
        stopped: list[int] = []
        stopper = threading.Thread(
            target=signal_first_child, args=(nursery, signal.SIGSTOP, stopped), daemon=True
        )
        stopper.start()
        grade = grader.grade(ENDLESS, r"\sqrt{2}")
        stopper.join()
        assert (grade.outcome, grade.rule) == ("timeout", "time_limit")
        assert grade.milliseconds < 1000 * (6 * 0.6 + 1)
        assert grader.grade(RADICAL, RADICAL_GOLD).outcome == "correct"
        deadline = time.monotonic() + 60
        while is_running(stopped[0]):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def signal_first_child(nursery: int, sent: signal.Signals, signalled: list[int]) -> None:
    """Signal the first worker that is at work."""
    children = Path(f"/proc/{nursery}/task/{nursery}/children")
    while not (found := children.read_text().split()) or ticks(found[0]) < 30:
        time.sleep(0.01)
    os.kill(int(found[0]), sent)
    signalled.append(int(found[0]))


def ticks(pid: str) -> int:
    """The CPU time of a process, in hundredths of a second: a worker at work has some."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11])


def test_a_dead_nursery_is_replaced(grader: Grader):
    nursery = grader._pool.start().process.pid
    os.kill(nursery, signal.SIGKILL)
    time.sleep(0.05)
    outcomes = [grader.grade(RADICAL, RADICAL_GOLD).outcome for _ in range(4)]
    assert outcomes[-1] == "correct"
    assert set(outcomes) <= {"correct", "timeout"}
    assert grader._pool.start().process.pid != nursery


def test_memory_is_limited():
    # Without the guard on size this needs gigabytes; here the limit itself is under test.
    with Grader(GradingLimits(seconds=3, memory_mb=256, workers=1)) as grader:
        grade = grader.grade(r"\boxed{\prod_{k=1}^{90000}(k^{9}+x^{k})}", r"\sqrt{x}")
    assert grade.outcome in ("timeout", "incorrect")


def test_a_forked_child_has_workers_of_its_own(grader: Grader):
    assert grader.grade_batch([(RADICAL, RADICAL_GOLD)])[0].outcome == "correct"
    mine = grader._pool.start().process.pid
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            (grade,) = grader.grade_batch([(r"\boxed{\sqrt{18}}", r"3\sqrt{2}")])
            inherited = grader._pool.start().process.pid == mine
            os.write(writer, f"{grade.outcome} {inherited}".encode())
            grader.close()
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    with os.fdopen(reader) as pipe:
        assert pipe.read() == "correct False"
    assert grader.grade(r"\boxed{\sqrt{50}}", r"5\sqrt{2}").outcome == "correct"
    assert grader._pool.start().process.pid == mine


def test_all_processes_end_with_their_caller():
    code = (
        "from tandem_plugin.grading import Grader, GradingLimits\n"
        "import sys, time\n"
        "grader = Grader(GradingLimits(workers=1))\n"
        r"assert grader.grade(r'\boxed{\sqrt{8}}', r'2\sqrt{2}').outcome == 'correct'" + "\n"
        "print(grader._pool.start().process.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    caller = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert caller.stdout is not None
    nursery = int(caller.stdout.readline())
    (worker,) = Path(f"/proc/{nursery}/task/{nursery}/children").read_text().split()
    caller.kill()
    caller.wait()
    caller.stdout.close()
    deadline = time.monotonic() + 60
    while any(map(is_running, (nursery, int(worker)))):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
