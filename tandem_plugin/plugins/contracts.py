"""The contracts of schedule classes and boundary resolvers, checked at registration."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.errors import ConfigError
from tandem_plugin.plugins.registry import TAKEN, check_name
from tandem_plugin.schedules.parameters import TRAINING_STEP, schedule_signature
from tandem_plugin.schedules.schedule import Schedule, has_walk, step_through

__all__ = [
    "check_resolver_function",
    "check_schedule",
    "check_schedule_class",
    "check_table",
]

_DRAWS = np.array([0.0, 0.05, 0.3, 0.5, 0.7, 0.95, 0.3, 0.6])
_AUTHORS = np.array([True, True, True, True, False, False, False, False])
_RUNS = np.array([0, 1, 31, 1000, 0, 2, 32, 1000], dtype=np.int64)
_BOUNDARIES = np.array([True, False] * 4)
_BATCH = len(_DRAWS)
_STEPS: tuple[tuple[str, tuple[Any, ...], tuple[Any, ...]], ...] = (
    ("start", (_DRAWS,), (np.bool_,)),
    ("advance", (_AUTHORS, _RUNS, _BOUNDARIES, _DRAWS), (np.bool_, np.int64)),
)
"""Each step, what it is tried on, and the types of what it returns."""
_RIGHT = {"start": "bools", "advance": "(bools, int64), each"}
_WALKED = 4, 96
"""Responses and tokens that a schedule's walk is tried on."""


def check_schedule_class(schedule: object) -> None:
    """Raise :class:`ConfigError` unless this class may be registered as a schedule.

    It must be a frozen, hashable dataclass with ``name``, ``boundaries``, ``start`` and
    ``advance``, and every parameter needs a default and a type that can be sent in requests. Both
    steps are tested on a small NumPy batch (and on torch tensors if torch is loaded): they must
    return new arrays of the right shape and type, leave their arguments unchanged, and treat each
    row independently. If it has a ``walk``, its results must equal those of the steps.
    """
    if not isinstance(schedule, type):
        raise ConfigError("TP122", schedule=schedule)
    _check_dataclass(schedule)
    _check_name(schedule)
    _check_parameters(schedule)
    made = _made(schedule)
    _check_steps(schedule, made, np.array, _is_numpy)
    check_schedule(made)


def check_schedule(schedule: Schedule) -> None:
    """Raise :class:`ConfigError` unless a schedule works with what this process has loaded.

    If torch is loaded, both steps must give the same results on its tensors: the class may have
    been registered before torch was loaded. If the schedule has a ``walk``, it must equal the
    steps.
    """
    _check_walk(schedule)
    if hasattr(sys.modules.get("torch"), "from_numpy"):  # imported, and whole
        _check_steps_on_torch(type(schedule))


@functools.cache
def _check_steps_on_torch(schedule: type[Any]) -> None:
    """Raise :class:`ConfigError` unless both steps do the same on torch tensors.

    On a CPU with the same values, and on torch's ``meta`` device, whose tensors have shapes and
    types but no values: what works there reads no value, so it works on any device without waiting
    for it. torch must be loaded: this imports nothing.
    """
    torch = sys.modules["torch"]
    made = _made(schedule)

    def is_tensor(value: Any, dtype: Any) -> bool:
        return (
            isinstance(value, torch.Tensor)
            and value.dtype == getattr(torch, np.dtype(dtype).name)
            and tuple(value.shape) == (_BATCH,)
        )

    _check_steps(schedule, made, lambda array: torch.from_numpy(np.array(array)), is_tensor)
    _check_shapes(
        schedule,
        made,
        lambda array: torch.from_numpy(np.array(array)).to("meta"),
        lambda value, dtype: is_tensor(value, dtype) and value.device.type == "meta",
    )


def _check_walk(schedule: Schedule) -> None:
    """Raise :class:`ConfigError` unless a schedule's ``walk``, where it has one, equals its steps.

    On responses without boundaries, of nothing but boundaries, and in between.
    """
    kind: Any = type(schedule)
    if not has_walk(kind):
        return
    batch, time = _WALKED
    random = np.random.Generator(np.random.Philox(key=0))
    shares = np.array([0.0, 0.1, 0.6, 1.0])
    is_boundary = random.random((batch, time)) < shares[:, None]
    u = random.random((batch, time + 1))
    expected = step_through(schedule, is_boundary, u)
    # All, a part of the rows and of the tokens, and no token at all.
    for rows, tokens in ((batch, time), (1, time // 3), (batch, 0)):
        given = is_boundary[:rows, :tokens], u[:rows, : tokens + 1]
        walked = _tried(kind, schedule, "walk", np.array, given)
        parts = tuple(part[:rows, : tokens + 1] for part in expected)
        if not _is_walk(walked, parts):
            raise ConfigError("TP123", schedule=kind.__qualname__, rows=rows, columns=tokens + 1)


def _is_walk(walked: Any, expected: tuple[Any, ...]) -> bool:
    return (
        isinstance(walked, tuple)
        and len(walked) == len(expected)
        and all(
            isinstance(part, np.ndarray)
            and part.dtype == right.dtype
            and np.array_equal(part, right)
            for part, right in zip(walked, expected, strict=True)
        )
    )


def _check_dataclass(schedule: type[Any]) -> None:
    parameters = getattr(schedule, "__dataclass_params__", None)
    # A subclass of a dataclass inherits its parameters, and would be one with forgotten fields.
    if "__dataclass_fields__" not in vars(schedule) or parameters is None or not parameters.frozen:
        raise ConfigError("TP124", schedule=schedule.__qualname__)
    if schedule.__hash__ is None:
        raise ConfigError("TP125", schedule=schedule.__qualname__)


def _check_name(schedule: type[Any]) -> None:
    check_name("schedule", getattr(schedule, "name", None))
    check_name(
        f"boundary resolver (the class variable boundaries of the schedule {schedule.name!r})",
        getattr(schedule, "boundaries", None),
    )
    for step, optional in (("start", None), ("advance", None), ("walk", len)):
        if not callable(getattr(schedule, step, optional)):
            raise ConfigError("TP126", schedule=schedule.__qualname__, step=step)


def _check_parameters(schedule: type[Any]) -> None:
    for parameter in schedule_signature(schedule):
        if parameter.name in TAKEN or parameter.name.startswith("_"):
            raise ConfigError("TP128", schedule=schedule.__qualname__, parameter=parameter.name)
        if parameter.name == TRAINING_STEP and parameter.annotation is not int:
            raise ConfigError("TP129", schedule=schedule.__qualname__)


def _made(schedule: type[Any]) -> Any:
    try:
        made, again = schedule(), schedule()
        same = made == again and hash(made) == hash(again)
    except Exception as error:
        raise ConfigError(
            "TP130", schedule=schedule.__qualname__, error_type=type(error).__name__, error=error
        ) from error
    if not same:
        raise ConfigError("TP131", schedule=schedule.__qualname__)
    return made


def _check_steps(
    schedule: type[Any],
    made: Any,
    new: Callable[[Any], Any],
    is_right: Callable[[Any, Any], bool],
) -> None:
    for name, given, kinds in _STEPS:
        whole = _as_tuple(_tried(schedule, made, name, new, given))
        if len(whole) != len(kinds) or not all(map(is_right, whole, kinds)):
            raise ConfigError(
                "TP132",
                schedule=schedule.__qualname__,
                found=_described(whole if len(whole) > 1 else whole[0]),
                name=name,
                right=_RIGHT[name],
                size=_BATCH,
            )
        for row in range(_BATCH):
            one = tuple(array[row : row + 1] for array in given)
            alone = _as_tuple(_tried(schedule, made, name, new, one))
            if [a.tolist() for a in alone] != [a[row : row + 1].tolist() for a in whole]:
                raise ConfigError("TP134", schedule=schedule.__qualname__, name=name)


def _check_shapes(
    schedule: type[Any],
    made: Any,
    new: Callable[[Any], Any],
    is_right: Callable[[Any, Any], bool],
) -> None:
    for name, arguments, kinds in _STEPS:
        try:
            result = getattr(made, name)(*map(new, arguments))
        except Exception as error:
            raise ConfigError(
                "TP135",
                schedule=schedule.__qualname__,
                name=name,
                error_type=type(error).__name__,
                error=error,
            ) from error
        if not all(map(is_right, _as_tuple(result), kinds)):
            raise ConfigError(
                "TP136", schedule=schedule.__qualname__, found=_described(result), name=name
            )


def _tried(
    schedule: type[Any],
    made: Any,
    name: str,
    new: Callable[[Any], Any],
    arguments: tuple[Any, ...],
) -> Any:
    given = [new(array) for array in arguments]
    try:
        result = getattr(made, name)(*given)
    except Exception as error:
        raise ConfigError(
            "TP137",
            schedule=schedule.__qualname__,
            name=name,
            error_type=type(error).__name__,
            error=error,
        ) from error
    if any(a.tolist() != b.tolist() for a, b in zip(given, arguments, strict=True)):
        raise ConfigError("TP138", schedule=schedule.__qualname__, name=name)
    return result


def _as_tuple(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def _is_numpy(value: Any, dtype: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == dtype and value.shape == (_BATCH,)


def _described(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_described, value))})"
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{value.dtype} of shape {tuple(value.shape)}"
    return f"a {type(value).__name__}"


def check_resolver_function(name: object, resolver: object) -> None:
    """Raise :class:`ConfigError` unless this may be registered as a boundary resolver."""
    check_name("boundary resolver", name)
    if not callable(resolver):
        raise ConfigError("TP119", name=name, resolver=resolver)
    try:
        signature = inspect.signature(resolver)
    except (TypeError, ValueError):
        return  # written in C: nothing to read
    try:
        signature.bind(object())
    except TypeError as error:
        raise ConfigError("TP120", name=name, error=error) from error


def check_table(name: str, provider: object, table: object, size: int) -> NDArray[np.bool_]:
    """The table that a resolver returned, read-only: bool ``[size]``.

    Raises :class:`ConfigError` for anything else, naming who provides the resolver.
    """
    if not isinstance(table, np.ndarray) or table.dtype != np.bool_ or table.shape != (size,):
        found = _described(table)
        raise ConfigError("TP121", name=name, provider=provider, found=found, size=size)
    kept = table.copy()
    kept.setflags(write=False)
    return kept
