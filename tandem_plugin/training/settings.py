"""Settings that every trainer rejects before any worker starts."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from tandem_plugin.config import TandemConfig
from tandem_plugin.errors import ConfigError
from tandem_plugin.patching.versions import check_version, judge_version
from tandem_plugin.schedules import TRAINING_STEP
from tandem_plugin.training.refusals import Unproven

__all__ = ["check_settings", "check_text_models", "check_versions"]


_TOWERS = ("vision_config", "audio_config")
"""What the configuration of a multimodal checkpoint has, and a text model's has not."""


_HUB_SECONDS = 5
"""How long the Hub may take to answer, where a checkpoint is not in its cache."""


def check_settings(tandem: TandemConfig) -> None:
    """Raise :class:`ConfigError` for a missing junior or a step that is not a setting."""
    for junior in tandem.juniors:
        _check_junior(junior)
    _check_training_step(tandem)


def check_text_models(models: Mapping[str, str | Sequence[str] | None]) -> None:
    """Raise :class:`ConfigError` for a multimodal checkpoint, by what its ``config.json`` says.

    models: the folder or the name on the Hub of each, or of several, if there is one, by the
    setting in which the user named it. Unified checkpoints such as Qwen3.5's are rejected with a
    text-only run as well: vLLM builds their multimodal class all the same, which the engine
    rejects. A checkpoint that cannot be read is left to the trainer, which says so, and to the
    engine.
    """
    named = [
        (setting, model)
        for setting, models_of in models.items()
        for model in ([models_of] if isinstance(models_of, str) else models_of or ())
    ]
    for setting, model in named:
        config = _model_config(model)
        towers = [name for name in _TOWERS if config.get(name)]
        if towers:
            raise ConfigError("TP451", setting=setting, model=model, tower=towers[0])


def check_versions(found: Mapping[str, str | None], unproven: Unproven, name: str) -> list[str]:
    """The warnings of ``tandem doctor`` about the versions of a trainer and of vLLM.

    found: each version; None where it is not installed. name: what allows a version of another
    series, if that is among the unproven. Raises :class:`ConfigError` for a version with which
    nothing is started.
    """
    warnings = []
    for package, version in found.items():
        if version is None:
            continue
        verdict = judge_version(package, version, f"{package} {version}")
        if verdict.status == "problem" and name in unproven.names:
            refusal = ConfigError("TP452", message=verdict.message, command=verdict.mend)
            unproven.check(name, refusal)
        elif warning := check_version(package, version):
            warnings.append(warning)
    return warnings


def _model_config(model: str) -> Mapping[str, Any]:
    """What a checkpoint's ``config.json`` holds; nothing where it cannot be read."""
    folder = os.path.expanduser(model)
    if not os.path.isdir(folder):
        return _config_on_the_hub(model)
    try:
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _config_on_the_hub(name: str) -> Mapping[str, Any]:
    """The same by a name on the Hub: from its cache, or by one request without retries.

    transformers' own way asks five times, which takes a minute without a network.
    """
    try:
        from huggingface_hub import hf_hub_url, try_to_load_from_cache
        from huggingface_hub.utils import build_hf_headers, get_session

        cached = try_to_load_from_cache(name, "config.json")
        if isinstance(cached, str):
            with open(cached, encoding="utf-8") as file:
                found = json.load(file)
        else:
            url = hf_hub_url(name, "config.json")
            answer = get_session().get(url, headers=build_hf_headers(), timeout=_HUB_SECONDS)
            answer.raise_for_status()
            found = answer.json()
    except Exception:  # no such model, no access, no network: each by an error of its library's own
        return {}
    return found if isinstance(found, dict) else {}


def _check_junior(junior: str) -> None:
    path = os.path.expanduser(junior)
    is_local = os.path.isabs(path) or junior.startswith((".", "~"))
    if is_local and not os.path.isdir(path):
        raise ConfigError("TP453", junior=junior)


def _check_training_step(tandem: TandemConfig) -> None:
    if TRAINING_STEP in tandem.parameters:
        raise ConfigError("TP454", value=tandem.parameters[TRAINING_STEP])
