"""The ``vllm.general_plugins`` entry point: vLLM calls it in every one of its processes.

It runs for every user of a machine, tandem or not, so it imports only what is needed to notice an
engine that asks for tandem.
"""

from __future__ import annotations

__all__ = ["register"]


def register() -> None:
    """Make vLLM ready for engines with ``additional_config={"tandem": {...}}``; repeatable."""
    from tandem_plugin.engine import patches

    patches.register_architectures()
    patches.wrap_engine_config()
    patches.wrap_request_admission()
