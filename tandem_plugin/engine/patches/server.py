"""The bodies that a server reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tandem_plugin.engine.names import PREFIX
from tandem_plugin.patching.wrapping import wrap_once

__all__ = ["wrap_model_check"]


def wrap_model_check() -> None:
    """Refuse a body to a tandem engine's server that says ``tandem`` where vLLM would ignore it.

    Touches: ``BaseServing._check_model``, to which every handler of text shows the parsed body
    first. Versions: 0.24 to 0.32. Why: bodies may hold fields that vLLM does not know, and the
    senior alone would answer with status 200. Goes when: vLLM refuses such fields.
    """
    from vllm.entrypoints.serve.engine.serving import BaseServing

    async def wrapper(check: Callable[..., Any], serving: Any, request: Any) -> Any:
        ignored = getattr(request, "model_extra", None) or {}
        architecture = next(iter(serving.model_config.architectures), "")
        if "tandem" in ignored and architecture.startswith(PREFIX):
            return serving.create_error_response(_MISPLACED)
        return await check(serving, request)

    wrap_once(BaseServing, "_check_model", wrapper)


_MISPLACED = (
    "tandem is no field of the body itself: vLLM would ignore it, and the senior alone would "
    'answer. Send it in vllm_xargs, as JSON in a string: "vllm_xargs": {"tandem": '
    '"{\\"seed\\": 7}"}.'
)
