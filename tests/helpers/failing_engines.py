"""What an engine's process does in place of answering; spawned processes import this module."""

from __future__ import annotations

import os
import time
from typing import Any

from tandem_plugin.errors import EngineError


def fails(*_: Any) -> None:
    raise EngineError("engine-start-failed", why="No memory.")


def dies(*_: Any) -> None:
    os._exit(9)


def is_interrupted(*_: Any) -> None:
    raise KeyboardInterrupt


def sleeps(*_: Any) -> None:
    time.sleep(300)
