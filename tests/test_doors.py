"""Every place where a user gives something: what nothing reads, and what is overridden, is named.

One table over all doors: commands and their options, ``--set`` and its kin, variables of the
environment, recipes, engines, requests, a server's bodies, trainers' configurations, plugins. At
each, a misspelt name is an error that says the nearest one or the right place, and a value that
another one would override is an error that says both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tandem_plugin import TandemConfig, TandemRules, Vocabulary, hookimpl, request, variables
from tandem_plugin.cli import app
from tandem_plugin.errors import TandemError
from tandem_plugin.lab.commands.options import engine_arguments
from tandem_plugin.lab.data import layout_of
from tandem_plugin.lab.data.problem import PromptTemplate
from tandem_plugin.lab.data.sources import check_source
from tandem_plugin.lab.recipes.run import check_arguments
from tandem_plugin.lab.recipes.settings import Recipe, read_recipe
from tandem_plugin.lab.rollouts import engine
from tandem_plugin.patching.versions import installed_version
from tandem_plugin.plugins import using_plugins
from tandem_plugin.training.command import settings_of_command
from tandem_plugin.variables import check_variables

ROOT = Path(__file__).parents[1]
COMMANDS: dict[str, Any] = {}


def _collect(command: Any, path: str) -> None:
    inner = getattr(command, "commands", None)
    if inner is None:
        COMMANDS[path] = command
    for name, below in (inner or {}).items():
        _collect(below, f"{path} {name}".strip())


_collect(typer.main.get_command(app), "")

OPTIONS = [
    (path, option)
    for path, command in COMMANDS.items()
    for option in command.params
    if option.param_type_name == "option" and max(map(len, option.opts)) > 4
]


def run(line: str, *more: str) -> str:
    """What a command that must fail prints."""
    result = CliRunner().invoke(app, [*line.split(), *more])
    assert result.exit_code in (1, 2), result.output
    return " ".join(result.output.split())


# Commands, by themselves.


@pytest.mark.parametrize("path", COMMANDS)
def test_misspelt_command_is_an_error_that_names_it(path: str) -> None:
    above, _, name = path.rpartition(" ")
    assert f"Did you mean '{name}'" in run(f"{above} {name[:-1]}x")


@pytest.mark.parametrize(
    ("path", "option"), OPTIONS, ids=[f"{path} {option.opts[0]}" for path, option in OPTIONS]
)
def test_misspelt_option_is_an_error_that_names_it(path: str, option: Any) -> None:
    right = max(option.opts, key=len)
    assert right in run(path, f"{right[:-2]}{right[-1]}{right[-2]}x").partition("No such option")[2]


SINGLE = [(path, option) for path, option in OPTIONS if not (option.multiple or option.is_flag)]


@pytest.mark.parametrize(
    ("path", "option"), SINGLE, ids=[f"{path} {option.opts[0]}" for path, option in SINGLE]
)
def test_option_of_one_value_that_is_given_two_is_an_error_that_names_both(
    path: str, option: Any
) -> None:
    short, long = option.opts[-1], option.opts[0]
    message = run(path, long, "11", f"{long}=12" if short == long else short, "12")
    assert all(part in message for part in (long, "'11'", "'12'", "option-given-twice"))


def test_option_that_is_given_once_or_may_be_repeated_is_no_error(tmp_path: Path) -> None:
    message = run("rollout --engine max_model_len=8 --engine dtype=half --seed 1 --out o -o",
                  str(tmp_path / "o"))  # fmt: skip
    assert "--out is given twice" in message
    assert "--engine" not in message


@pytest.mark.parametrize(
    ("line", "near"),
    [
        ("eval handof", "handoff"),
        ("init ver", "verl"),
        ("doctor opnrlhf", "openrlhf"),
        ("path reward-ver", "reward-verl"),
        ("data prepare x --to vrl", "verl"),
        ("compare x --legibility-over position", "positions"),
        ("rollout --senior a/b --problems x --out o --schedule wrod", "word"),
        ("rollout --senior a/b --problems x --out o --boundaries sentense", "sentence"),
        ("replay x --schedule step_bernouli", "step-bernoulli"),
        ("eval handoff --senior a --junior b --benchmark x=y --out o --schedule stp", "step"),
        ("drafts --senior a/b --schedule tokn", "token"),
    ],
)
def test_misspelt_choice_is_an_error_that_names_the_nearest(line: str, near: str) -> None:
    assert f"Did you mean '{near}'?" in run(line)


# Doors with names of their own. Each is a function of what a user gives, and raises.


def of_set(line: str) -> Callable[[str], None]:
    def give(assignment: str) -> None:
        message = run(line, *(part for one in assignment.split() for part in ("--set", one)))
        raise TandemError(message)

    return give


def of_variable(text: str) -> None:
    name, _, value = text.partition("=")
    check_variables({name: value})


def of_template_arg(name: str) -> None:
    tokenizer = SimpleNamespace(chat_template="{% if enable_thinking %}{{ messages }}{% endif %}")
    engine.check_template_args(tokenizer, {name: True})


def of_engine_option(name: str) -> None:
    engine._check_arguments({name: 1}, {"max_model_len", "dtype"})


def of_mapping(name: str) -> None:
    TandemConfig.from_mapping({"schedule": "word", name: 1})


def of_flag(*arguments: str) -> Callable[..., None]:
    def give(text: str) -> None:
        settings_of_command([*arguments, *text.split()], "plain")

    return give


def of_recipe(text: str) -> None:
    Recipe(trainer="trl", **json.loads(text))


def of_request(text: str) -> None:
    rules = TandemRules(TandemConfig(), Vocabulary(("a", "Ġb"), "a test"))
    rules.for_request(json.loads(text))


@dataclass(frozen=True)
class Relay:
    """A plugin's schedule with one parameter."""

    name: ClassVar[str] = "relay"
    boundaries: ClassVar[str] = "every"
    length: int = 3

    def start(self, u: Any) -> Any:
        return u < 1

    def advance(self, author: Any, run: Any, is_boundary: Any, u: Any) -> tuple[Any, Any]:
        return u < 1, run * 0


class RelayPlugin:
    @hookimpl
    def register_schedules(self, register: Callable[[Any], None]) -> None:
        register(Relay)


def of_plugin(name: str) -> None:
    with using_plugins(RelayPlugin()):
        TandemConfig.from_mapping({"schedule": "relay", name: 2})


def of_engine(text: str) -> None:
    pytest.importorskip("vllm")
    from tandem_plugin.engine import plugin
    from tandem_plugin.engine.configure import _check_beside

    settings = json.loads(text)
    if "tandem" in settings:
        _check_beside(settings, TandemConfig.from_mapping(settings["tandem"]))
    else:
        plugin._check_spelling(settings)


def of_extra_args(text: str) -> None:
    pytest.importorskip("vllm")
    from tandem_plugin.engine import admission

    config = SimpleNamespace(
        model_config=SimpleNamespace(logits_processors=None),
        kv_transfer_config=None,
        ec_transfer_config=None,
        scheduler_config=SimpleNamespace(scheduler_cls=None),
    )
    admission._check_arrival(config, json.loads(text), {})


def of_server(text: str) -> None:
    pytest.importorskip("vllm")
    from tandem_plugin.engine.patches import bodies

    if path := bodies._misplaced(json.loads(text), ("vllm_xargs",)):
        raise bodies._error(path)


def of_verl(key: str) -> None:
    pytest.importorskip("verl")
    from tandem_verl.misplaced import check_places

    check_places({"actor_rollout_ref": {"rollout": {"engine_kwargs": {"vllm": {key: {"p": 1}}}}}})


@dataclass(frozen=True)
class Door:
    """A place where a user gives names: a wrong one, and what its error must say."""

    give: Callable[[str], None]
    wrong: str
    says: str


ROLLOUT = "rollout --senior a/b --problems x --out o"
HANDOFF = "eval handoff --senior a --junior b --benchmark x=y --out o"

MISSPELT = {
    "rollout --set": Door(of_set(ROLLOUT), "kap=3", "Did you mean 'cap'?"),
    "rollout --set, a setting": Door(of_set(ROLLOUT), "draft=3", "Did you mean 'drafts'?"),
    "rollout --set, an option": Door(of_set(ROLLOUT), "sed=3", "Did you mean '--seed'?"),
    "replay --set": Door(of_set("replay x"), "kap=3", "Did you mean 'cap'?"),
    "drafts --set": Door(of_set("drafts --senior a/b"), "alon=1", "Did you mean 'alone'?"),
    "eval --set": Door(of_set(HANDOFF), "fist=junior", "Did you mean 'first'?"),
    "train --set": Door(of_set("train --print"), "stps=3", "Did you mean 'steps'?"),
    "--engine": Door(of_engine_option, "max_model_length", "Did you mean 'max_model_len'?"),
    "--template-arg": Door(of_template_arg, "enable_thinkin", "Did you mean 'enable_thinking'?"),
    "--field": Door(lambda text: layout_of([text]) and None, "problm=q", "Did you mean 'problem'?"),
    "--template": Door(
        lambda text: PromptTemplate(text, "", always=False) and None,
        "{problem} {instructon}",
        "Did you mean 'instruction'?",
    ),
    "--problems": Door(check_source, "gsm8", "Did you mean 'gsm8k'?"),
    "variable": Door(of_variable, "TANDEM_CONFG={}", "Did you mean 'TANDEM_CONFIG'?"),
    "variable, case": Door(of_variable, "tandem_config={}", "Did you mean 'TANDEM_CONFIG'?"),
    "variable, its underscore": Door(
        of_variable, "TANDEMCONFIG={}", "Did you mean 'TANDEM_CONFIG'"
    ),
    "variable, its prefix": Door(of_variable, "TANDM_CONFIG={}", "Did you mean 'TANDEM_CONFIG'?"),
    "variable, a prefix too many": Door(
        of_variable, "VLLM_TANDEM_CONFIG={}", "Did you mean 'TANDEM_CONFIG'?"
    ),
    "variable of a recipe": Door(of_variable, "TANDEM_REWARDS=x", "[variable-misspelt]"),
    "settings in Python": Door(of_mapping, "kap", "Did you mean 'cap'?"),
    "settings in Python, case": Door(of_mapping, "Junior", "Did you mean 'junior'?"),
    "trainer's flags": Door(of_flag(), "--tandem.kap 3", "Did you mean 'cap'?"),
    "trainer's flags, the prefix": Door(of_flag(), "--tandm.cap 3", "--tandem.cap"),
    "trainer's flags, no prefix": Door(of_flag(), "--tandem_cap 3", "--tandem.cap"),
    "recipe": Door(of_recipe, '{"promts": 3}', "Did you mean 'prompts'?"),
    "recipe, tandem": Door(of_recipe, '{"tandem": {"kap": 3}}', "Did you mean 'cap'?"),
    "recipe, a former name": Door(of_recipe, '{"RESPONSE": 3}', "Did you mean 'max_response'?"),
    "request": Door(of_request, '{"seed": 1, "kap": 3}', "Did you mean 'cap'?"),
    "request, schedule": Door(of_request, '{"seed": 1, "schedule": "wrd"}', "Did you mean 'word'"),
    "request, off": Door(of_request, '{"schedule": "off", "p": 1}', "p"),
    "extra_args": Door(of_extra_args, '{"tandm": {"seed": 1}}', "use the key tandem"),
    "server": Door(of_server, '{"tadnem": "{}"}', "vllm_xargs"),
    "plugin's parameter": Door(of_plugin, "lenght", "Did you mean 'length'?"),
    "additional_config": Door(of_engine, '{"tandm": {}}', "[additional-config-misspelt]"),
    "verl's configuration": Door(of_verl, "aditional_config_tandm", "additional_config.tandem"),
}


@pytest.fixture(autouse=True)
def _in_a_folder_of_a_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TANDEM_CONFIG", raising=False)
    (tmp_path / "recipe.yaml").write_text("trainer: trl\n")


@pytest.mark.parametrize("door", MISSPELT)
def test_misspelt_name_is_an_error_that_names_the_nearest(door: str) -> None:
    with pytest.raises(TandemError) as caught:
        MISSPELT[door].give(MISSPELT[door].wrong)
    assert MISSPELT[door].says in str(caught.value)


def of_variable_and_flag(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TANDEM_CONFIG", '{"p": 0.25}')
    settings_of_command(text.split(), "plain")


def of_variable_and_command(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TANDEM_CONFIG", '{"p": 0.25}')
    raise TandemError(run(line))


def of_yaml(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if installed_version("trl") is None:  # other tests import a stand-in by its name
        pytest.skip("TRL is not installed")
    from tandem_trl.settings import settings_of_file

    Path("run.yaml").write_text(text)
    settings_of_file(["--config", "run.yaml"])


def of_recipe_file(text: str, _: Any) -> None:
    Path("recipe.yaml").write_text(text)
    read_recipe(Path("recipe.yaml"))


OVERRIDDEN: dict[str, tuple[Callable[[str, pytest.MonkeyPatch], Any], str, tuple[str, ...]]] = {
    "--set twice": (lambda text, _: of_set(ROLLOUT)(text), "p=.1 p=.2", ("p twice",)),
    "--set beside an option": (lambda text, _: of_set(ROLLOUT)(text), "junior=a",
                               ("--set junior", "--junior")),
    "eval --set beside an option": (lambda text, _: of_set(HANDOFF)(text), "seed=3",
                                    ("--set seed", "--seed")),
    "train --set twice": (lambda text, _: of_set("train --print")(text), "steps=1 steps=2",
                          ("steps", "twice")),
    "--engine twice": (lambda text, _: engine_arguments(text.split()),
                       "max_model_len=1 max-model-len=2", ("max_model_len", "twice")),
    "--engine beside an option": (lambda text, _: engine_arguments([text]), "seed=3",
                                  ("--engine seed", "--seed")),
    "--field twice": (lambda text, _: layout_of(text.split()), "problem=a problem=b",
                      ("problem=b", "at most once")),
    "flag twice": (lambda text, _: of_flag()(text), "--tandem.p .1 --tandem.p=.2", ("p", "twice")),
    "flag and variable": (of_variable_and_flag, "--tandem.p 0.75",
                          ("0.75 by a flag", "0.25 by TANDEM_CONFIG", "tandem-setting-overridden")),
    "variable and rollout": (of_variable_and_command, ROLLOUT,
                             ("TANDEM_CONFIG", "--set", "variable-without-effect")),
    "variable and eval": (of_variable_and_command, HANDOFF, ("TANDEM_CONFIG", "--set")),
    "variable and train": (of_variable_and_command, "train --print", ("TANDEM_CONFIG", "recipe")),
    "YAML, nested and dotted": (of_yaml, "tandem: {p: .1}\ntandem.p: .2\n", ("p", "twice")),
    "YAML, tandem and env": (of_yaml, "tandem: {p: .1}\nenv: {TANDEM_CONFIG: '{\"p\": .2}'}\n",
                             ("p is 0.1", "0.2 by env")),
    "recipe, a key twice": (of_recipe_file, "trainer: trl\nsteps: 3\nsteps: 5\n", ("steps",)),
    "recipe and argument": (
        lambda text, _: check_arguments(Recipe(trainer="trl"), text.split()), "--max_steps 5",
        ("max_steps", "steps")),
    "beside tandem": (lambda text, _: of_engine(text), '{"tandem": {"p": 0.5}, "p": 0.3}',
                      ("has p beside tandem", "[settings-beside-tandem]")),
}  # fmt: skip


@pytest.mark.parametrize("door", OVERRIDDEN)
def test_value_that_another_overrides_is_an_error_that_names_both(
    door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    give, text, says = OVERRIDDEN[door]
    with pytest.raises(TandemError) as caught:
        give(text, monkeypatch)
    assert [part for part in says if part not in str(caught.value)] == []


def test_same_value_in_two_places_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launcher's processes get the variable that their command's flags made."""
    monkeypatch.setenv("TANDEM_CONFIG", '{"schedule": "word", "p": 0.25}')
    config, *_ = settings_of_command(["--tandem.p", "0.25", "--tandem.cap", "8"], "plain")
    assert config.parameters == {"p": 0.25, "cap": 8}


def test_variables_are_those_that_the_sources_name() -> None:
    sources = [*(ROOT / "tandem_plugin").rglob("*.py"), *(ROOT / "adapters").rglob("*.py")]
    named = {
        name
        for file in sources
        for name in re.findall(r"TANDEM_[A-Z_]*[A-Z]", file.read_text(encoding="utf-8"))
    }
    assert named - {"TANDEM_NOT_READY"} == set(variables.VARIABLES)  # what a worker answers


def test_variables_of_other_programs_are_left_alone() -> None:
    check_variables({"TANDEM_BIKE": "1", "TANDEM_HOME": "/x", "RANDOM_CONFIG": "{}", "CONFIG": ""})


@given(place=st.integers(0, 5), letter=st.sampled_from("abcdeflmnopqrstuvwxyz_-"),
       kind=st.sampled_from(["drop", "replace", "insert", "swap"]))  # fmt: skip
def test_word_tandem_with_any_one_mistake_is_recognised(place: int, letter: str, kind: str) -> None:
    word = "tandem"
    after = word[place + 1 :]
    rest = {
        "drop": after,
        "replace": letter + after,
        "insert": letter + word[place:],
        "swap": after[:1] + word[place] + after[1:],
    }[kind]
    wrong = word[:place] + rest
    assert request.resembles_tandem(wrong)
    if "_" not in wrong and "-" not in wrong and wrong != word:
        with pytest.raises(TandemError, match="tandem-flag-invalid"):
            settings_of_command([f"--{wrong}.p", "1"], "plain")


def test_no_door_is_left_out() -> None:
    """A new option of the form NAME=VALUE comes to the table; those of names that a user gives
    to files and models have none that could be wrong."""
    named = {
        option.opts[0]
        for path, option in OPTIONS
        if option.multiple and "=" in str(option.metavar or "")
    }
    doors = " ".join(MISSPELT)
    assert {name for name in named if name not in doors} <= {"--file", "--pool", "--unit",
        "--benchmark", "--grader", "--senior", "--junior", "--training"}  # fmt: skip
