"""The line with which a trainer's log says that tandem is on."""

from __future__ import annotations

from tandem_plugin.config import TandemConfig
from tandem_plugin.rules import Rule
from tandem_plugin.schedules import TRAINING_STEP, schedule_parameters

__all__ = ["announcement"]


def announcement(config: TandemConfig, rule: Rule) -> str:
    """One line that says what is on: a user's proof, and what a bug report needs.

    rule: the configured one, :attr:`TandemRules.default`.
    """
    settings = {
        "schedule": rule.schedule.name,
        **schedule_parameters(rule.schedule),
        "boundaries": rule.boundaries.resolver,
        "junior": ",".join(config.juniors) or "(the checkpoint the senior starts from)",
        "mode": config.mode,
        "validation": config.validation,
        "seed": config.seed,
        "fingerprint": rule.fingerprint,
    }
    for weight in ("lambda_jun", "partner_kl_coef"):
        if getattr(config, weight):
            settings[weight] = getattr(config, weight)
    if TRAINING_STEP in settings:
        settings[TRAINING_STEP] = "(the trainer's)"
    return "tandem is on: " + " ".join(f"{name}={value}" for name, value in settings.items())
