"""verl's routing among the engines that have a request's junior."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refused import refused

from tandem_verl import router
from tandem_verl.router import RouterByJunior


@pytest.fixture(autouse=True, scope="module")
def _answers_at_once() -> Any:
    patch = pytest.MonkeyPatch()
    patch.setattr(router.ray, "get", list)
    yield
    patch.undo()


def server(junior: str) -> Any:
    return SimpleNamespace(tandem_junior=SimpleNamespace(remote=lambda: junior))


def asked(junior: str | None) -> dict[str, Any]:
    return {"n": 1, "extra_args": {"tandem": {"seed": 3, "junior": junior}}}


ACTION = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 5), st.sampled_from(["go", "drop"]))


@given(st.lists(ACTION, max_size=40), st.sets(st.integers(0, 3)), st.integers(0, 40))
def test_request_reaches_an_engine_with_its_junior_whichever_come_and_go(
    actions: list[tuple[str, int, str]], leaving: set[int], when: int
) -> None:
    """Also one that goes on with a response; counts are verl's, and none is lost."""
    servers = {f"{junior}{i}": server(junior) for i in range(4) for junior in "ab"}
    made, running = RouterByJunior(servers, {}), Counts()
    for turn, (junior, request, what) in enumerate(actions):
        if turn == when:
            gone = [f"{junior}{i}" for i in leaving for junior in "ab"]
            if len(leaving) < 4:
                made.remove_servers(gone)
                running.drop(gone)
        found, handle = made.acquire_server(f"{junior}-{request}", asked(junior))
        assert found.startswith(junior)
        assert handle is servers[found]
        again, _ = made.acquire_server(f"{junior}-{request}", asked(junior))
        assert again == found
        running.add(found, 2)
        if what == "drop":
            made.release_server(found)
            running.add(found, -1)
    assert {one: n for one, n in made.get_status()["servers"].items() if n} == running.known()


class Counts(dict[str, int]):
    def add(self, one: str, n: int) -> None:
        self[one] = self.get(one, 0) + n

    def drop(self, gone: list[str]) -> None:
        for one in gone:
            self.pop(one, None)

    def known(self) -> dict[str, int]:
        return {one: n for one, n in self.items() if n}


def test_requests_of_one_junior_are_spread_over_its_engines() -> None:
    servers = {f"{junior}{i}": server(junior) for i in range(3) for junior in "ab"}
    made = RouterByJunior(servers)
    found = [made.acquire_server(str(i), asked("a"))[0] for i in range(6)]
    assert sorted(found) == ["a0", "a0", "a1", "a1", "a2", "a2"]


@pytest.mark.parametrize("params", [None, {}, {"extra_args": {"tandem": "off"}}, asked(None)])
def test_senior_alone_answers_in_any_engine(params: Any) -> None:
    made = RouterByJunior({"x": server("a"), "y": server("b")})
    assert {made.acquire_server(str(i), params)[0] for i in range(2)} == {"x", "y"}


def test_response_whose_junior_is_in_no_engine_any_more_is_refused() -> None:
    made = RouterByJunior({"x": server("a"), "y": server("b")})
    assert made.require_acquire_fields() == ["sampling_params"]
    made.acquire_server("r", asked("b"))
    made.remove_servers(["y"])
    with refused("TP430", junior="b"):
        made.acquire_server("r", asked("b"))
    assert made.acquire_server("s", asked("a"))[0] == "x"
    made.add_servers({"z": server("b")})
    assert made.acquire_server("r", asked("b"))[0] == "z"
    made.remove_servers(["x", "z"])
    with pytest.raises(RuntimeError, match="No available servers"):  # verl's, which waits for it
        made.acquire_server("r", asked("b"))
