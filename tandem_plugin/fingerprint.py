"""The fingerprint: proof that two processes derive the same authorship."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from tandem_plugin._version import __version__
from tandem_plugin.boundaries import BoundarySet
from tandem_plugin.plugins.loading import BUILT_IN, catalogue
from tandem_plugin.schedules import Schedule, schedule_parameters
from tandem_plugin.schedules.parameters import typed

__all__ = ["fingerprint"]


def fingerprint(schedule: Schedule, boundaries: BoundarySet) -> str:
    """16 hexadecimal digits over schedule, parameters, boundary set and package version.

    For a plugin's schedule, the name and version of its distribution are included. The fingerprint
    is sent with each request, and an engine rejects one that differs from its own, so a replay in
    another process can never silently disagree with the engine. Equal schedules have equal
    fingerprints: 1 and 1.0, or 0.0 and -0.0, make no difference. Raises :class:`ConfigError` for a
    manually constructed schedule with a parameter that is not of its declared type.
    """
    schedule = typed(schedule)
    meaning: dict[str, Any] = {
        "schedule": schedule.name,
        "parameters": schedule_parameters(schedule),
        "boundaries": boundaries.digest,
        "version": __version__,
    }
    kind = type(schedule)
    provider = catalogue().provider_of(kind)
    if provider is None:  # made by hand, from a class that no plugin registers
        meaning["class"] = f"{kind.__module__}:{kind.__qualname__}"
    elif provider != BUILT_IN:
        meaning["plugin"] = [provider.distribution, provider.version]
    text = json.dumps(meaning, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
