"""The ``vllm.general_plugins`` entry point: vLLM calls it in every one of its processes.

It runs for every vLLM user of the environment, in tandem or not. So it imports only what it needs
to detect a tandem engine, and never raises: if a patch fails, tandem engines stop and others are
unaffected.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

logger = logging.getLogger(__name__)


def register() -> None:
    """Make vLLM ready for engines with ``additional_config={"tandem": {...}}``; repeatable."""
    try:
        from tandem_plugin.engine.patches.engine_config import (
            register_architectures,
            wrap_engine_config,
        )
        from tandem_plugin.engine.patches.requests import (
            wrap_beam_search,
            wrap_request_admission,
            wrap_samples,
        )
        from tandem_plugin.engine.speculative.patches import (
            capture_each_batch_size,
            draft_with_the_junior,
            let_runner_v2_draft,
        )

        register_architectures()
        wrap_request_admission()
        wrap_samples()
        wrap_beam_search()
        draft_with_the_junior()
        capture_each_batch_size()
        let_runner_v2_draft()
        wrap_engine_config()
    except Exception as error:
        logger.warning("tandem-plugin is not active: %s: %s", type(error).__name__, error)
        _refuse(error)


def _refuse(error: Exception) -> None:
    """Make every tandem engine fail with ``error``."""
    try:
        from vllm.engine.arg_utils import EngineArgs
    except ImportError:
        return  # nothing to hook in this vLLM: adapters detect an engine without tandem
    create = EngineArgs.create_engine_config

    def refused(args: EngineArgs, *rest: object, **options: object) -> object:
        if isinstance(args.additional_config, Mapping) and "tandem" in args.additional_config:
            raise RuntimeError(
                "The engine enables tandem, but tandem-plugin could not be activated in this "
                f"vLLM: {type(error).__name__}: {error}. Use a tested vLLM version "
                "(docs/compatibility.md), or remove tandem from additional_config."
            ) from error
        return create(args, *rest, **options)

    EngineArgs.create_engine_config = refused
