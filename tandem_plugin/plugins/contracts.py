"""The contracts of schedule classes and boundary resolvers, checked at registration."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.errors import ConfigError
from tandem_plugin.schedules.alone import ALONE
from tandem_plugin.schedules.parameters import TRAINING_STEP, schedule_signature
from tandem_plugin.schedules.schedule import token_classes

MOST_CLASSES = 2**16
"""The most token classes of a resolver: uint16 holds them."""

_reserved = {"name", "classes", ALONE}
"""Names that no parameter of a schedule may have: members of its class, the parameter that every
schedule has, and what :func:`reserve` adds."""


def reserve(names: Iterable[str]) -> None:
    """Keep names from the parameters of schedules, with which they share one flat mapping."""
    _reserved.update(names)


_DRAWS = np.array([0.0, 0.05, 0.3, 0.5, 0.7, 0.95, 0.3, 0.6])
_AUTHORS = np.array([True, True, True, True, False, False, False, False])
_RUNS = np.array([0, 1, 31, 1000, 0, 2, 32, 1000], dtype=np.int64)
_BOUNDARIES = np.array([True, False] * 4)
_KINDS = {"start": ("bool",), "advance": ("bool", "int64")}
"""Each step, and the types of what it returns."""
_RIGHT = {"start": "bools", "advance": "(bools, int64), each"}


def check_schedule_class(schedule: object) -> None:
    """Raise :class:`ConfigError` unless this class may be registered as a schedule.

    It must be a frozen, hashable dataclass with ``name``, ``boundaries``, ``start`` and
    ``advance``, and every parameter needs a default and a type that can be sent in requests. Both
    steps are tested on a small NumPy batch (and on torch tensors if torch is loaded): they must
    return new arrays of the right shape and type, leave their arguments unchanged, and treat each
    row independently. One with ``classes`` is tried on its first and last classes, and on some
    between them.
    """
    if not isinstance(schedule, type):
        raise ConfigError("schedule-not-class", schedule=schedule)
    parameters = getattr(schedule, "__dataclass_params__", None)
    # A subclass of a dataclass inherits its parameters, so a missing decorator would drop fields
    # silently.
    if "__dataclass_fields__" not in vars(schedule) or parameters is None or not parameters.frozen:
        raise ConfigError("schedule-not-frozen-dataclass", schedule=schedule.__qualname__)
    name = getattr(schedule, "name", None)
    _check_name("schedule", name)
    _check_name(
        f"boundary resolver (the class variable boundaries of the schedule {name!r})",
        getattr(schedule, "boundaries", None),
    )
    check_classes(f"schedule {name!r}", token_classes(schedule))
    for parameter in schedule_signature(schedule):
        if parameter.name in _reserved or parameter.name.startswith("_"):
            raise ConfigError(
                "schedule-parameter-reserved",
                schedule=schedule.__qualname__,
                parameter=parameter.name,
            )
        if parameter.name == TRAINING_STEP and parameter.annotation is not int:
            raise ConfigError("schedule-training-step-not-int", schedule=schedule.__qualname__)
    _check_on_numpy(schedule)
    check_on_torch(schedule)


def _check_on_numpy(schedule: type[Any]) -> None:
    """Try both steps on a batch of NumPy arrays, and on each of its rows alone."""
    for name, arguments in _reached(schedule):
        copies = tuple(array.copy() for array in arguments)
        batch_result = _tried(schedule, name, copies)
        if any(a.tolist() != b.tolist() for a, b in zip(copies, arguments, strict=True)):
            raise ConfigError(
                "schedule-modifies-arguments", schedule=schedule.__qualname__, name=name
            )
        for row in range(len(_DRAWS)):
            alone = _tried(schedule, name, tuple(a[row : row + 1].copy() for a in copies))
            if [a.tolist() for a in alone] != [a[row : row + 1].tolist() for a in batch_result]:
                raise ConfigError(
                    "schedule-depends-on-batch", schedule=schedule.__qualname__, name=name
                )


def check_on_torch(schedule: Any) -> None:
    """Raise :class:`ConfigError` unless both steps work on torch tensors, if torch is loaded.

    The class may have been registered before torch was loaded. This imports nothing.
    """
    if hasattr(sys.modules.get("torch"), "from_numpy"):  # imported completely
        _check_on_meta(schedule)


@functools.cache
def _check_on_meta(schedule: type[Any]) -> None:
    """Try both steps on torch's ``meta`` device, whose tensors have types but no values.

    A step that works there reads no value, so it works on any device without waiting for it.
    """
    from_numpy = sys.modules["torch"].from_numpy
    for name, arguments in _steps(schedule):
        _tried(schedule, name, tuple(from_numpy(a).to("meta") for a in arguments))


def _reached(schedule: type[Any]) -> Iterator[tuple[str, tuple[NDArray[Any], ...]]]:
    """The steps, and for token classes further ones, from the states that the first one reaches."""
    for name, arguments in _steps(schedule):
        yield name, arguments
    author, run, tokens, u = arguments
    for shift in range(1, 4 if token_classes(schedule) else 0):
        author, run = _tried(schedule, name, (author, run, np.roll(tokens, shift), u))
        yield name, (author, run, tokens, np.roll(u, shift))


def _steps(schedule: type[Any]) -> Iterator[tuple[str, tuple[NDArray[Any], ...]]]:
    """Each step of a schedule, and what it is tried on."""
    yield "start", (_DRAWS,)
    runs, tokens = _RUNS, _BOUNDARIES
    if classes := token_classes(schedule):
        # Any other run would be a state that the schedule itself never reaches.
        runs, tokens = _RUNS * 0, np.linspace(0, len(classes) - 1, len(_DRAWS)).astype(np.int64)
    yield "advance", (_AUTHORS, runs, tokens, _DRAWS)


def _tried(schedule: type[Any], name: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a step of the schedule with its default parameters returns."""
    instance, kinds = _made(schedule), _KINDS[name]
    on = "NumPy arrays" if isinstance(arguments[0], np.ndarray) else "torch tensors"
    try:
        result = getattr(instance, name)(*arguments)
    except Exception as error:
        raise ConfigError(
            "schedule-failed",
            schedule=schedule.__qualname__,
            name=name,
            on=on,
            error_type=type(error).__name__,
            error=error,
        ) from error
    several = result if isinstance(result, tuple) else (result,)
    if len(several) != len(kinds) or not all(
        _is_like(value, kind, arguments[0]) for value, kind in zip(several, kinds, strict=True)
    ):
        raise ConfigError(
            "schedule-result-invalid",
            schedule=schedule.__qualname__,
            found=_described(result),
            name=name,
            on=on,
            right=_RIGHT[name],
        )
    return several


def _made(schedule: type[Any]) -> Any:
    try:
        return schedule()
    except Exception as error:
        raise ConfigError(
            "schedule-defaults-fail",
            schedule=schedule.__qualname__,
            error_type=type(error).__name__,
            error=error,
        ) from error


def _is_like(value: Any, kind: str, argument: Any) -> bool:
    """Whether a value is an array of this type, in an argument's library, shape and device."""
    return (
        isinstance(value, type(argument))
        and str(value.dtype).removeprefix("torch.") == kind
        and value.shape == argument.shape
        and getattr(value, "device", None) == getattr(argument, "device", None)
    )


def _described(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_described, value))})"
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{value.dtype} of shape {tuple(value.shape)}"
    return f"a {type(value).__name__}"


def check_resolver_function(name: object, resolver: object, classes: object = ()) -> None:
    """Raise :class:`ConfigError` unless this may be registered as a boundary resolver.

    classes: the names of its token classes; empty for boundaries.
    """
    _check_name("boundary resolver", name)
    if not callable(resolver):
        raise ConfigError("resolver-not-function", name=name, resolver=resolver)
    check_classes(f"boundary resolver {name!r}", classes)


def check_classes(owner: str, classes: object) -> None:
    """Raise :class:`ConfigError` unless these can be the names of token classes, or are none."""
    if isinstance(classes, tuple) and all(isinstance(name, str) for name in classes):
        count = len(set(classes))
        if count == len(classes) and (count == 0 or 2 <= count <= MOST_CLASSES):
            return
    raise ConfigError("token-classes-invalid", what=owner, classes=classes, most=MOST_CLASSES)


def described_classes(classes: tuple[str, ...]) -> str:
    """Token classes in a few words."""
    if len(classes) > 8:
        return f"{len(classes)} classes"
    return f"the classes {', '.join(map(repr, classes))}" if classes else "boundaries"


def _check_name(kind: str, name: object) -> None:
    if not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*", name):
        raise ConfigError("plugin-name-invalid", name=name, what=kind)
    if name == "off":
        raise ConfigError("plugin-name-reserved", what=kind)


def check_table(
    name: str, provider: object, table: object, size: int, classes: int = 0
) -> NDArray[Any]:
    """The table that a resolver returned, read-only: bool ``[size]``, or int64 ``[size]``.

    classes: how many token classes it names: with any, the resolver returns uint8 or uint16. Raises
    :class:`ConfigError` for anything else, naming who provides the resolver.
    """
    kinds, right = ((np.uint8, np.uint16), "uint8 or uint16") if classes else ((np.bool_,), "bools")
    if not isinstance(table, np.ndarray) or table.dtype not in kinds or table.shape != (size,):
        description = _described(table)
        raise ConfigError(
            "resolver-result-invalid",
            name=name,
            provider=provider,
            found=description,
            right=right,
            size=size,
        )
    if classes and size and int(table.max()) >= classes:
        raise ConfigError(
            "resolver-class-unknown",
            name=name,
            provider=provider,
            found=int(table.max()),
            classes=classes,
        )
    # Classes are arithmetic's own type, so that no schedule's sum of them wraps around.
    frozen_table = table.astype(np.int64) if classes else table.copy()
    frozen_table.setflags(write=False)
    return frozen_table
