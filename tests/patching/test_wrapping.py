from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
from typing import Any

import pytest

from tandem_plugin.patching.wrapping import replaced, wrap_once


class Foreign:
    """Stands for a class of another library."""

    def add(self, a: int, b: int = 2) -> int:
        """Add."""
        return a + b

    async def wait(self, a: int) -> int:
        return a


@pytest.fixture
def foreign() -> type:
    return type("Foreign", (), {"add": Foreign.add, "wait": Foreign.wait})


def doubled(original: Any, *args: Any, **kwargs: Any) -> Any:
    return 2 * original(*args, **kwargs)


async def doubled_later(original: Any, *args: Any, **kwargs: Any) -> Any:
    return 2 * await original(*args, **kwargs)


def test_wrapper_is_called_with_the_original_and_its_arguments(foreign: Any) -> None:
    wrap_once(foreign, "add", doubled)
    assert foreign().add(1) == 6
    assert foreign().add(1, b=4) == 10


def test_wrapping_around_anothers_wrapper_is_not_done_twice(foreign: Any) -> None:
    wrap_once(foreign, "add", doubled)
    ours = foreign.add

    @functools.wraps(ours)
    def theirs(*args: Any, **kwargs: Any) -> Any:
        return 1 + ours(*args, **kwargs)

    foreign.add = theirs
    wrap_once(foreign, "add", doubled)
    assert foreign().add(1) == 7


def test_signature_name_and_docstring_stay_those_of_the_original(foreign: Any) -> None:
    before = inspect.signature(foreign.add)
    wrap_once(foreign, "add", doubled)
    assert inspect.signature(foreign.add) == before
    assert (foreign.add.__name__, foreign.add.__doc__) == ("add", "Add.")


def test_coroutine_function_stays_one(foreign: Any) -> None:
    wrap_once(foreign, "wait", doubled_later)
    assert inspect.iscoroutinefunction(foreign.wait)
    assert asyncio.run(foreign().wait(4)) == 8


@pytest.mark.parametrize(
    ("name", "wrapper", "said"),
    [
        ("add", doubled_later, r"Foreign\.add is no longer a coroutine function"),
        ("wait", doubled, r"Foreign\.wait has become a coroutine function"),
    ],
)
def test_function_that_became_another_kind_is_refused_and_kept(
    foreign: Any, name: str, wrapper: Any, said: str
) -> None:
    before = getattr(foreign, name)
    with pytest.raises(TypeError, match=said):
        wrap_once(foreign, name, wrapper)
    assert getattr(foreign, name) is before


def test_name_that_moved_is_an_error(foreign: Any) -> None:
    with pytest.raises(AttributeError, match="moved"):
        wrap_once(foreign, "moved", doubled)


def test_objects_method_is_replaced_for_a_while_and_then_what_it_was(foreign: Any) -> None:
    one, other = foreign(), foreign()
    other.add = own = functools.partial(one.add, b=10)
    for each, before in ((one, 3), (other, 11)):
        with replaced(each, "add", doubled):
            assert each.add(1) == 2 * before
        assert each.add(1) == before
        with contextlib.suppress(KeyError), replaced(each, "add", doubled):
            raise KeyError
        assert each.add(1) == before
    assert vars(one) == {}
    assert other.add is own
