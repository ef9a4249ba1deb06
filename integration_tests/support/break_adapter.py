"""Test hook: a part of the adapter that cannot be imported."""

import sys

sys.modules["tandem_verl.rollouts"] = None  # type: ignore[assignment]
