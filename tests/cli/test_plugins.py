from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from automata import NAMES, AutomatonSchedule
from typer.testing import CliRunner

from tandem_plugin import hookimpl, list_resolvers, list_schedules
from tandem_plugin.boundaries.markers import Markers
from tandem_plugin.cli import app
from tandem_plugin.plugins import Plugin, Provider, loading


@dataclass(frozen=True)
class Ramp:
    name: ClassVar[str] = "ramp"
    boundaries: ClassVar[str] = "word"
    rate: float = 0.25
    training_step: int = 0

    def start(self, u: Any) -> Any:
        return u < self.rate

    def advance(self, author: Any, run: Any, is_boundary: Any, u: Any) -> tuple[Any, Any]:
        return u < self.rate, run * 0


class Ramps:
    @hookimpl
    def register_schedules(self, register: Callable[[Any], None]) -> None:
        register(Ramp)


class Automata:
    @hookimpl
    def register_schedules(self, register: Callable[[Any], None]) -> None:
        register(AutomatonSchedule)

    @hookimpl
    def register_boundaries(self, register: Callable[..., None]) -> None:
        markers = Markers({"a": {"<call>{n}</call>": "b"}, "b": {}})
        register("automaton", lambda vocabulary: None, NAMES)
        register("call", markers.table, markers.classes)


def broken() -> object:
    raise ImportError("no module named [bold]nothing[/bold]")


GOOD = Plugin("ramp", Provider("ramps", "1.2"), Ramps)
BROKEN = Plugin("lost", Provider("lost-plugin", "0.3"), broken)


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    def put(*installed: Plugin) -> None:
        monkeypatch.setattr(loading, "_installed", lambda: installed)
        monkeypatch.setattr(loading, "_catalogue", None)

    yield put
    loading.logger.disabled = False


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["plugins", *arguments], terminal_width=200)


def test_every_schedule_and_resolver_is_listed_with_its_parameters_and_distribution(
    install: Callable[..., None],
) -> None:
    install(GOOD)
    result = run("--json")
    assert result.exit_code == 0
    listed = json.loads(result.stdout)
    assert listed["ok"] is True
    names = [(entry["kind"], entry["name"]) for entry in listed["registered"]]
    assert sorted(names) == sorted(
        [("schedule", name) for name in list_schedules()]
        + [("boundaries", n) for n in list_resolvers()]
    )
    by_name = {(e["kind"], e["name"]): e for e in listed["registered"]}
    assert by_name["schedule", "ramp"] == {
        "name": "ramp",
        "kind": "schedule",
        "parameters": [
            {"name": "rate", "type": "float", "default": 0.25},
            {"name": "training_step", "type": "int", "default": 0},
        ],
        "classes": [],
        "distribution": "ramps",
        "version": "1.2",
    }


def test_broken_plugin_is_listed_with_its_reason_and_fails_only_when_strict(
    install: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    install(GOOD, BROKEN)
    result = run()
    assert result.exit_code == 0
    assert "ramp            schedule    rate: float = 0.25, training_step: int = 0" in result.output
    assert (
        "Not usable: 'lost' of lost-plugin 0.3: ImportError: no module named [bold]nothing[/bold]"
        in result.output
    )
    assert run("--strict").exit_code == 1
    listed = json.loads(run("--json").stdout)
    assert listed["ok"] is False
    assert listed["broken"] == [
        {
            "plugin": "lost",
            "distribution": "lost-plugin",
            "version": "0.3",
            "reason": "ImportError: no module named [bold]nothing[/bold]",
        }
    ]


def test_clash_fails(install: Callable[..., None]) -> None:
    install(GOOD, Plugin("ramp", Provider("other-ramps", "3"), Ramps))
    result = run("--json")
    assert result.exit_code == 1
    assert "[plugin-name-ambiguous]" in json.loads(result.stdout)["error"]


def test_what_a_plugin_prints_while_it_is_loaded_is_not_the_result(
    install: Callable[..., None],
) -> None:
    def noisy() -> object:
        print("NOISE")
        return Ramps()

    install(Plugin("ramp", Provider("ramps", "1.2"), noisy))
    result = run("--json")
    assert json.loads(result.stdout)["ok"]
    assert "NOISE" in result.stderr


def test_token_classes_are_listed(install: Callable[..., None]) -> None:
    install(Plugin("automata", Provider("automata", "1.0"), Automata))
    listed = {(e["kind"], e["name"]): e for e in json.loads(run("--json").stdout)["registered"]}
    for kind in ("schedule", "boundaries"):
        assert listed[kind, "automaton"]["classes"] == list(NAMES)
    assert len(listed["boundaries", "call"]["classes"]) > 1000
    shown = " ".join(run().stdout.split())
    assert "the classes 'class 0', 'class 1'" in shown
    assert f"{len(listed['boundaries', 'call']['classes'])} classes" in shown
