"""How engine arguments become a configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tandem_plugin.engine.names import asks_for_tandem
from tandem_plugin.patching.wrapping import wrap_once

__all__ = ["wrap_engine_config"]


def wrap_engine_config() -> None:
    """Let engine arguments that ask for tandem pass through :mod:`~tandem_plugin.engine.configure`.

    Touches: ``EngineArgs.create_engine_config``. Versions: 0.27 to 0.32. Why: the one place
    that every way into vLLM passes (Python, ``vllm serve``, verl, OpenRLHF), before the model
    configuration is made. Goes when: vLLM offers a hook that amends engine arguments.
    """
    from vllm.engine.arg_utils import EngineArgs

    def wrapper(create: Callable[..., Any], args: Any, *rest: Any, **options: Any) -> Any:
        if not asks_for_tandem(args.additional_config):
            return create(args, *rest, **options)
        from tandem_plugin.engine.configure import create_tandem_config

        return create_tandem_config(create, args, *rest, **options)

    wrap_once(EngineArgs, "create_engine_config", wrapper)
