"""A trainer's process, played by small programs: its output, its errors, and its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tandem_plugin.lab.recipes.process import run_trainer
from tandem_plugin.lab.recipes.run import Command
from tandem_plugin.terminal.processes import MARK, marked_processes

ROOT = Path(__file__).parents[3]


def run(tmp_path: Path, program: str) -> tuple[object, bytes, str]:
    shown = b""

    def show(part: bytes) -> None:
        nonlocal shown
        shown += part

    command = Command((sys.executable, "-c", textwrap.dedent(program)), {"A": "b"})
    log = tmp_path / "train.log"
    ended = run_trainer(command, log, os.environ, tmp_path, show=show)
    return ended, shown, log.read_bytes().decode()


def test_output_is_shown_and_logged(tmp_path: Path) -> None:
    ended, shown, log = run(
        tmp_path,
        """
        import os, sys
        print("out", os.environ["A"], os.getcwd())
        print("progress", end="\\r", flush=True)
        print("err", file=sys.stderr)
        """,
    )
    assert (ended.code, ended.error, ended.stopped_by) == (0, "", "")
    assert shown.decode() == log
    assert "out b " in log
    assert "progress\r" in log
    assert "err\n" in log
    run(tmp_path, "print('again')")
    assert (tmp_path / "train.log").read_bytes().decode() == log + "again\n"


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ("ConfigError: trl is not installed.", "ConfigError: trl is not installed."),
        ("(Main pid=7) torch.OutOfMemoryError: CUDA", "torch.OutOfMemoryError: CUDA"),
        ("\\x1b[36m(Main pid=7)\\x1b[0m ValueError: no", "ValueError: no"),
        ("ValueError: first\\nKeyError: 'second'", "KeyError: 'second'"),
        ("all is well", ""),
        ("some words about ValueError and more", ""),
        (
            "ConfigError: no trl.\\nsubprocess.CalledProcessError: Command 'x' failed",
            "ConfigError: no trl.",
        ),
    ],
)
def test_last_error_is_found(said: str, error: str, tmp_path: Path) -> None:
    ended, _, _ = run(
        tmp_path, f"import sys; print('{said.replace(chr(39), chr(92) + chr(39))}'); sys.exit(3)"
    )
    assert (ended.code, ended.error) == (3, error)


def test_what_the_trainer_left_is_ended(tmp_path: Path) -> None:
    """Also what left its group and its session, as Ray's processes do."""
    ended, _, log = run(
        tmp_path,
        """
        import os, subprocess, sys
        sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
        child = subprocess.Popen(sleeper, start_new_session=True, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL)
        print(os.environ["TANDEM_RUN_MARK"], child.pid)
        """,
    )
    *_, mark, pid = log.split()  # after the marks of what runs the tests
    assert ended.code == 0
    assert marked_processes(mark) == []
    assert not is_alive(int(pid))


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended may wait to be collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


PARENT = """
import os, sys
from pathlib import Path
from tandem_plugin.lab.recipes.process import run_trainer
from tandem_plugin.lab.recipes.run import Command
child = '''
import os, signal, subprocess, sys, time
{stubborn}
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print("started", os.environ["TANDEM_RUN_MARK"], flush=True)
time.sleep(600)
'''
command = Command((sys.executable, "-c", child))
ended = run_trainer(command, Path("train.log"), os.environ, Path("."))
print("ENDED", ended.stopped_by, flush=True)
"""


HASTY = """
from tandem_plugin.terminal import processes
processes.PATIENCE_S = 1.0
"""
"""The guard is told as well."""
PARENT_IN_HASTE = PARENT.replace("ended =", f"{HASTY}\nended =")


@pytest.mark.parametrize("stubborn", ["", "signal.signal(signal.SIGTERM, signal.SIG_IGN)"])
@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL], ids=str
)
def test_signal_ends_the_trainer_and_all_that_it_started(
    number: signal.Signals, stubborn: str, tmp_path: Path
) -> None:
    program = (PARENT_IN_HASTE if stubborn else PARENT).format(stubborn=stubborn)
    parent = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'adapters'}"},
    )
    assert parent.stdout is not None
    word, *_, mark = parent.stdout.readline().split()
    assert word == "started"
    start = time.monotonic()
    while len(marked_processes(mark)) < 2:  # a process has no environment while it is executed
        assert time.monotonic() - start < 60
    start = time.monotonic()
    parent.send_signal(number)
    if number == signal.SIGKILL:
        assert parent.wait(30) == -number
    else:
        assert parent.stdout.readline().split() == ["ENDED", number.name]
        assert parent.wait(30) == 0
    while marked_processes(mark):
        assert time.monotonic() - start < 60
        assert number == signal.SIGKILL, "it waits for all others"


def test_mark_is_of_one_run(tmp_path: Path) -> None:
    marks = {run(tmp_path, f"import os; print(os.environ[{MARK!r}])")[1] for _ in range(2)}
    assert len(marks) == 2
