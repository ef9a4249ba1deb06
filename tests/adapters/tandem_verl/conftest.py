"""verl's adapter is tested beside verl alone."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("verl") else ["test_*.py"]
