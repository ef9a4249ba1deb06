"""What does not go with tandem: one row per option, with the values that are rejected and an error.

A row is read against a view of options. A trainer's view is its configuration, an engine's is
vLLM's, and a driver's is the files of its machine; each has the same rule once, in the same form.
Options that break a run are rejected; options that nobody has verified are rejected unless the run
allows them by name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import SimpleNamespace
from typing import Any

from tandem_plugin.errors import ConfigError, TandemError

Option = Callable[[str], Any]
"""The value of an option by its name; None if it is not set, or if nothing here knows it."""


@dataclass(frozen=True, slots=True)
class Unsupported:
    """One option that is rejected.

    rejects: whether a value is rejected, which may depend on other options. code: of
    ``tandem_plugin/refusals.json``, whose messages may contain ``key``, ``value`` and ``setting``.
    unproven: the name by which a run may allow it, which may be the ``{value}``; empty for options
    known to be wrong. fields: further fields of the messages, or functions of a view that give
    them. kind: the type of the error.
    """

    option: str
    rejects: Callable[[Any, Option], bool]
    code: str
    unproven: str = ""
    fields: Mapping[str, object] = field(default_factory=dict)
    kind: type[TandemError] = ConfigError

    @classmethod
    def on(cls, option: str, code: str, **parts: Any) -> Unsupported:
        """Rejects an option that is true, or a number above 0. parts: further ones of the row."""
        return cls(option, is_on, code, **parts)

    @classmethod
    def broken(
        cls, option: str, names: Sequence[str], why: str, sound: Sequence[str]
    ) -> Unsupported:
        """Rejects values that a mask with holes breaks. why: the effect; sound: allowed values."""
        return Unsupported(
            option,
            lambda value, _: value in names,
            "trainer-setting-incorrect",
            fields={"why": why, "sound": ", ".join(sound)},
        )

    @classmethod
    def untested(cls, option: str, sound: Sequence[str | None], unproven: str) -> Unsupported:
        """Rejects values outside ``sound``, in which None means that the option is absent."""
        names = ", ".join(filter(None, sound))
        return Unsupported(
            option,
            lambda value, _: value not in sound,
            "trainer-setting-untested",
            unproven,
            fields={"sound": names},
        )

    def error(self, value: Any, option: Option) -> TandemError:
        """The error for a value of the option, given the view that has it."""
        fields = {name: f(option) if callable(f) else f for name, f in self.fields.items()}
        separator = " " if self.option.startswith("--") else "="
        setting = f"{self.option}{separator}{value}"
        return self.kind(
            self.code, **{"key": self.option, "value": value, "setting": setting} | fields
        )


def is_on(value: Any, option: Option) -> bool:
    """Rejects an option that is true, or a number above 0."""
    return bool(value)


def is_set(value: Any, option: Option) -> bool:
    """Rejects an option with any value."""
    return value is not None


def option_of(root: Any) -> Option:
    """A view of an object's attributes, by dotted names."""

    def option(name: str) -> Any:
        value = root
        for part in name.split("."):
            value = getattr(value, part, None)
        return value

    return option


def view_of(otherwise: Option, **parts: Any) -> Option:
    """A view of several objects: ``NAME`` is one of the parts, ``NAME.x`` its attribute.

    otherwise: the view that has any other name, where a member of an enumeration is its value.
    """
    of_parts = option_of(SimpleNamespace(**parts))

    def option(name: str) -> Any:
        if name.partition(".")[0] in parts:
            return of_parts(name)
        value = otherwise(name)
        return value.value if isinstance(value, Enum) else value

    return option


class Unproven:
    """The unproven options that one run allows, and those that it uses."""

    def __init__(self, allowed: Collection[str], names: Mapping[str, str]) -> None:
        """allowed: the run's ``tandem.unproven``. names: those that exist, and their meanings.

        Raises :class:`ConfigError` for an allowed name that does not exist.
        """
        for name in allowed:
            if name not in names:
                listed = ", ".join(f"{name} ({meaning})" for name, meaning in names.items())
                raise ConfigError("unproven-name-unknown", name=name, known=listed)
        self._allowed = frozenset(allowed)
        self._names = frozenset(names)
        self.warnings: list[str] = []
        """A sentence for each unproven option that the run uses, once."""

    def check(self, name: str, error: TandemError) -> None:
        """Raise the error unless the run allows the unproven option by ``name``.

        If the name would allow it, the error's advice mentions it.
        """
        if name not in self._names:
            raise error
        if name not in self._allowed:
            raise error.advised(
                f"To allow it although it has not been verified, add {name} to tandem.unproven."
            )
        warning = (
            f"{error.message} tandem.unproven allows {name}: this run continues, but NOBODY HAS "
            "VERIFIED THAT WHAT IT LEARNS IS CORRECT. Batches are checked as usual."
        )
        if warning not in self.warnings:
            self.warnings.append(warning)
            # Not logging: a trainer's level could hide it.
            print(f"WARNING: {warning}", file=sys.stderr, flush=True)


def check_supported(
    rows: Iterable[Unsupported], option: Option, unproven: Unproven | None = None
) -> None:
    """Raise the error of the first row whose option a view has with a rejected value, in order.

    unproven: what the run allows; it records what the run uses. None allows nothing.
    """
    for row in rows:
        value = option(row.option)
        if not row.rejects(value, option):
            continue
        error = row.error(value, option)
        if unproven is None:
            raise error
        unproven.check(row.unproven.format(value=value), error)
