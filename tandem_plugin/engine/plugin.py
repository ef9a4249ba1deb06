"""The ``vllm.general_plugins`` entry point: how vLLM's processes learn of tandem.

vLLM calls :func:`register` in every one of its processes, for every vLLM user of the environment,
in tandem or not. So this module imports only what it needs to detect a tandem engine, and
registering never raises: if a patch fails, tandem engines stop and others are unaffected.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from tandem_plugin.engine.wire import COMPOSITE, PREFIX, SPECULATIVE_PREFIX, asks_for_tandem
from tandem_plugin.patching.wrapping import wrap_once

logger = logging.getLogger(__name__)


def register() -> None:
    """Make vLLM ready for engines with ``additional_config={"tandem": {...}}``; repeatable."""
    try:
        from tandem_plugin.engine.patches.encodings import drop_encodings_with_prefixes
        from tandem_plugin.engine.patches.requests import (
            wrap_beam_search,
            wrap_request_admission,
            wrap_samples,
        )
        from tandem_plugin.engine.speculative.patches import (
            capture_each_batch_size,
            choose_drafts_at_startup,
            draft_with_the_junior,
            let_runner_v2_draft,
        )

        register_architectures()
        wrap_request_admission()
        wrap_samples()
        wrap_beam_search()
        drop_encodings_with_prefixes()
        draft_with_the_junior()
        capture_each_batch_size()
        choose_drafts_at_startup()
        let_runner_v2_draft()
        wrap_engine_config()
    except Exception as error:
        logger.warning("tandem-plugin is not active: %s: %s", type(error).__name__, error)
        _refuse(error)


def wrap_engine_config() -> None:
    """Route engine arguments with tandem through :mod:`~tandem_plugin.engine.configure`.

    Touches: ``EngineArgs.create_engine_config``. Versions: 0.27 to 0.32. Why: every way into vLLM
    (Python, ``vllm serve``, verl, OpenRLHF) calls it, before the model configuration is created.
    Goes when: vLLM offers a hook that amends engine arguments.
    """
    from vllm.engine.arg_utils import EngineArgs

    def wrapper(create: Callable[..., Any], args: Any, *arguments: Any, **options: Any) -> Any:
        if not asks_for_tandem(args.additional_config):
            _check_spelling(args.additional_config)
            return create(args, *arguments, **options)
        from tandem_plugin.engine.configure import create_tandem_config

        return create_tandem_config(create, args, *arguments, **options)

    wrap_once(EngineArgs, "create_engine_config", wrapper)


def _check_spelling(additional_config: Any) -> None:
    """Raise :class:`ConfigError` for a misspelt ``tandem``: the engine would run without it."""
    if isinstance(additional_config, Mapping) and additional_config:
        from tandem_plugin.request import resembles_tandem

        for name in additional_config:
            if resembles_tandem(str(name)):
                from tandem_plugin.errors import ConfigError

                raise ConfigError("additional-config-misspelt", name=name)


def register_architectures() -> None:
    """Register tandem architectures, by string, for every architecture that vLLM knows.

    One for each mode of the engine.

    Touches: ``ModelRegistry.register_model`` (public) and ``MODELS_CONFIG_MAP``, vLLM's table of
    per-architecture settings, mirrored so that a senior keeps its own. Versions: 0.27 to 0.32. Why:
    worker processes look the architecture up by name and cannot know which one is needed. Goes
    when: vLLM lets a plugin name the model class of one engine (``model_class_overrides`` reaches
    the oldest supported version).
    """
    from vllm import ModelRegistry
    from vllm.model_executor.models.config import MODELS_CONFIG_MAP

    for architecture in list(ModelRegistry.models):
        tandem = PREFIX + architecture
        if architecture.startswith(PREFIX) or tandem in ModelRegistry.models:
            continue
        speculative = SPECULATIVE_PREFIX + architecture
        ModelRegistry.register_model(tandem, f"{COMPOSITE}:{tandem}")
        ModelRegistry.register_model(speculative, f"{COMPOSITE}:{speculative}")
        if architecture in MODELS_CONFIG_MAP:
            MODELS_CONFIG_MAP[tandem] = MODELS_CONFIG_MAP[architecture]
            MODELS_CONFIG_MAP[speculative] = MODELS_CONFIG_MAP[architecture]


def _refuse(error: Exception) -> None:
    """Make every tandem engine fail with ``error``."""
    try:
        from vllm.engine.arg_utils import EngineArgs
    except ImportError:
        return  # nothing to hook in this vLLM: adapters detect an engine without tandem
    create = EngineArgs.create_engine_config

    def refused(args: EngineArgs, *arguments: object, **options: object) -> object:
        if isinstance(args.additional_config, Mapping) and "tandem" in args.additional_config:
            raise RuntimeError(
                "The engine enables tandem, but tandem-plugin could not be activated in this "
                f"vLLM: {type(error).__name__}: {error}. Use a tested vLLM version "
                "(tandem doctor names them), or remove tandem from additional_config."
            ) from error
        return create(args, *arguments, **options)

    EngineArgs.create_engine_config = refused
