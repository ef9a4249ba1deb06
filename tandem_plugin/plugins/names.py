"""The names that plugins give: what a name looks like, and which ones are taken."""

from __future__ import annotations

import re

from tandem_plugin.errors import ConfigError

__all__ = ["TAKEN", "check_name"]

TAKEN = frozenset(
    {
        # The settings of tandem itself, which stand in one flat mapping with the parameters.
        "schedule",
        "boundaries",
        "junior",
        "junior_name",
        "mode",
        "drafts",
        "measure_every",
        "partner_logprobs",
        "validation",
        "lambda_jun",
        "partner_kl_coef",
        "max_unknown_share",
        "unproven",
        "seed",
        "record",
        "rollouts",
        "require",
        # What a request says beside them.
        "fingerprint",
        "prompt_length",
        # Members of a schedule's class.
        "name",
        "walk",
    }
)
"""Names that no parameter of a schedule may have."""


def check_name(what: str, name: object) -> None:
    """Raise :class:`ConfigError` unless ``name`` can be typed in a configuration as a name."""
    if not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*", name):
        raise ConfigError(
            f"{name!r} is no name for a {what}: give lower-case letters, digits and hyphens, such "
            "as 'step-bernoulli'."
        )
    if name == "off":
        raise ConfigError(f"A {what} cannot be called 'off': that says that the senior is alone.")
