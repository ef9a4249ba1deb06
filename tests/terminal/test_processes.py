"""Each command that starts processes, killed: all that it started ends, and its files are free."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("tokenizers", reason="tokenizers is not installed")

from small_tokenizers import byte_level_bpe

from tandem_plugin.terminal.processes import MARK, marked, marked_processes

ROOT = Path(__file__).parents[2]

HANGS = '''
import multiprocessing, os, subprocess, sys, time
from pathlib import Path

def hang(*_, **__):
    """Play an engine, or a user's function: begin processes in each way, and stay."""
    started = [multiprocessing.get_context(way).Process(target=time.sleep, args=(600,))
               for way in ("fork", "spawn")]
    for process in started:
        process.start()
    sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
    apart = subprocess.Popen(sleeper, start_new_session=True)
    Path("pids.part").write_text(" ".join(str(p.pid) for p in (*started, apart)))
    os.rename("pids.part", "pids")
    time.sleep(600)
'''

PROGRAM = """
from hangs import hang
{stand_in}
if __name__ == "__main__":
    import sys
    sys.argv = ["tandem", *{arguments}]
    from tandem_plugin.cli import main
    main()
"""

ENGINE = "from tandem_plugin.lab.rollouts import engine; engine.start_engine = hang"
MODELS = ("--senior", "model")
PROBLEMS = ("--problems", "problems.jsonl", "--out", "out.jsonl")
PREPARE = ("data", "prepare", "problems.jsonl", "--to", "trl", "--out", "prepared")

COMMANDS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "rollout": (ENGINE, ("rollout", *MODELS, *PROBLEMS), "file-locked"),
    "drafts": (f"{ENGINE}; engine.check_drafting_here = lambda: None", ("drafts", *MODELS), ""),
    "prepare": (
        "from tandem_plugin.lab.data import folder; folder._check_prepared = hang",
        PREPARE,
        "file-locked",
    ),
    "prepare --map": ("", (*PREPARE, "--map", "hangs.py:hang"), ""),
    "eval": (
        ENGINE,
        ("eval", "solo", "--senior", "s=model", "--benchmark", "b=problems.jsonl", "--out", "out"),
        "file-locked",
    ),
}
"""A command, the stand-in for what takes long in it, and the error of a second start; none where
nothing is written yet, or nothing at all."""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Problems, a model as far as commands look at it, and an empty folder of rollouts."""
    (tmp_path / "hangs.py").write_text(HANGS)
    rows = [{"problem": f"What is {i} + 1?", "answer": str(i + 1)} for i in range(3)]
    (tmp_path / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "model" / "model.safetensors").write_bytes(b"x")
    byte_level_bpe().save(str(tmp_path / "model" / "tokenizer.json"))
    (tmp_path / "rollouts").mkdir()
    return tmp_path


def start(place: Path, command: str) -> subprocess.Popen[str]:
    stand_in, arguments, _ = COMMANDS[command]
    (place / "program.py").write_text(PROGRAM.format(stand_in=stand_in, arguments=arguments))
    return subprocess.Popen(
        [sys.executable, "program.py"],
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{place}"},
    )


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended may wait to be collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def started_by(process: subprocess.Popen[str], place: Path) -> list[int]:
    """The processes that a command started, once it hangs."""
    pids, began = place / "pids", time.monotonic()
    while not pids.exists():
        if process.poll() is not None or time.monotonic() - began > 120:
            process.kill()
            pytest.fail(process.communicate()[0])
        time.sleep(0.05)
    return [int(pid) for pid in pids.read_text().split()]


@pytest.mark.parametrize("command", COMMANDS)
def test_killed_command_leaves_nothing_behind(command: str, place: Path) -> None:
    """What is left would also hold the lock, and the second command would not start."""
    for number in (signal.SIGKILL, signal.SIGTERM):
        process = start(place, command)
        pids = started_by(process, place)
        assert len(pids) == 3
        assert all(map(is_alive, pids))
        if number == signal.SIGKILL and (code := COMMANDS[command][2]):
            second = start(place, command)
            said = second.communicate(timeout=120)[0]
            assert (second.returncode, code in said) == (1, True), said
            assert all(map(is_alive, pids))
        process.send_signal(number)
        process.communicate(timeout=120)  # whatever had its output has ended too
        assert process.returncode == -number
        began = time.monotonic()
        while any(map(is_alive, pids)):
            assert time.monotonic() - began < 40
            time.sleep(0.1)
        (place / "pids").unlink()


FORKS = """
import os, time
os.register_at_fork(after_in_child=lambda: time.sleep(2))  # a machine that is busy
from tandem_plugin.terminal.processes import end_with_this_process
end_with_this_process()
if pid := os.fork():
    print(pid, flush=True)
time.sleep(600)
"""


def test_child_whose_parent_is_killed_before_it_has_begun_ends_too(tmp_path: Path) -> None:
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", FORKS], cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=environ
    ) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.kill()
        try:
            process.communicate(timeout=120)
        finally:
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=str)
def test_followed_page_is_whole_and_nothing_was_started_for_it(
    number: signal.Signals, place: Path
) -> None:
    row = {"response_ids": [70, 71, 72], "authorship": [1, 0, 1], "tandem_seed": 7}
    row |= {"tandem_fingerprint": "x", "prompt": "A question", "response": "ghi"}
    (place / "rollouts" / "1.jsonl").write_text(json.dumps(row) + "\n")
    arguments = ["view", "rollouts", "--follow", "--tokenizer", "model/tokenizer.json"]
    with subprocess.Popen(
        [sys.executable, "-m", "tandem_plugin", *arguments],
        cwd=place,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    ) as process:
        assert process.stderr is not None
        try:
            assert process.stderr.readline().startswith("Open file:"), process.stderr.read()
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        finally:
            process.send_signal(number)
        process.communicate(timeout=120)
    assert children == ""
    assert process.returncode == (-number if number == signal.SIGKILL else 0)
    assert (place / "rollouts.html").read_text().rstrip().endswith("</html>")


@pytest.mark.parametrize("titled", [False, True])
def test_marks_add_up_and_each_finds_its_own(titled: bool) -> None:
    """Also a process that has put a title where its environment was."""
    if titled:
        pytest.importorskip("setproctitle", reason="setproctitle is not installed")
    environ = marked({MARK: "outer"}, "inner")
    title = "import setproctitle; setproctitle.setproctitle('A title ' * 9); " if titled else ""
    sleeper = [sys.executable, "-c", f"{title}import time; print(flush=True); time.sleep(60)"]
    with subprocess.Popen(
        sleeper, env=os.environ | environ, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            assert marked_processes("outer") == marked_processes("inner") == [process.pid]
            assert marked_processes("out") == marked_processes("outer inner") == []
        finally:
            process.kill()
