"""A clock that stands still while a kernel is interpreted.

On a CPU, Model Runner V2's Triton kernels run in Triton's interpreter: milliseconds for each row of
what takes a GPU microseconds in all, and nearly the whole step of a small model. What the models,
PyTorch and vLLM's own Python take is the time without it. Where kernels are compiled, this clock is
the wall's.
"""

from __future__ import annotations

import os
import time
from typing import Any

__all__ = ["KernelClock"]


class KernelClock:
    """Seconds that no kernel was interpreted in, in this process, from when it is made."""

    def __init__(self) -> None:
        self.interpreted = 0.0
        """Seconds in the interpreter so far."""
        if os.environ.get("TRITON_INTERPRET") == "1":
            self._watch()

    def perf_counter(self) -> float:
        """As ``time.perf_counter``, in whose place it can stand."""
        return time.perf_counter() - self.interpreted

    def _watch(self) -> None:
        from triton.runtime.interpreter import GridExecutor

        launch = GridExecutor.__call__

        def timed(executor: Any, *arguments: Any, **options: Any) -> Any:
            start = time.perf_counter()
            try:
                return launch(executor, *arguments, **options)
            finally:
                self.interpreted += time.perf_counter() - start

        GridExecutor.__call__ = timed
