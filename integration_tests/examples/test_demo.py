"""``make demo`` in small: killed in each of its parts, it resumes and repeats nothing."""

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
from dataclasses import replace

sys.path.insert(0, {str(DEMO)!r})
import pair
import run

pair.SENIOR, pair.JUNIOR = (replace(each, steps=60) for each in (pair.SENIOR, pair.JUNIOR))
run.SIZES = replace(run.SIZES, prompts=4, group=2, warmup=1, save_every=1)
run.EVALUATION_PROBLEMS = 8
sys.exit(run.main())
"""
"""The demo of short lessons, small batches and few problems."""
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
            mark = one.environ().get(MARK)
            if mark and Path(mark).is_relative_to(out) and one.status() != psutil.STATUS_ZOMBIE:
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
        lambda: (out / "models" / "senior").exists(),  # it teaches the junior
        lambda: "Step 1 of 2: reward of the senior alone" in log.read_text(),  # plain GRPO
        lambda: "Step 2 of 4: reward of the team" in log.read_text(),  # after its checkpoint
        lambda: any(file.stat().st_size for file in out.glob("evaluation-tandem-reader.log")),
    ]
    kept: dict[Path, int] = {}
    for number, part in enumerate(parts):
        demo = started(out, log)
        try:
            if number == 1:
                wait_for(demo, log, (out / "grpo" / "train.log").exists)
                second_is_refused(out, tmp_path / "second")
            wait_for(demo, log, part)
        finally:
            demo.send_signal(signal.SIGKILL)
            demo.wait()
        done = [
            *out.glob("models/*/model.safetensors"),
            *out.glob("*/checkpoint/model.safetensors"),
        ]
        done += out.glob("evaluation/**/summary.json")
        now = {path: path.stat().st_mtime_ns for path in done}
        assert kept.items() <= now.items()
        kept = now
    demo = started(out, log)
    assert demo.wait(900) == 0, log.read_text()[-3000:]
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert programs(out) == set()
    assert log.read_text().count("Resuming the demo in") == len(parts)
    for method, steps in (("grpo", 2), ("tandem", 4)):
        lines = (out / method / "metrics.jsonl").read_text().splitlines()
        assert [json.loads(line)["step"] for line in lines] == list(range(1, steps + 1))
        dumps = {path.name for path in (out / method / "rollouts").iterdir()}
        assert dumps == {f"{step}.jsonl" for step in range(1, steps + 1)}
    for name in ("results.md", "demo.html", "demo.svg", "scores.jsonl", "tandem/rollouts.html"):
        assert (out / name).stat().st_size, name
