"""Turns verl's configuration with the one flag into one that names tandem's classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from tandem_plugin.config import TandemConfig
from tandem_plugin.errors import ConfigError
from tandem_verl import trainer
from tandem_verl.settings import MANAGER, MANAGER_KEY, OUR_MODE, OWN_MANAGER_KEY, running_config
from tandem_verl.start import VerlRun

if TYPE_CHECKING:
    from omegaconf import DictConfig


def prepare(config: DictConfig) -> None:
    """Check a tandem run, and name tandem's classes in its configuration.

    config: verl's whole configuration. Raises :class:`ConfigError` for settings that are
    incompatible with tandem.
    """
    tandem = running_config(config, "A driver")
    VerlRun.of(config).start(tandem)
    read_the_base(config, tandem)
    if (manager := OmegaConf.select(config, MANAGER_KEY)) not in (None, MANAGER):
        OmegaConf.update(config, OWN_MANAGER_KEY, manager, force_add=True)
    OmegaConf.update(config, MANAGER_KEY, MANAGER, force_add=True)
    config.trainer.v1.trainer_mode = OUR_MODE + config.trainer.v1.trainer_mode


def check_runner(config: DictConfig, runner: object, supported: object) -> None:
    """Raise :class:`ConfigError` unless verl is about to start its trainer V1 for a tandem run.

    config: verl's whole configuration, prepared here if no main of verl's has validated it.
    runner: the class of the Ray actor that will train. supported: the class that ``main_ppo`` uses.
    """
    if runner is not supported:
        kind = getattr(getattr(runner, "__ray_metadata__", None), "modified_class", type(runner))
        raise ConfigError("verl-runner-unsupported", runner=f"{kind.__module__}.{kind.__name__}")
    if not config.trainer.v1.trainer_mode.startswith(OUR_MODE):
        prepare(config)


def trainer_class(mode: type) -> Any:
    """The tandem subclass of the trainer of one of V1's modes."""
    return trainer.TrainerInTandem.tandem_over(mode)


def read_the_base(config: DictConfig, tandem: TandemConfig) -> None:
    """Let the engine load a base model that also serves as the junior from the checkpoint.

    config: verl's whole configuration, which changes. By default, verl starts from dummy weights
    and sends the base once as full weights, which an engine rejects if they are also the junior's.
    """
    model, rollout = config.actor_rollout_ref.model, config.actor_rollout_ref.rollout
    is_base = tandem.is_own_junior(str(model.path)) and tandem.junior_quantization is None
    lora = model.get("lora") or {}
    is_sent = bool(model.get("lora_rank") or lora.get("rank")) and not lora.get("merge")
    if is_sent and is_base and "dummy" in rollout.load_format:
        rollout.load_format = "auto"
