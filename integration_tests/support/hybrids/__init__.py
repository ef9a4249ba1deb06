"""Models with recurrent states on a CPU, exactly enough to be compared token by token.

vLLM's CPU kernels for them compute in bfloat16 only. Stand-ins let the same layers, caches and
metadata be computed in float32: :mod:`support.hybrids.worker`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

from support.device import is_gpu

_STAND_IN = str(Path(__file__).parent / "stand_in")
_IS_MISSING = find_spec("torchvision") is None
"""Asked once: a process that has imported the stand-in finds it."""


@contextmanager
def with_states(*, native: bool = False) -> Iterator[dict[str, Any]]:
    """The engine arguments of an engine with such a model; it must start within.

    native: let it compute with vLLM's own kernels.
    """
    with ExitStack() as stack:
        if _IS_MISSING:
            path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), _STAND_IN]))
            stack.enter_context(mock.patch.dict(os.environ, PYTHONPATH=path))
            stack.enter_context(mock.patch.object(sys, "path", [*sys.path, _STAND_IN]))
        yield {} if native or is_gpu() else {"worker_cls": "support.hybrids.worker.ExactWorker"}
