"""The adapter for the toy trainer, out of docs/architecture.md: what is documented is what runs."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"


def adapter_of_the_page() -> ModuleType:
    """The page's one Python example, as a module."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    module = ModuleType("adapter_of_the_page")
    exec(compile(code, "docs/architecture.md", "exec"), vars(module))
    return module
