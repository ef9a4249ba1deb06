"""A table of a trainer's settings that are incompatible with tandem: which, when, and why.

A tandem run trains through a mask with holes. Settings that break on such a mask are rejected with
the reason and cannot be allowed; settings that have not been verified are rejected as unproven
unless the run allows them by name (:mod:`tandem_plugin.training.refusals`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tandem_plugin.config import TandemConfig
from tandem_plugin.errors import ConfigError, is_code

__all__ = [
    "HOLES",
    "UNTESTED",
    "Refusal",
    "Settings",
    "Unproven",
    "broken",
    "check_refusals",
    "each",
    "given",
    "is_on",
    "too_many_juniors",
    "untested",
]


class Unproven:
    """The unproven settings that one run allows, and those that it uses."""

    def __init__(self, tandem: TandemConfig, names: Mapping[str, str]) -> None:
        """names: what can be allowed with this trainer: each name and its meaning.

        Raises :class:`ConfigError` for an allowed name that is not one of them.
        """
        for name in tandem.unproven:
            if name not in names:
                listed = ", ".join(f"{known} ({meaning})" for known, meaning in names.items())
                raise ConfigError("TP440", name=name, known=listed or "nothing")
        self._allowed = frozenset(tandem.unproven)
        self.names = frozenset(names)
        """All that can be allowed with this trainer."""
        self.warnings: list[str] = []
        """A sentence for each thing that the run makes use of and nobody has shown to work."""

    def check(self, name: str, refusal: ConfigError) -> None:
        """Continue with an unproven setting if the run allows it by ``name``.

        refusal: an error that names the setting, says that it was not tested, and what to choose
        instead; raised, together with the name that would allow it, if the run does not allow it.
        """
        if name not in self.names:
            raise ValueError(f"{name!r} is not one of the names that can be allowed.")
        if name not in self._allowed:
            raise refusal.advised(
                f"To allow it although it has not been verified, add {name} to tandem.unproven."
            )
        self.warnings.append(
            f"{refusal.message} tandem.unproven allows {name}: this run continues, but NOBODY HAS "
            "VERIFIED THAT WHAT IT LEARNS IS CORRECT. Batches are checked as usual."
        )

    def say(self) -> None:
        """Write the warnings to the log, where a trainer's logging level cannot hide them."""
        for warning in self.warnings:
            print(f"WARNING: {warning}", file=sys.stderr, flush=True)


Settings = Callable[[str], Any]
"""The value of a trainer's setting by its name; None where it has none."""

UNTESTED = "{setting} was not tested with tandem"
"""How the sentence begins about what nobody has looked at."""

HOLES = ", which trains through a mask with holes"
"""How it goes on about what the mask reaches."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One setting that is refused, and the sentence that says why and what to choose.

    refused: whether a value is, which may depend on other settings. refusal: a code of
    :mod:`tandem_plugin.refusals`, or an adapter's own sentence; ``{key}`` and ``{value}`` stand for
    the setting and its value, and ``{setting}`` for both as :meth:`setting` gives them. unproven:
    the name by which a run may allow what is only unproven, which may be the ``{value}``; what has
    no name is known to be wrong. fields: what else the code's sentences name, or how it follows
    from a run's settings.
    """

    key: str
    refused: Callable[[Any, Settings], bool]
    refusal: str
    unproven: str = ""
    fields: Mapping[str, object] = field(default_factory=dict)

    def error(self, value: Any, settings: Settings) -> ConfigError:
        """The error about a value of the setting, beside a run's other settings."""
        more = {name: f(settings) if callable(f) else f for name, f in self.fields.items()}
        fields = {"key": self.key, "value": value, "setting": self.setting(value), **more}
        if is_code(self.refusal):
            return ConfigError(self.refusal, **fields)
        return ConfigError(self.refusal.format(**fields))

    def setting(self, value: Any) -> str:
        """The setting with a value of it as a user gives both: ``--key value`` or ``key=value``."""
        return f"{self.key} {value}" if self.key.startswith("--") else f"{self.key}={value}"


def too_many_juniors(key: str, engines: Callable[[Settings], int]) -> Refusal:
    """That of a pool of which a junior would never write, since each engine has one.

    key: a setting with the juniors' names, or with settings that have them. engines: how many
    rollout engines a run has that stay.
    """

    def juniors(of: Settings) -> int:
        value = of(key)
        return len(getattr(value, "juniors", value) or ())

    def refused(value: Any, of: Settings) -> bool:
        return juniors(of) > 1 and juniors(of) > engines(of)

    return Refusal(key, refused, "TP441", fields={"juniors": juniors, "engines": engines})


def broken(key: str, names: Sequence[str], why: str, sound: Sequence[str]) -> Refusal:
    """Rejects what a mask with holes breaks. why: what it does; sound: what to choose instead."""
    return Refusal(
        key,
        lambda value, settings: value in names,
        "TP442",
        fields={"why": why, "sound": ", ".join(sound)},
    )


def untested(
    key: str, sound: Sequence[str | None], unproven: str = "", reach: str = HOLES
) -> Refusal:
    """Rejects values outside ``sound``, in which None stands for a setting that is not there.

    unproven: as in :class:`Refusal`. reach: how the sentence continues, if not with :data:`HOLES`.
    """
    return Refusal(
        key,
        lambda value, settings: value not in sound,
        "TP443",
        unproven,
        fields={"reach": reach, "sound": ", ".join(filter(None, sound))},
    )


def each(
    keys: Iterable[str], refused: Callable[[Any, Settings], bool], refusal: str
) -> list[Refusal]:
    """The same refusal of several settings."""
    return [Refusal(key, refused, refusal) for key in keys]


def given(value: Any, settings: Settings) -> bool:
    """Rejects any value of a setting."""
    return value is not None


def is_on(value: Any, settings: Settings) -> bool:
    """Rejects a setting that is true, or a number above 0."""
    return bool(value)


def check_refusals(refusals: Iterable[Refusal], settings: Settings, unproven: Unproven) -> None:
    """Raise :class:`ConfigError` for the first rejected setting of a run, in order.

    unproven: what the run allows; it records what the run uses.
    """
    for one in refusals:
        value = settings(one.key)
        if not one.refused(value, settings):
            continue
        refusal, name = one.error(value, settings), one.unproven.format(value=value)
        if name not in unproven.names:
            raise refusal
        unproven.check(name, refusal)
