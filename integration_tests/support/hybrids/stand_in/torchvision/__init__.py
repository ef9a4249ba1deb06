"""Where there is no torchvision: vLLM imports it for Qwen3.5, and text needs nothing of it."""

import sys
from unittest.mock import MagicMock

__version__ = "0.0"

for _name in ("io", "transforms", "transforms.functional", "transforms.v2"):
    sys.modules[f"{__name__}.{_name}"] = MagicMock(__spec__=None, __path__=[])
sys.modules[f"{__name__}.transforms.v2.functional"] = MagicMock(__spec__=None)
