"""The tandem settings of a verl run, and the rules they make with the run's tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tandem_plugin.boundaries import Vocabulary
from tandem_plugin.config import TandemConfig
from tandem_plugin.rules import TandemRules
from tandem_plugin.training.unproven import Unproven
from tandem_verl.soundness import UNPROVEN
from tandem_verl.switch import tandem_node

__all__ = ["allowed_unproven", "tandem_config", "tandem_rules"]


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


def allowed_unproven(tandem: TandemConfig) -> Unproven:
    """What a run allows of :data:`UNPROVEN`; raises :class:`ConfigError` for other names."""
    return Unproven(tandem, UNPROVEN)


def tandem_rules(config: TandemConfig, tokenizer: Any) -> TandemRules:
    """The rules that the engine, given the same settings and tokenizer, goes by as well.

    tokenizer: the Hugging Face tokenizer of the run.
    """
    return TandemRules(config, Vocabulary.from_tokenizer(tokenizer))
