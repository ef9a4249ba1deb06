"""What an engine would reject, seen in a trainer's driver: before a model is loaded, without vLLM.

Only files of this machine are read, as a view for the engine's own tables. What they do not show is
left to the engine.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem_plugin.config import TandemConfig
from tandem_plugin.engine.speculative.configure import DRAFTING_ARGUMENTS
from tandem_plugin.engine.unsupported import (
    ARGUMENTS,
    IMAGES_OF_TRAINERS,
    KINDS,
    STATES,
    TESTED_HYBRIDS,
    engine_view,
    rows_of_images,
)
from tandem_plugin.engine.wire import without_prefix
from tandem_plugin.errors import ConfigError, EngineError
from tandem_plugin.files.checkpoints import check_model, may_be_on_hub
from tandem_plugin.files.unified import text_architecture, text_config
from tandem_plugin.patching.versions import running_version
from tandem_plugin.unsupported import Option, check_supported

_OVERRIDES = ("hf_overrides", "hf_config_path")
"""Options that change the senior's configuration from its checkpoint's."""


def check_before_start(tandem: TandemConfig, senior: str | None, option: Option) -> None:
    """Raise what an engine of this run would raise, as far as this machine's files show it.

    senior: its checkpoint, None if it is not known. option: an argument of vLLM by its name, None
    if it is not set. Raises :class:`ConfigError` and :class:`EngineError`.
    """
    vllm = running_version("vllm")
    check_supported((*ARGUMENTS, *DRAFTING_ARGUMENTS), engine_view(option, tandem, vllm))
    junior = None
    if tandem.junior is not None:
        check_junior(tandem.junior)
        check_model(tandem.junior, "junior")
        junior = LocalModel.read(tandem.junior, images=tandem.images)
    model = None
    if senior is not None and not any(map(option, _OVERRIDES)):
        if os.path.isdir(os.path.expanduser(senior)):
            check_model(senior, "senior")
        model = LocalModel.read(senior, option("revision"), images=tandem.images)
        if model is not None and not model.architectures:
            raise EngineError("senior-architecture-missing", model=senior)
    view = engine_view(option, tandem, vllm, model, model if tandem.junior is None else junior)
    images = (*rows_of_images(tandem), *(IMAGES_OF_TRAINERS if tandem.images else ()))
    check_supported((*KINDS["junior"], *KINDS["senior"], *images, *STATES), view)


def check_junior(junior: str) -> None:
    """Raise :class:`ConfigError` for a path of this machine that is no checkpoint's."""
    looks_local = os.path.isabs(junior) or junior.startswith((".", "~")) or os.path.isdir(junior)
    path = os.path.expanduser(junior)
    if looks_local and not os.path.isfile(os.path.join(path, "config.json")):
        raise ConfigError("junior-not-checkpoint", junior=junior)


_ATTENTION = ("attention", "full_attention", "sliding_attention", "chunked_attention")
"""Types of layers that have no recurrent state, in a configuration's ``layer_types``."""

_OF_STATES = ("mamba_d_state", "ssm_state_size", "attn_layer_period", "linear_num_key_heads")
"""Keys by which configurations of Hugging Face's describe recurrent states."""

_OF_OTHER_INPUTS = ("vision_config", "audio_config", "thinker_config", "vision_tower", "embd_layer")
"""Keys by which they describe what reads images or sound."""


@dataclass(frozen=True, slots=True)
class LocalModel:
    """What a checkpoint's ``config.json`` has about its model, by the names of ``ModelConfig``."""

    model: str
    architectures: tuple[str, ...]
    """Its class in vLLM, without tandem's prefix, as the only one; empty without a name."""
    is_multimodal_model: bool
    is_attention_free: bool
    is_encoder_decoder: bool
    is_hybrid: bool

    @classmethod
    def read(
        cls, model: str, revision: str | None = None, *, images: bool = False
    ) -> LocalModel | None:
        """Of a folder, or of the Hub's cache; None if there is none, or none that can be read.

        images: whether a unified checkpoint is built with its vision tower.
        """
        config = _local_config(model, revision)
        if config is None:
            return None
        names = config.get("architectures")
        if not names:
            return cls(model, (), False, False, False, False)
        if not isinstance(names, list):
            return None
        unified = without_prefix(str(names[0]))
        text = text_config(config)
        architecture = unified if images else text_architecture(unified)
        types = text.get("layer_types")
        has_states = architecture in TESTED_HYBRIDS or any(key in text for key in _OF_STATES)
        if isinstance(types, list):
            has_states = any(layer_type not in _ATTENTION for layer_type in types)
        return cls(
            model,
            (architecture,),
            architecture == unified and any(key in config for key in _OF_OTHER_INPUTS),
            "state_size" in text and "num_attention_heads" not in text,
            text.get("is_encoder_decoder") is True,
            has_states,
        )


def _local_config(model: str, revision: str | None = None) -> Mapping[str, Any] | None:
    """A checkpoint's config.json, from its folder or the Hub's cache; None if it is not here."""
    file: Any = Path(os.path.expanduser(model)) / "config.json"
    with suppress(ImportError, OSError, ValueError, RecursionError):
        if not file.parent.is_dir() and may_be_on_hub(model):
            from huggingface_hub import try_to_load_from_cache

            file = try_to_load_from_cache(model, "config.json", revision=revision)
        # Of a name that is not in the cache, the file is None or another object.
        if isinstance(file, str | Path):
            config = json.loads(Path(file).read_text(encoding="utf-8"))
            return config if isinstance(config, dict) else None
    return None
