"""From engine arguments that ask for tandem to the configuration of a tandem engine."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from typing import Any

from tandem_plugin.config import TandemConfig, junior_label
from tandem_plugin.engine import unsupported
from tandem_plugin.engine.base_junior import check_base
from tandem_plugin.engine.compilation import AdditionalConfig, keep_all_reduces_plain
from tandem_plugin.engine.images import limit_to_images
from tandem_plugin.engine.junior import (
    junior_model_config,
    with_overrides,
)
from tandem_plugin.engine.local_models import check_junior
from tandem_plugin.engine.patches.bodies import wrap_bodies
from tandem_plugin.engine.patches.requests import wrap_offline_beam_search
from tandem_plugin.engine.runners import bind_runner
from tandem_plugin.engine.speculative import configure as speculative
from tandem_plugin.engine.speculative.configure import check_drafting
from tandem_plugin.engine.streams import check_junior_stream
from tandem_plugin.engine.text_models import keep_text_config
from tandem_plugin.engine.wire import PREFIX, SPECULATIVE_PREFIX, without_prefix
from tandem_plugin.errors import ConfigError, EngineError
from tandem_plugin.files.trainers import trainers_of_engine
from tandem_plugin.files.unified import text_architecture
from tandem_plugin.patching.in_place import Framework
from tandem_plugin.patching.versions import check_version
from tandem_plugin.rules import TandemRules
from tandem_plugin.schedules import schedule_parameters

logger = logging.getLogger(__name__)


def _check_beside(additional_config: Mapping[str, Any], config: TandemConfig) -> None:
    """Raise :class:`ConfigError` for settings of tandem outside their place."""
    names = [name for name in additional_config if name != "tandem"]
    if ours := TandemConfig.recognised(names, config.schedule):
        raise ConfigError("settings-beside-tandem", names=", ".join(ours))


def create_tandem_config(
    create: Callable[..., Any], args: Any, *arguments: Any, **options: Any
) -> Any:
    """Check the engine arguments, add what tandem needs, and make vLLM's configuration of them.

    Raises :class:`ConfigError` or :class:`EngineError` before anything is loaded.
    """
    config = TandemConfig.from_mapping(args.additional_config["tandem"])
    _check_beside(args.additional_config, config)
    _warn_of_version()
    unsupported.check_arguments(args, config)
    trainers = [trainer for trainer in trainers_of_engine() if trainer.in_engines]
    for trainer in trainers:
        if not Framework(trainer.name).is_in_place:
            raise EngineError(
                "trainer-adapter-inactive", trainer=trainer.name, how=trainer.if_inactive
            )
    architecture = _senior_architecture(args, config.images)
    if config.images:
        limit_to_images(args)
    junior = config.junior or str(args.model)
    check_junior(junior)
    is_own = config.is_own_junior(str(args.model), args.revision)
    junior = str(args.model) if is_own else junior

    settings = config.settings() | {
        "junior": junior,
        "junior_name": config.junior_name
        or junior_label(config.junior or junior, config.junior_quantization),
        "require": config.require or bool(trainers),
    }
    args.additional_config = {**args.additional_config, "tandem": settings}
    prefix = SPECULATIVE_PREFIX if config.max_drafts else PREFIX
    args.hf_overrides = with_overrides(
        args.hf_overrides, {"architectures": [prefix + architecture]}
    )
    asked_for_async = args.async_scheduling
    if config.max_drafts:
        revisions = (args.revision, args.code_revision) if is_own else (None, None)
        speculative.ask_for_drafts(args, config, junior, *revisions)

    vllm_config = create(args, *arguments, **options)

    wrap_offline_beam_search()
    wrap_bodies()
    keep_text_config(vllm_config.model_config)
    unsupported.check_config(vllm_config, config)
    if is_own:  # vLLM may have put another name of the checkpoint
        junior = settings["junior"] = vllm_config.model_config.model
    vllm_config.additional_config = AdditionalConfig(args.additional_config | {"tandem": settings})
    junior_config = junior_model_config(vllm_config)
    unsupported.check_junior(vllm_config, junior_config)
    check_base(vllm_config, junior_config)
    check_junior_stream(vllm_config, junior_config)
    keep_all_reduces_plain(vllm_config, junior_config)
    if config.max_drafts:
        speculative.make_junior_the_draft(vllm_config, junior_config)
        check_drafting(vllm_config, config)
    bind_runner(vllm_config, asked_for_async)
    from tandem_plugin.engine.generation_ends import added_ends
    from tandem_plugin.engine.tokenizer_check import check_vocabularies, engine_rules

    rules = engine_rules(vllm_config)
    check_vocabularies(vllm_config, junior)
    added_ends(vllm_config)
    if _is_first_process(args):
        # Not logging: verl sets vLLM's level to warnings, and this line is the user's proof. Not
        # standard output either: commands write their results there.
        line = _announcement(vllm_config.model_config.model, junior, rules)
        print(line, file=sys.stderr, flush=True)
    return vllm_config


def _announcement(senior: str, junior: str, rules: TandemRules) -> str:
    """One line that names the two models of an engine and how they run."""
    config, rule = rules.config, rules.default
    label = junior_label(junior, config.junior_quantization)
    junior_name = {} if config.junior_name == label else {"junior_name": config.junior_name}
    settings = {
        "senior": senior,
        "junior": label,
        **junior_name,
        "mode": config.mode,
        "schedule": rule.schedule.name,
        **schedule_parameters(rule.schedule),
        "boundaries": rule.boundaries.resolver,
        "boundary_ids": rule.boundaries.count,
        "fingerprint": rules.fingerprint,
        **({"images": True} if config.images else {}),
    }
    return "tandem engine: " + " ".join(f"{name}={value}" for name, value in settings.items())


def _is_first_process(args: Any) -> bool:
    """Whether no other process of the same engine has made this configuration before.

    ``vllm serve`` makes one in its main process, of rank -1, and with several API servers
    (``--api-server-count``) also one in each of them.
    """
    return getattr(args, "_api_process_count", 1) == 1 or args._api_process_rank < 0


def _warn_of_version() -> None:
    from vllm import __version__

    if warning := check_version("vllm", __version__):
        logger.warning("%s", warning)


def _senior_architecture(args: Any, images: bool) -> str:
    from vllm import ModelRegistry
    from vllm.transformers_utils.config import get_config

    overrides = args.hf_overrides if isinstance(args.hf_overrides, dict) else {}
    architectures = overrides.get("architectures")
    if not architectures:
        hf_config = get_config(
            args.hf_config_path or args.model,
            args.trust_remote_code,
            revision=args.revision,
            code_revision=args.code_revision,
        )
        architectures = getattr(hf_config, "architectures", None)
    if not architectures:
        raise EngineError("senior-architecture-missing", model=str(args.model))
    architecture = without_prefix(str(architectures[0]))
    architecture = architecture if images else text_architecture(architecture)
    if architecture not in ModelRegistry.models:
        raise EngineError("senior-architecture-unknown", architecture=architecture)
    return architecture
