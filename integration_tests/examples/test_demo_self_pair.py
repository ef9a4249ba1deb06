"""``make demo-self-pair`` in small: killed in any part, it resumes; a second one is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.timeout(2400), pytest.mark.long]

DEMO = Path(__file__).parents[2] / "examples" / "demo"
SMALL = f"""
import sys
from functools import partial

sys.path.insert(0, {str(DEMO)!r})
import evaluation
import self_pair as run

run.Lesson = partial(run.Lesson, steps=60)
run.Training = partial(run.Training, prompts=4, group=2, warmup=1, save_every=1)
run.EVALUATION_PROBLEMS = 8
run.DECODINGS = evaluation.DECODINGS = run.DECODINGS[-1:]
sys.exit(run.main())
"""
"""The demo of a short lesson, small batches and one temperature."""
MARK = "TANDEM_DEMO_RUN"


def started(out: Path, log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", SMALL, "--out", str(out), "--steps", "4"]
    with log.open("ab") as said:
        return subprocess.Popen(
            command,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def programs(out: Path) -> set[int]:
    """What the demo in a folder started, and still runs."""
    found = set()
    for one in psutil.process_iter():
        try:
            if one.environ().get(MARK) == str(out) and one.status() != psutil.STATUS_ZOMBIE:
                found.add(one.pid)
        except psutil.Error:
            continue
    return found


def wait_for(process: subprocess.Popen[bytes], log: Path, when: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 900
    while not when():
        assert process.poll() is None, log.read_text()[-3000:]
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.05)


def second_is_refused(out: Path, log: Path) -> None:
    """While the first trains, none of whose programs may end."""
    before = programs(out)
    assert started(out, log).wait(300) == 1
    assert "Another demo is running in" in log.read_text()
    assert before & programs(out), "the second demo ended the first one's"


def test_demo_killed_in_each_part_resumes_and_repeats_nothing(tmp_path: Path) -> None:
    out, log = tmp_path / "demo", tmp_path / "log"
    parts: list[Callable[[], bool]] = [
        lambda: (out / "rollouts.html").exists(),  # it teaches
        lambda: "Step 1 of 4: " in log.read_text(),  # after its checkpoint
        lambda: any(file.stat().st_size for file in out.glob("evaluation-4-0.log")),
    ]
    kept: dict[Path, int] = {}
    for number, part in enumerate(parts):
        demo = started(out, log)
        try:
            if number == 1:
                wait_for(demo, log, (out / "train.log").exists)
                second_is_refused(out, tmp_path / "second")
            wait_for(demo, log, part)
        finally:
            demo.send_signal(signal.SIGKILL)
            demo.wait()
        if number:
            assert programs(out), "a killed demo cannot end what it started: the next one does"
        done = [out / "model" / "model.safetensors", out / "checkpoint" / "model.safetensors"]
        done += (out / "evaluation").glob("*/step-0/**/problems.jsonl.run.json")  # at its start
        now = {path: path.stat().st_mtime_ns for path in done if path.exists()}
        assert kept.items() <= now.items()
        kept = now
    demo = started(out, log)
    assert demo.wait(900) == 0, log.read_text()[-3000:]
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert programs(out) == set()
    assert log.read_text().count("Resuming the demo in") == len(parts)
    lines = (out / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2, 3, 4]
    dumps = {path.name for path in (out / "rollouts").iterdir()}
    assert dumps == {f"{step}.jsonl" for step in (1, 2, 3, 4)}
    assert (out / "results.md").exists()
