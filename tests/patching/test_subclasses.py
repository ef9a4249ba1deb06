"""Subclasses of ours over classes of verl's and of users, made where they are needed."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import pytest
from refused import refused

from tandem_plugin.patching.subclasses import Mixin, extended


class Ours(Mixin):
    def step(self, number: int) -> int:
        return 10 * super().step(number)

    async def ask(self) -> str:
        return "tandem " + await super().ask()

    def tandem_extra(self) -> str:
        return "ours"


class Verls:
    def step(self, number: int) -> int:
        return number + 1

    async def ask(self) -> str:
        return "verl"


class Users(Verls):
    def step(self, number: int) -> int:
        return 100 * super().step(number)


@pytest.mark.parametrize(("base", "expected"), [(Verls, 20), (Users, 2000)])
def test_methods_of_ours_come_before_those_of_whichever_class_a_run_uses(
    base: type, expected: int
) -> None:
    made: Any = Ours.tandem_over(base)()
    assert isinstance(made, base)
    assert (made.step(1), made.tandem_extra()) == (expected, "ours")
    assert asyncio.run(made.ask()) == "tandem verl"
    assert Ours.tandem_over(type(made)) is type(made)
    assert extended(Ours).keys() == {"step", "ask"}


def test_class_without_a_method_or_with_another_kind_of_it_is_refused() -> None:
    class Renamed:
        def step(self, number: int) -> int: ...

    class Waits(Verls):
        async def step(self, number: int) -> int: ...  # type: ignore[override]

    class Returns(Verls):
        def ask(self) -> str: ...  # type: ignore[override]

    with refused("patched-symbol-changed", problem="has no method ask"):
        Ours.tandem_over(Renamed)
    with refused(
        "patched-symbol-changed", problem="has a method step that changed between sync and async"
    ):
        Ours.tandem_over(Waits)
    with refused(
        "patched-symbol-changed", problem="has a method ask that changed between sync and async"
    ):
        Ours.tandem_over(Returns)


def test_ray_actor_keeps_its_options_and_travels_to_other_processes() -> None:
    ray = pytest.importorskip("ray", reason="ray is not installed")
    actor = Ours.tandem_over(ray.remote(num_cpus=3)(Users))
    assert actor._default_options["num_cpus"] == 3
    plain = Ours.tandem_over(ray.remote(Users))
    there = ray.cloudpickle.loads(ray.cloudpickle.dumps(plain.__ray_actor_class__))
    assert there().step(1) == 2000


def test_coroutine_function_below_a_decorator_is_one() -> None:
    """As of SkyRL's trainer, whose ``eval`` is below ``torch.no_grad``."""

    def decorated(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*arguments: Any) -> Any:
            return function(*arguments)

        return wrapper

    class Decorated(Verls):
        ask = decorated(Verls.ask)

    assert issubclass(Ours.tandem_over(Decorated), Decorated)
