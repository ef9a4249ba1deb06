"""A script of the repository that no package holds, as a module."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any


def module_of(file: Path) -> Any:
    """The module that a file defines."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module  # where dataclasses look for its annotations
    spec.loader.exec_module(module)
    return module
