"""The tandem settings of a verl run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tandem_plugin.config import TandemConfig
from tandem_plugin.errors import EngineError
from tandem_verl.switch import tandem_node

__all__ = ["running_config", "tandem_config"]


def tandem_config(config: Any) -> TandemConfig | None:
    """The checked settings of a run's configuration; None where it does not ask for tandem.

    Raises :class:`ConfigError` for settings that are wrong.
    """
    node = tandem_node(config)
    if node is None:
        return None
    if not isinstance(node, Mapping):
        from omegaconf import OmegaConf

        node = OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node
    return TandemConfig.from_mapping(node)


def running_config(config: Any, who: str) -> TandemConfig:
    """The same of a run that is in tandem.

    who: the part of it that is. Raises :class:`EngineError` where it does not ask for tandem.
    """
    tandem = tandem_config(config)
    if tandem is None:
        raise EngineError(
            f"{who} in tandem was given a configuration that does not ask for tandem: something "
            "changed it on the way. Remove that."
        )
    return tandem
