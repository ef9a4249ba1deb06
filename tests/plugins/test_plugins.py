from __future__ import annotations

import dataclasses
import importlib
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
from algorithm_1 import boundary_set
from automata import NAMES, AutomatonSchedule, authors_by_loop
from refused import refused

from tandem_plugin import (
    BoundarySet,
    ConfigError,
    TandemConfig,
    TandemRules,
    Vocabulary,
    __version__,
    draws,
    fingerprint,
    hookimpl,
    list_resolvers,
    list_schedules,
    make_schedule,
    resolve_boundaries,
)
from tandem_plugin.plugins import Plugin, Provider, build_catalogue, loading, using_plugins
from tandem_plugin.plugins.contracts import check_resolver_function, check_schedule_class
from tandem_plugin.plugins.loading import catalogue
from tandem_plugin.request import TandemRequest
from tandem_plugin.rules import ResolvedRequest

BUILT_IN = Provider("tandem-plugin", __version__)


@dataclass(frozen=True)
class Coin:
    """A third party's schedule: a fresh draw for every token."""

    name: ClassVar[str] = "coin"
    boundaries: ClassVar[str] = "every"
    p: float = 0.5

    def start(self, u: Any) -> Any:
        return u < self.p

    def advance(self, author: Any, run: Any, is_boundary: Any, u: Any) -> tuple[Any, Any]:
        return u < self.p, run * 0


def odd_ids(vocabulary: Vocabulary) -> Any:
    return np.arange(len(vocabulary)) % 2 == 1


class CoinPlugin:
    """A third party's plugin."""

    @hookimpl
    def register_schedules(self, register: Callable[[Any], None]) -> None:
        register(Coin)

    @hookimpl
    def register_boundaries(self, register: Callable[[str, Any], None]) -> None:
        register("odd-ids", odd_ids)


def plugin(loaded: object, distribution: str = "coins", version: str = "1.0") -> Plugin:
    return Plugin("coin", Provider(distribution, version), lambda: loaded)


def registering(*given: Any, boundaries: tuple[tuple[Any, ...], ...] = ()) -> Any:
    """A plugin that registers these."""

    class Registering:
        @hookimpl
        def register_schedules(self, register: Callable[[Any], None]) -> None:
            for schedule in given:
                register(schedule)

        @hookimpl
        def register_boundaries(self, register: Callable[..., None]) -> None:
            for resolver in boundaries:
                register(*resolver)

    return Registering()


def reason(loaded: object) -> str:
    (broken,) = build_catalogue([plugin(loaded)]).broken
    assert broken.provider == Provider("coins", "1.0")
    return broken.reason


def code(loaded: object) -> str:
    """Of the refusal for which a plugin is skipped."""
    (found,) = re.findall(r"\[([a-z0-9-]+)\]$", reason(loaded))
    return str(found)


def test_what_is_built_in_keeps_the_contract_of_plugins() -> None:
    built = build_catalogue([])
    assert {entry.provider for entry in built.registrations} == {BUILT_IN}
    for schedule in built.of_kind("schedule").values():
        check_schedule_class(schedule)
    for name, resolver in built.of_kind("boundaries").items():
        check_resolver_function(name, resolver)


def test_plugin_is_used_by_name_like_a_built_in_one() -> None:
    with using_plugins(CoinPlugin()):
        assert list_schedules()["coin"] is Coin
        assert list_resolvers()["odd-ids"] is odd_ids
        config = TandemConfig.from_mapping({"schedule": "coin", "p": 1, "boundaries": "odd-ids"})
        rules = TandemRules(config, Vocabulary(("a", "b", "c", "d"), "a test"))
        assert rules.default.boundaries.table.tolist() == [False, True, False, True]
        assert rules.default.replay([1, 2, 3], seed=4).tolist() == [1, 1, 1]
        assert rules.default.settings() == {"schedule": "coin", "p": 1.0, "boundaries": "odd-ids"}
        request = rules.default.request(5).to_wire()
        assert rules.for_request({**request}) == ResolvedRequest(rules.default, 5)
    assert "coin" not in list_schedules()


def test_using_plugins_refuses_one_that_cannot_be_used() -> None:
    class Empty:
        pass

    before = catalogue()
    with refused("plugin-unusable"), using_plugins(Empty()):
        pass
    with refused("plugin-name-ambiguous"), using_plugins(CoinPlugin(), CoinPlugin()):
        pass
    assert catalogue() is before


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Puts a distribution with one entry point where Python finds it, and forgets the catalogue."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(loading, "_catalogue", None)
    modules: list[str] = []

    def write(name: str, code: str, version: str = "1.0") -> None:
        module = name.replace("-", "_")
        (tmp_path / f"{module}.py").write_text(code)
        info = tmp_path / f"{module}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(f"[tandem_plugin]\n{name} = {module}:plugin\n")
        importlib.invalidate_caches()
        modules.append(module)

    yield write
    for module in modules:
        sys.modules.pop(module, None)


def test_plugin_that_raises_on_import_is_skipped_with_one_warning(
    install: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    install("a-broken", "raise RuntimeError('no licence')\n", "3.1")
    install("a-coin", f"from {__name__} import CoinPlugin\nplugin = CoinPlugin()\n")
    for _ in range(3):
        assert list_schedules()["coin"] is Coin
    (entry,) = [e for e in catalogue().registrations if e.name == "coin"]
    assert entry.provider == Provider("a-coin", "1.0")
    assert [r.getMessage() for r in caplog.records] == [
        "A tandem plugin is skipped: 'a-broken' of a-broken 3.1: RuntimeError: no licence"
    ]
    with pytest.raises(ConfigError) as caught:
        TandemConfig.from_mapping({"schedule": "mine"})
    assert caught.value.message == (
        f"schedule='mine' does not exist. Use one of the schedules: {', '.join(list_schedules())}. "
        "Plugins that could not be used: 'a-broken' of a-broken 3.1: RuntimeError: no licence."
    )
    with refused("plugin-name-unknown", kind="boundaries", name="mine"):
        resolve_boundaries("mine", Vocabulary(("a",), "a test"))


def test_misspelled_hook_is_an_error_of_its_plugin_alone() -> None:
    class Misspelled:
        @hookimpl
        def register_schedule(self, register: Callable[[Any], None]) -> None:
            register(Coin)

    built = build_catalogue([plugin(Misspelled(), "typos"), plugin(CoinPlugin())])
    assert "coin" in built.of_kind("schedule")
    (broken,) = built.broken
    assert broken.provider.distribution == "typos"
    assert "unknown hook 'register_schedule'" in broken.reason


def test_plugin_is_taken_whole_or_not_at_all() -> None:
    built = build_catalogue([plugin(registering(Coin, object))])
    assert "coin" not in built.of_kind("schedule")
    assert len(built.broken) == 1


def test_name_that_two_distributions_register_raises_and_names_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both = [plugin(CoinPlugin(), "coins", "1.0"), plugin(CoinPlugin(), "other-coins", "2.0")]
    monkeypatch.setattr(loading, "_installed", lambda: both)
    monkeypatch.setattr(loading, "_catalogue", None)
    for ask in (list_schedules, list_resolvers, lambda: make_schedule("word", {})):
        with refused(
            "plugin-name-ambiguous", name="coin", providers="coins 1.0 and by other-coins 2.0"
        ):
            ask()


def test_version_and_name_of_a_plugins_distribution_are_in_the_fingerprint() -> None:
    def of(distribution: str, version: str) -> str:
        with using_plugins(CoinPlugin(), distribution=distribution, version=version):
            return fingerprint(make_schedule("coin", {}), boundary_set({1}))

    origins = [("coins", "1.0"), ("coins", "1.1"), ("other-coins", "1.0")]
    assert len({of(*origin) for origin in origins}) == 3
    assert of("coins", "1.0") == of("coins", "1.0")
    unregistered = fingerprint(Coin(), boundary_set({1}))
    assert unregistered not in {of(*origin) for origin in origins}


def schedule_with(**changes: Any) -> Any:
    """The class Coin with other class variables or methods."""
    names = {"__annotations__": {"p": float}, "p": 0.5, "__module__": __name__}
    names |= {k: v for k, v in vars(Coin).items() if k in ("name", "boundaries", "start")}
    names |= {"advance": Coin.advance, "__qualname__": "Changed", **changes}
    gone = {name for name, value in names.items() if value is dataclasses.MISSING}
    kind = type("Changed", (), {k: v for k, v in names.items() if k not in gone})
    return dataclass(frozen=True)(kind)


def changing(self: Any, author: Any, run: Any, is_boundary: Any, u: Any) -> Any:
    run += 1
    return author, run


GONE = dataclasses.MISSING


def annotated(kind: Any, name: str = "p", **default: Any) -> Any:
    return schedule_with(__annotations__={name: kind}, **default)


def advancing(result: Callable[..., Any]) -> Any:
    return schedule_with(advance=lambda self, a, r, b, u: result(a, r, b))


NO_SCHEDULES: dict[str, list[Any]] = {
    "schedule-not-class": [Coin()],
    "schedule-not-frozen-dataclass": [
        type("Plain", (), {}),
        type("Child", (Coin,), {}),
        dataclass(type("Thawed", (), {"name": "a"})),
    ],
    "plugin-name-invalid": [schedule_with(name=GONE), schedule_with(name="Two Words")],
    "plugin-name-reserved": [schedule_with(name="off")],
    "schedule-parameter-without-default": [schedule_with(p=GONE)],
    "schedule-parameter-type-unsupported": [annotated(list), annotated(Literal[1, 2])],
    "schedule-types-unreadable": [annotated("Nowhere")],
    "schedule-parameter-reserved": [
        annotated(int, name, **{name: 1}) for name in ("seed", "_q", "prompt_length")
    ],
    "schedule-training-step-not-int": [annotated(float, "training_step", training_step=1.0)],
    "schedule-defaults-fail": [schedule_with(__post_init__=lambda self: 1 / 0)],
    "schedule-failed": [
        schedule_with(start=GONE),
        schedule_with(advance=7),
        schedule_with(start=lambda self: 1),
    ],
    "schedule-result-invalid": [
        schedule_with(start=lambda self, u: True),
        schedule_with(start=lambda self, u: u),
        schedule_with(start=lambda self, u: (u < 1)[:2]),
        advancing(lambda a, r, b: a),
        advancing(lambda a, r, b: (a, r * 1.0)),
        advancing(lambda a, r, b: (a, r.astype(np.int32))),
    ],
    "schedule-modifies-arguments": [schedule_with(advance=changing)],
    "schedule-depends-on-batch": [advancing(lambda a, r, b: (a & b.any(), r))],
}


@pytest.mark.parametrize("refusal", NO_SCHEDULES)
def test_class_that_is_no_schedule_is_refused_when_it_is_registered(refusal: str) -> None:
    assert build_catalogue([plugin(registering(schedule_with()))]).broken == ()
    for schedule in NO_SCHEDULES[refusal]:
        assert code(registering(schedule)) == refusal
    assert code(registering()) == "plugin-registers-nothing"


def test_schedule_for_numpy_alone_is_refused_where_torch_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where it is loaded later, by the rules of an engine."""
    torch = pytest.importorskip("torch")
    on_cpu = schedule_with(
        start=lambda self, u: torch.zeros(len(u)) < 1 if torch.is_tensor(u) else u < 1
    )
    assert code(registering(on_cpu)) == "schedule-result-invalid"
    numpy_only = schedule_with(start=lambda self, u: np.less(np.asarray(u), 0.5))
    assert code(registering(numpy_only)) == "schedule-failed"
    monkeypatch.delitem(sys.modules, "torch")
    with using_plugins(registering(numpy_only)):
        monkeypatch.setitem(sys.modules, "torch", torch)
        with refused("schedule-failed", name="start", on="torch tensors"):
            TandemRules(TandemConfig(schedule="coin"), Vocabulary(("a", "b"), "a test"))


def test_what_is_no_resolver_is_refused_when_it_is_registered() -> None:
    for name, resolver, refusal in (
        ("Odd", odd_ids, "plugin-name-invalid"),
        (3, odd_ids, "plugin-name-invalid"),
        ("odd", 3, "resolver-not-function"),
    ):
        assert code(registering(boundaries=((name, resolver),))) == refusal


@pytest.mark.parametrize(
    "table",
    [[True, False], np.ones(3, np.bool_), np.ones((2, 1), np.bool_), np.ones(2), None],
    ids=str,
)
def test_table_of_a_wrong_kind_is_refused_when_the_resolver_is_used(table: Any) -> None:
    odd = registering(boundaries=(("odd", lambda vocabulary: table),))
    with using_plugins(odd), refused("resolver-result-invalid", name="odd", size=2):
        resolve_boundaries("odd", Vocabulary(("a", "b"), "a test"))


def classes_of(table: Any, classes: tuple[str, ...] = NAMES) -> Any:
    """A plugin of an automaton and of a resolver of its classes that returns this table."""
    return registering(
        AutomatonSchedule, boundaries=(("automaton", lambda vocabulary: table, classes),)
    )


THREE = Vocabulary(("a", "b", "c"), "a test")


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_schedule_of_token_classes_is_used_by_name_like_any(dtype: Any) -> None:
    with using_plugins(classes_of(np.array([1, 0, 5], dtype=dtype))):
        entries = {(e.kind, e.name): e.classes for e in catalogue().registrations}
        assert entries["schedule", "automaton"] == entries["boundaries", "automaton"] == NAMES
        assert entries["schedule", "word"] == entries["boundaries", "word"] == ()
        rules = TandemRules(
            TandemConfig.from_mapping({"schedule": "automaton", "number": 3}), THREE
        )
        boundaries = rules.default.boundaries
        assert boundaries.read([2, 1, 0, 7]).tolist() == [5, 0, 1, 0]
        assert boundaries.read([2]).dtype == np.int64
        assert boundaries.contains([2, 1, 0, 7]).tolist() == [True, False, True, False]
        assert boundaries.count == 2
        tokens = [0, 1, 2, 2, 0, 1, 1, 2, 0, 7] * 9
        u = draws(5, len(tokens) + 1).tolist()
        expected = authors_by_loop(3, 0.5, [1, 0, 5], tokens, u)[:-1]
        assert rules.default.replay(tokens, 5).senior.tolist() == expected
        assert rules.for_request(rules.default.request(5).to_wire()) is not None
        other = rules.for_request({"seed": 1, "schedule": "token"})
        assert other is not None
        assert other.rule.boundaries.resolver == "every"


def test_classes_are_in_the_fingerprint_by_their_ids_and_names() -> None:
    def of(table: list[int], classes: tuple[str, ...] = NAMES) -> str:
        return BoundarySet("automaton", np.array(table), classes).digest

    assert of([1, 0, 5]) == of([1, 0, 5, 0, 0])
    digests = [of([1, 0, 5]), of([5, 0, 1]), of([1, 5]), of([1, 0, 5], NAMES[::-1])]
    assert len({*digests, BoundarySet("x", np.array([True, False, True])).digest}) == 5


@pytest.mark.parametrize(
    ("table", "refusal"),
    [
        (np.array([0, 1, 6], dtype=np.uint8), "resolver-class-unknown"),
        (np.array([0, 1, 2]), "resolver-result-invalid"),
        (np.array([0, 1], dtype=np.uint8), "resolver-result-invalid"),
        (np.array([True, False, True]), "resolver-result-invalid"),
        (None, "resolver-result-invalid"),
    ],
)
def test_classes_of_a_wrong_kind_are_refused_when_the_resolver_is_used(
    table: Any, refusal: str
) -> None:
    with using_plugins(classes_of(table)), refused(refusal, name="automaton"):
        resolve_boundaries("automaton", THREE)


@pytest.mark.parametrize("classes", [("a",), ("a", "a"), ["a", "b"], ("a", 1), 3])
def test_what_are_no_names_of_classes_is_refused(classes: Any) -> None:
    assert code(classes_of(None, classes)) == "token-classes-invalid"
    assert code(registering(schedule_with(classes=classes))) == "token-classes-invalid"


def test_schedule_and_resolver_have_the_same_classes_or_are_refused() -> None:
    table = np.array([0, 1, 1], dtype=np.uint8)
    with using_plugins(classes_of(table, NAMES[:2])):
        with refused("schedule-classes-differ", schedule="automaton", resolver="automaton"):
            TandemConfig.from_mapping({"schedule": "automaton"})
        for name, resolver in (("automaton", "word"), ("word", "automaton")):
            with refused("schedule-classes-differ", schedule=name, resolver=resolver):
                TandemConfig.from_mapping({"schedule": name, "boundaries": resolver})
    with using_plugins(classes_of(table)):
        rules = TandemRules(
            TandemConfig.from_mapping({"schedule": "token", "boundaries": "every"}), THREE
        )
        with refused("schedule-classes-differ", schedule="automaton", resolver="every"):
            rules.for_request({"seed": 1, "schedule": "automaton"})


def test_schedule_of_token_classes_is_tried_on_its_classes_and_on_the_states_it_reaches() -> None:
    reads: list[int] = []

    def advance(self: Any, author: Any, run: Any, token_class: Any, u: Any) -> Any:
        if isinstance(run, np.ndarray):
            reads.extend(token_class.tolist())
        return author, run * 2 + token_class

    build_catalogue([plugin(registering(schedule_with(classes=NAMES, advance=advance)))])
    assert set(reads) == set(range(len(NAMES)))

    def of_late_states(self: Any, author: Any, run: Any, token_class: Any, u: Any) -> Any:
        return author & (run.max() < 4), run + token_class

    def by_value(self: Any, author: Any, run: Any, token_class: Any, u: Any) -> Any:
        return author, run + int(token_class.sum() >= 0)

    for step, refusal in (
        (of_late_states, "schedule-depends-on-batch"),
        (by_value, "schedule-failed"),  # on tensors
    ):
        assert code(registering(schedule_with(classes=NAMES, advance=step))) == refusal


def test_resolver_that_fails_on_a_tokenizer_is_named() -> None:
    failing = registering(boundaries=(("odd", lambda vocabulary: vocabulary.pieces[99]),))
    vocabulary = Vocabulary(("a", "b"), "a test")
    with using_plugins(failing), refused("resolver-failed", name="odd", source="a test"):
        resolve_boundaries("odd", vocabulary)


def test_table_cannot_be_changed_behind_the_fingerprint() -> None:
    table = np.array([True, False])
    with using_plugins(registering(boundaries=(("odd", lambda vocabulary: table),))):
        found = resolve_boundaries("odd", Vocabulary(("a", "b"), "a test"))
    table[:] = False
    assert found.count == 1
    with pytest.raises(ValueError, match="read-only"):
        found.table[0] = False


@dataclass(frozen=True)
class Typed(Coin):
    """A plugin's schedule that checks nothing itself."""

    name: ClassVar[str] = "typed"
    n: int = 1
    on: bool = True
    who: Literal["senior", "junior"] = "senior"
    note: str = ""


@pytest.mark.parametrize(
    ("name", "values", "refusal"),
    [
        (
            "p",
            ["x", True, float("nan"), float("inf"), 10**400, 10**5000],
            "schedule-parameter-invalid",
        ),
        ("n", [1.0, True, 2**63], "schedule-parameter-invalid"),
        ("on", [1], "schedule-parameter-invalid"),
        ("who", ["teacher", []], "parameter-not-known"),
        ("note", [None], "schedule-parameter-invalid"),
        ("q", [10**5000], "schedule-parameter-unknown"),
    ],
)
def test_parameters_of_a_plugins_schedule_are_checked_by_their_types(
    name: str, values: list[Any], refusal: str
) -> None:
    with using_plugins(registering(Typed)):
        assert make_schedule("typed", {"p": 1, "n": 2}) == Typed(p=1.0, n=2)
        for value in values:
            with refused(refusal):
                make_schedule("typed", {name: value})


def test_what_a_plugins_own_check_raises_is_a_configuration_error() -> None:
    def refuse(self: Any) -> None:
        if self.p > 0.9:
            raise ValueError("p is too high")

    kind = schedule_with(__post_init__=refuse)
    with (
        using_plugins(registering(kind)),
        refused("schedule-parameters-rejected", name="coin", error="p is too high"),
    ):
        make_schedule("coin", {"p": 1.0})


def test_schedule_whose_resolver_does_not_exist_is_refused_with_the_settings() -> None:
    lost = schedule_with(boundaries="nowhere")
    with using_plugins(registering(lost)):
        with refused("plugin-name-unknown", kind="boundaries", name="nowhere"):
            TandemConfig.from_mapping({"schedule": "coin"})
        assert TandemConfig.from_mapping({"schedule": "coin", "boundaries": "every"})


def test_settings_behind_a_schedules_name_are_said_to_be_settings_of_their_own() -> None:
    for name, behind in (("word", ":p=0.5"), ("step-bernoulli", ",q=0.1"), ("word", " p=0.5")):
        with refused("plugin-name-unknown", name=name + behind) as raised:
            TandemConfig.from_mapping({"schedule": name + behind})
        assert f"Parameters of '{name}' are settings of their own" in str(raised.value)
    with refused("plugin-name-unknown") as raised:
        TandemConfig.from_mapping({"schedule": "words"})
    assert "settings of their own" not in str(raised.value)


OF_REQUESTS = {field.name for field in dataclasses.fields(TandemRequest)} - {"parameters"}


@pytest.mark.parametrize(
    "name", sorted({*TandemConfig.model_fields, *OF_REQUESTS, "alone", "classes"})
)
def test_settings_and_fields_of_requests_are_no_names_of_parameters(name: str) -> None:
    fields = [(name, int, dataclasses.field(default=1))]
    made = dataclasses.make_dataclass("Made", fields, bases=(Coin,), frozen=True)
    with refused("schedule-parameter-reserved", "plugin-name-invalid", "token-classes-invalid"):
        check_schedule_class(made)
