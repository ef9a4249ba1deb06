"""Plugins: found by entry point and loaded once per process, each entirely or not at all."""

from __future__ import annotations

import logging
import re
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Literal, TypeAlias

import pluggy

from tandem_plugin._version import __version__
from tandem_plugin.boundaries.any_script import word_any_boundaries
from tandem_plugin.boundaries.resolvers import (
    every_boundary,
    newline_boundaries,
    sentence_boundaries,
    step_boundaries,
    word_boundaries,
)
from tandem_plugin.errors import ConfigError, TandemError
from tandem_plugin.plugins import hookspecs
from tandem_plugin.plugins.contracts import check_resolver_function, check_schedule_class
from tandem_plugin.schedules.bernoulli import (
    ChunkSchedule,
    SentenceSchedule,
    SoloWordSchedule,
    StepBernoulliSchedule,
    TokenSchedule,
    WordSchedule,
)
from tandem_plugin.schedules.handover import HandoverSchedule
from tandem_plugin.schedules.schedule import token_classes
from tandem_plugin.schedules.solo import JuniorSchedule, SoloSchedule
from tandem_plugin.schedules.step import StepSchedule

logger = logging.getLogger(__name__)

HOOKS = ("register_schedules", "register_boundaries")


Kind: TypeAlias = Literal["schedule", "boundaries"]
"""What is registered; also the setting that selects it."""

_PLURAL = {"schedule": "schedules", "boundaries": "boundary resolvers"}


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
    classes: tuple[str, ...] = ()
    """The names of the token classes that it reads, or that it finds; empty for boundaries."""


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
        names = self.of_kind(kind)
        broken = ""
        if self.broken:
            reasons = "; ".join(map(str, self.broken)).rstrip(".")
            broken = f" Plugins that could not be used: {reasons}."
        first, settings = re.split(r"[^\w-]", name, maxsplit=1)[0], ""
        if kind == "schedule" and first in names:
            settings = f" Parameters of {first!r} are settings of their own, such as p=0.5."
        raise ConfigError.misspelt(
            "plugin-name-unknown",
            name,
            names,
            kind=kind,
            name=name,
            kinds=_PLURAL[kind],
            known=", ".join(names),
            settings=settings,
            broken=broken,
        )

    def provider_of(self, value: object) -> Provider | None:
        """Who registered a schedule class or a resolver; None if unregistered."""
        for entry in self.registrations:
            if entry.value is value:
                return entry.provider
        return None


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plugin that has not been loaded yet."""

    name: str
    """Its entry point's name."""
    provider: Provider
    load: Callable[[], object]
    """Returns the module or object that implements hooks."""


BUILT_IN = Provider("tandem-plugin", __version__)

SCHEDULES: tuple[type[Any], ...] = (
    WordSchedule,
    TokenSchedule,
    ChunkSchedule,
    SentenceSchedule,
    StepSchedule,
    StepBernoulliSchedule,
    HandoverSchedule,
    SoloSchedule,
    SoloWordSchedule,
    JuniorSchedule,
)
_RESOLVERS = {
    "word": word_boundaries,
    "word-any": word_any_boundaries,
    "sentence": sentence_boundaries,
    "step": step_boundaries,
    "newline": newline_boundaries,
    "every": every_boundary,
}

_lock = threading.RLock()
_catalogue: Catalogue | None = None


def catalogue() -> Catalogue:
    """The catalogue of this process, built from the installed plugins on first use.

    A plugin that cannot be used is skipped with a warning; selecting one of its names raises an
    error with the reason. Raises :class:`ConfigError` if two distributions register the same name.
    """
    global _catalogue
    with _lock:
        if _catalogue is None:
            _catalogue = build_catalogue(_installed())
            for broken in _catalogue.broken:
                logger.warning("A tandem plugin is skipped: %s", broken)
        return _catalogue


def build_catalogue(plugins: Iterable[Plugin]) -> Catalogue:
    """The catalogue of what is built in and of these plugins, in this order.

    A plugin that raises, implements an unknown hook, registers nothing, or registers something that
    breaks its contract is skipped entirely and listed in :attr:`Catalogue.broken`. Raises
    :class:`ConfigError` when a name is registered more than once.
    """
    registrations = [
        Registration("schedule", schedule.name, schedule, BUILT_IN) for schedule in SCHEDULES
    ]
    registrations += [
        Registration("boundaries", *resolver, BUILT_IN) for resolver in _RESOLVERS.items()
    ]
    broken = []
    for plugin in plugins:
        try:
            with redirect_stdout(sys.stderr):  # stdout is a command's result
                registrations += _registrations(plugin)
        except (Exception, SystemExit) as error:
            broken.append(BrokenPlugin(plugin.name, plugin.provider, _reason(error)))
    _check_names(registrations)
    return Catalogue(tuple(registrations), tuple(broken))


def _check_names(registrations: Iterable[Registration]) -> None:
    providers: dict[tuple[Kind, str], list[Provider]] = defaultdict(list)
    for entry in registrations:
        providers[entry.kind, entry.name].append(entry.provider)
    for (kind, name), several in providers.items():
        if len(several) > 1:
            providers_text = " and by ".join(map(str, several))
            raise ConfigError(
                "plugin-name-ambiguous", kind=kind, name=name, providers=providers_text
            )


@contextmanager
def using_plugins(
    *plugins: object, distribution: str = "a-test", version: str = "0"
) -> Iterator[Catalogue]:
    """Let this process use these plugins together with the built-in one, instead of installed ones.

    For tests of a plugin: nothing needs to be installed, and installed plugins are hidden. plugins:
    modules or objects that implement hooks, treated as if ``distribution`` in ``version`` provided
    them. Other processes, such as an engine's workers, do not see them. Raises
    :class:`ConfigError` if one of them cannot be used.
    """
    global _catalogue
    provider = Provider(distribution, version)
    built = build_catalogue(_given(plugin, provider) for plugin in plugins)
    if built.broken:
        raise ConfigError("plugin-unusable", reasons="; ".join(map(str, built.broken)))
    with _lock:
        before, _catalogue = _catalogue, built
    try:
        yield built
    finally:
        with _lock:
            _catalogue = before


def _installed() -> list[Plugin]:
    entries = entry_points(group=hookspecs.PROJECT)
    plugins = [
        Plugin(entry.name, Provider(entry.dist.name, entry.dist.version), entry.load)
        for entry in entries
        if entry.dist is not None  # it is that of an installed distribution
    ]
    return sorted(plugins, key=lambda plugin: (plugin.provider.distribution, plugin.name))


def _registrations(plugin: Plugin) -> list[Registration]:
    # A manager of its own: nothing of a plugin that cannot be used reaches the others.
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    manager.register(plugin.load(), name=plugin.name)
    manager.check_pending()
    registrations: list[Registration] = []

    def register(kind: Kind, name: str, value: Any, classes: tuple[str, ...]) -> None:
        registrations.append(Registration(kind, name, value, plugin.provider, classes))

    def register_schedule(schedule: type[Any]) -> None:
        check_schedule_class(schedule)
        register("schedule", schedule.name, schedule, token_classes(schedule))

    def register_resolver(
        name: str, resolver: Callable[..., Any], classes: tuple[str, ...] = ()
    ) -> None:
        check_resolver_function(name, resolver, classes)
        register("boundaries", name, resolver, classes)

    manager.hook.register_schedules(register=register_schedule)
    manager.hook.register_boundaries(register=register_resolver)
    if not registrations:
        raise ConfigError("plugin-registers-nothing", hooks=" or ".join(HOOKS))
    return registrations


def _reason(error: BaseException) -> str:
    reason = " ".join(str(error).split())
    return reason if isinstance(error, TandemError) else f"{type(error).__name__}: {reason}"


def _given(plugin: object, provider: Provider) -> Plugin:
    name = getattr(plugin, "__name__", type(plugin).__name__)
    return Plugin(str(name), provider, lambda: plugin)
