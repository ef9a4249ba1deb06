"""A hook of every process of a trainer: its engine's worker computes states exactly.

As :mod:`support.hybrids.worker`, where no argument of the engine can name that worker.
"""

from __future__ import annotations

import importlib

from tandem_plugin.patching.after_import import after_import

after_import(
    "vllm.v1.worker.cpu_worker", lambda _: importlib.import_module("support.hybrids.worker")
)
