"""A demo made small, killed in each of its parts and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

DEMO = Path(__file__).parents[2] / "examples" / "demo"
_MARK = "TANDEM_DEMO_RUN"
_LONGEST_S = 900


@dataclass(frozen=True)
class SmallDemo:
    """One folder of a demo; its program is Python source that ends with the demo's exit status."""

    program: str
    out: Path
    log: Path

    def start(self, log: Path) -> subprocess.Popen[bytes]:
        """The demo of four steps, in a session of its own."""
        command = [sys.executable, "-c", self.program, "--out", str(self.out), "--steps", "4"]
        with log.open("ab") as stream:
            return subprocess.Popen(
                command,
                # Compiled files are kept: a demo is a score of processes that import the same.
                env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": ""},
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def programs(self) -> set[int]:
        """What the demo started, and still runs."""
        pids = set()
        for process in psutil.process_iter():
            try:
                mark = process.environ().get(_MARK)
                is_ours = mark and Path(mark).is_relative_to(self.out)
                if is_ours and process.status() != psutil.STATUS_ZOMBIE:
                    pids.add(process.pid)
            except psutil.Error:
                continue
        return pids

    def check_kills(
        self,
        parts: Sequence[Callable[[], bool]],
        trains: Path,
        finished: Callable[[], Iterable[Path]],
    ) -> None:
        """Kill it when it is in each of its parts; the last start repeats nothing and ends well.

        parts: whether it is in a part; the first is the teaching, the last an evaluation. trains:
        the log of the second, in which another start is rejected. finished: the weights that no
        later start may write again, and rows that stay as they are.
        """
        kept: dict[Path, int | bytes] = {}
        for number, is_there in enumerate(parts):
            demo = self.start(self.log)
            try:
                if number == 1:
                    self._wait_for(demo, trains.exists)
                    self._check_second()
                self._wait_for(demo, is_there)
            finally:
                demo.send_signal(signal.SIGKILL)
                demo.wait()
            left = self.programs()
            if number:
                assert left, "what a killed demo started is ended by the next one"
            if number > 1:  # as if the machine went down: what is left would soon be finished
                for pid in left:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            found = {path: _state(path) for path in finished() if path.exists()}
            assert kept.items() <= found.items()
            kept = found
        self.finish()
        assert {path: _state(path) for path in kept} == kept
        assert self.log.read_text().count("Resuming the demo in") == len(parts)

    def finish(self) -> None:
        """Start it, and let it come to its end; it leaves no program behind."""
        demo = self.start(self.log)
        assert demo.wait(_LONGEST_S) == 0, self._end_of_log()
        assert self.programs() == set()

    def _wait_for(self, process: subprocess.Popen[bytes], is_there: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _LONGEST_S
        while not is_there():
            assert process.poll() is None, self._end_of_log()
            assert time.monotonic() < deadline, self._end_of_log()
            time.sleep(0.05)

    def _check_second(self) -> None:
        """While the first trains, none of whose programs may end."""
        before, log = self.programs(), self.log.with_name("second")
        assert self.start(log).wait(300) == 1
        assert "Another demo is running in" in log.read_text()
        assert before & self.programs(), "the second demo ended the first one's"

    def _end_of_log(self) -> str:
        return self.log.read_text()[-3000:]


def _state(path: Path) -> int | bytes:
    """When weights were written, since the same lesson gives the same ones; else what a file says,
    since a resumed evaluation opens its rows again."""
    return path.stat().st_mtime_ns if path.suffix == ".safetensors" else path.read_bytes()
