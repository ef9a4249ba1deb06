"""The tandem engine: two models in one vLLM engine.

``TandemLLM`` is imported from here; importing this package alone imports no vllm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tandem_plugin.engine.llm import TandemLLM

__all__ = ["TandemLLM"]


def __getattr__(name: str) -> Any:
    if name == "TandemLLM":
        from tandem_plugin.engine.llm import TandemLLM

        return TandemLLM
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
