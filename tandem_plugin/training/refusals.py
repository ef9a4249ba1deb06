"""Trainer settings that are incompatible with tandem: a table of settings, values and reasons.

Settings that break on a mask with holes are rejected; settings that have not been verified are
rejected unless the run allows them by name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tandem_plugin.config import TandemConfig
from tandem_plugin.engine.refusals import UNPROVEN_DRAFTING
from tandem_plugin.errors import ConfigError
from tandem_plugin.patching.versions import check_version, judge_version, running_version
from tandem_plugin.schedules import TRAINING_STEP


class Unproven:
    """The unproven settings that one run allows, and those that it uses."""

    def __init__(self, tandem: TandemConfig, names: Mapping[str, str]) -> None:
        """names: the names that can be allowed with this trainer, and their meanings.

        Raises :class:`ConfigError` for an allowed name that is not one of them.
        """
        for name in tandem.unproven:
            if name not in names and name != UNPROVEN_DRAFTING:
                listed = ", ".join(f"{known} ({meaning})" for known, meaning in names.items())
                raise ConfigError("unproven-name-unknown", name=name, known=listed)
        self._allowed = frozenset(tandem.unproven)
        self._names = frozenset(names)
        self.warnings: list[str] = []
        """A sentence for each unproven setting that the run uses."""

    def check(self, name: str, refusal: ConfigError) -> None:
        """Raise the error ``refusal`` unless the run allows the unproven setting by ``name``.

        If the name would allow it, the error's advice mentions it.
        """
        if name not in self._names:
            raise refusal
        if name not in self._allowed:
            raise refusal.advised(
                f"To allow it although it has not been verified, add {name} to tandem.unproven."
            )
        self.warnings.append(
            f"{refusal.message} tandem.unproven allows {name}: this run continues, but NOBODY HAS "
            "VERIFIED THAT WHAT IT LEARNS IS CORRECT. Batches are checked as usual."
        )

    def log_warnings(self) -> None:
        """Write the warnings to the log, where a trainer's logging level cannot hide them."""
        for warning in self.warnings:
            print(f"WARNING: {warning}", file=sys.stderr, flush=True)


Settings = Callable[[str], Any]
"""The value of a trainer's setting by its name; None if it has none."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One setting that is rejected.

    refused: whether a value is rejected, which may depend on other settings. code: of
    ``tandem_plugin/refusals.json``, whose messages may contain ``key``, ``value`` and ``setting``.
    unproven: the name by which a run may allow it, which may be the ``{value}``; empty for settings
    known to be wrong. fields: further fields of the messages, or functions of a run's settings.
    """

    key: str
    refused: Callable[[Any, Settings], bool]
    code: str
    unproven: str = ""
    fields: Mapping[str, object] = field(default_factory=dict)

    def error(self, value: Any, settings: Settings) -> ConfigError:
        """The error for a value of the setting, given a run's other settings."""
        more = {name: f(settings) if callable(f) else f for name, f in self.fields.items()}
        separator = " " if self.key.startswith("--") else "="
        setting = f"{self.key}{separator}{value}"
        return ConfigError(self.code, key=self.key, value=value, setting=setting, **more)


def broken(key: str, names: Sequence[str], why: str, sound: Sequence[str]) -> Refusal:
    """Rejects values that a mask with holes breaks. why: the effect; sound: allowed values."""
    return Refusal(
        key,
        lambda value, _: value in names,
        "trainer-setting-incorrect",
        fields={"why": why, "sound": ", ".join(sound)},
    )


def untested(key: str, sound: Sequence[str | None], unproven: str) -> Refusal:
    """Rejects values outside ``sound``, in which None means that the setting is absent."""
    names = ", ".join(filter(None, sound))
    return Refusal(
        key,
        lambda value, _: value not in sound,
        "trainer-setting-untested",
        unproven,
        fields={"sound": names},
    )


def is_on(value: Any, settings: Settings) -> bool:
    """Rejects a setting that is true, or a number above 0."""
    return bool(value)


def check_refusals(refusals: Iterable[Refusal], settings: Settings, unproven: Unproven) -> None:
    """Raise :class:`ConfigError` for the first rejected setting of a run, in order.

    unproven: what the run allows; it records what the run uses.
    """
    for one in refusals:
        value = settings(one.key)
        if one.refused(value, settings):
            unproven.check(one.unproven.format(value=value), one.error(value, settings))


def check_settings(tandem: TandemConfig) -> None:
    """Raise :class:`ConfigError` for a training step among the settings: it is the trainer's."""
    if TRAINING_STEP in tandem.parameters:
        raise ConfigError("training-step-set", value=tandem.parameters[TRAINING_STEP])


def check_versions(trainer: str, unproven: Unproven, name: str = "version") -> None:
    """Write warnings about the versions of a trainer and of vLLM to the log.

    name: what allows a trainer of another series, or empty. Raises :class:`ConfigError` if the
    trainer is not installed, or for a version that cannot be used.
    """
    for package in (trainer, "vllm"):
        version = running_version(package)
        if version is None:
            if package == trainer:
                raise ConfigError("trainer-not-installed", trainer=trainer)
            continue
        verdict = judge_version(package, version, f"{package} {version}")
        if verdict.status == "problem" and name:
            refusal = ConfigError(
                "trainer-version-untested", message=verdict.message, command=verdict.remedy
            )
            unproven.check(name, refusal)
        elif warning := check_version(package, version):
            print(f"warning: {warning}", file=sys.stderr, flush=True)
