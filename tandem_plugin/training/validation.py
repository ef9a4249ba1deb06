"""Who answers validation prompts: the senior alone, the team, or one after the other."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal

from tandem_plugin.errors import ConfigError

Answerer = Literal["senior", "team"]

ANSWERER = "tandem_answerer"
"""The batch column or response attribute that names who answers a validation prompt."""

ANSWERED_BY = "answered_by"
"""The same in a validation dump."""


def answerers(validation: str) -> tuple[Answerer, ...]:
    """Who answers all validation prompts, in this order; validation: the setting."""
    return ("senior", "team") if validation == "both" else (answerer_of(validation, None),)


def answerer_of(validation: str, field: Answerer | None) -> Answerer:
    """Who is to answer a validation prompt.

    field: the prompt's own. Raises :class:`ConfigError` if both are to answer and the prompt
    does not name one.
    """
    if field is None and validation == "both":
        raise ConfigError("validation-answerer-unknown")
    return "team" if (field or validation) == "team" else "senior"


def named(metrics: Mapping[str, Any], answerer: Answerer) -> dict[str, Any]:
    """The metrics of an answerer under distinct names: the team's begin with ``team/``."""
    prefix = "team/" if answerer == "team" else ""
    return {f"{prefix}{name}": value for name, value in metrics.items()}


def dump_folder(folder: str, validation: str, answerer: Answerer) -> str:
    """Where an answerer's dump goes: in a separate folder if both answer."""
    return os.path.join(folder, answerer) if validation == "both" else folder
