"""The catalogue: every schedule and boundary resolver that can be selected, and who provides it."""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from tandem_plugin.errors import ConfigError

__all__ = ["TAKEN", "BrokenPlugin", "Catalogue", "Kind", "Provider", "Registration", "check_name"]

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
    """Raise :class:`ConfigError` unless ``name`` is a valid name in a configuration."""
    if not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*", name):
        raise ConfigError("TP115", name=name, what=what)
    if name == "off":
        raise ConfigError("TP116", what=what)


Kind: TypeAlias = Literal["schedule", "boundaries"]
"""What is registered; also the setting that selects it."""

_PLURAL = {"schedule": "Schedules", "boundaries": "Boundary resolvers"}


@dataclass(frozen=True, slots=True)
class Provider:
    """The installed distribution that provides something."""

    distribution: str
    version: str

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}"


@dataclass(frozen=True, slots=True)
class Registration:
    """One schedule class or boundary resolver under the name that selects it."""

    kind: Kind
    name: str
    value: Any
    provider: Provider


@dataclass(frozen=True, slots=True)
class BrokenPlugin:
    """A plugin that was skipped, and why."""

    name: str
    """Its entry point's name."""
    provider: Provider
    reason: str

    def __str__(self) -> str:
        return f"{self.name!r} of {self.provider}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Catalogue:
    """What plugins registered."""

    registrations: tuple[Registration, ...]
    broken: tuple[BrokenPlugin, ...] = ()

    def check_names(self) -> None:
        """Raise :class:`ConfigError` when a name was registered more than once."""
        providers: dict[tuple[Kind, str], list[Provider]] = defaultdict(list)
        for entry in self.registrations:
            providers[entry.kind, entry.name].append(entry.provider)
        for (kind, name), several in providers.items():
            if len(several) > 1:
                both = " and by ".join(map(str, several))
                raise ConfigError("TP118", kind=kind, name=name, providers=both)

    def of_kind(self, kind: Kind) -> dict[str, Any]:
        """The values of one kind, by name, in the order of their registration."""
        return {entry.name: entry.value for entry in self.registrations if entry.kind == kind}

    def find(self, kind: Kind, name: str) -> Registration:
        """What a name selects.

        Raises :class:`ConfigError` for an unregistered name, listing those that exist and the
        plugins that could not be used.
        """
        for entry in self.registrations:
            if entry.kind == kind and entry.name == name:
                return entry
        known = ", ".join(self.of_kind(kind))
        near = difflib.get_close_matches(name, self.of_kind(kind), n=1)
        meant = f" Did you mean {near[0]!r}?" if near else ""
        broken = ""
        if self.broken:
            reasons = "; ".join(map(str, self.broken)).rstrip(".")
            broken = f" Plugins that could not be used: {reasons}."
        raise ConfigError(
            "TP117",
            kind=kind,
            name=name,
            kinds=_PLURAL[kind].lower(),
            known=known,
            meant=meant,
            broken=broken,
        )

    def provider_of(self, value: object) -> Provider | None:
        """Who registered a schedule class or a resolver; None if unregistered."""
        for entry in self.registrations:
            if entry.value is value:
                return entry.provider
        return None
