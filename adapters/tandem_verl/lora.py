"""Adapters (LoRA) with which verl's engine would not have the actor's weights.

verl sends an adapter alone, or merges it (``model.lora.merge=True``).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from tandem_plugin.errors import ConfigError
from tandem_plugin.training.lora_options import unsupported_option

if TYPE_CHECKING:
    from omegaconf import DictConfig

_MERGE = "Set actor_rollout_ref.model.lora.merge=True, or train an adapter without it."
_NO_REMEDY = "Train an adapter without it."


def check_adapter(model: DictConfig) -> None:
    """Raise :class:`ConfigError` for an adapter that the engine would not have as the actor has it.

    model: ``actor_rollout_ref.model`` of verl's configuration. An adapter that is to be continued
    is read if it is in a local folder.
    """
    path, rank = model.get("lora_adapter_path"), int(model.get("lora_rank") or 0)
    megatrons = model.get("lora") or {}
    is_merged = bool(megatrons.get("merge"))
    if megatrons.get("rank") and not is_merged and megatrons.get("type", "lora") != "lora":
        raise ConfigError(
            "verl-adapter-differs", what=f"lora.type={megatrons.get('type')}", remedy=_MERGE
        )
    if path and not rank:
        raise ConfigError("verl-adapter-ignored", path=path)
    if not rank:
        return
    adapter = {name: model.get(name) for name in ("target_modules", "target_parameters")}
    adapter |= {"r": rank}
    file = Path(path or ".") / "adapter_config.json"
    if path and file.exists():
        adapter = json.loads(file.read_text(encoding="utf-8"))
    if problem := unsupported_option(adapter, rank, is_merged, str(model.path)):
        raise ConfigError(
            "verl-adapter-differs", what=problem, remedy=_NO_REMEDY if is_merged else _MERGE
        )
