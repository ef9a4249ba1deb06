from __future__ import annotations

import importlib
import json
import re
import shlex
import sys
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import philox
import pluggy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refused import refused
from scripts import module_of
from typer.main import get_command

from tandem_plugin import TandemConfig, draws, list_resolvers, list_schedules
from tandem_plugin._draws import MAX_SEED
from tandem_plugin.cli import app
from tandem_plugin.lab.recipes.settings import read_recipe, written
from tandem_plugin.lab.rollouts import run
from tandem_plugin.plugins import hookspecs, loading, using_plugins
from tandem_plugin.plugins.selection import parameter_names
from tandem_plugin.schedules.parameters import schedule_signature
from tandem_plugin.seeds import sample_seed

DOCS = Path(__file__).parents[2] / "docs"


def test_cli_page_is_what_the_commands_say():
    generator = module_of(DOCS / "generate_cli.py")
    assert generator.PAGE.read_text(encoding="utf-8") == generator.page(), (
        "docs/cli.md is out of date: run python docs/generate_cli.py"
    )


def test_example_of_the_concepts_page_runs(capsys: pytest.CaptureFixture[str]):
    (example,) = snippets("concepts.md")
    exec(compile(example, "docs/concepts.md", "exec"), {})
    assert capsys.readouterr().out.startswith("(Span(start=0, stop=")


@given(st.integers(0, MAX_SEED), st.integers(0, 2_000))
def test_draws_of_the_schedules_page_are_the_draws(seed: int, length: int):
    _, code = snippets("schedules.md")
    documented: dict[str, Any] = {}
    exec(compile(code, "docs/schedules.md", "exec"), documented)
    positions = {0, 1, 2, 3, 4, length // 2, length}
    table = draws(seed, length + 5)
    assert all(documented["draw"](seed, t) == table[t] for t in positions)


def test_numbers_of_the_draws_are_right():
    text = (DOCS / "schedules.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| u\[(\d)\] \| (0x\w+) \| ([\d.]+) \|$", text, re.MULTILINE)
    assert [int(t) for t, _, _ in rows] == list(range(5))
    assert [int(word, 16) for _, word, _ in rows] == philox.words(7, 5)
    assert [float(draw) for _, _, draw in rows] == draws(7, 5).tolist()
    # "the junior writes the first token, and whoever is drawn anew for 1 to 4 is the senior"
    assert [draw < 0.5 for draw in draws(7, 5)] == [False, True, True, True, True]
    (whole,) = re.findall(r"For the seed 7, v is ([\d.]+\d)", text)
    assert float(whole) == philox.response_draw(7)
    (sample,) = re.findall(r"For s = 7, sample 1 has the seed (\d+)", text)
    assert int(sample) == sample_seed(7, 1) == philox.sample_seed(7, 1)


@pytest.mark.parametrize(
    ("page", "printed"),
    [("grading.md", "correct number 1.0\n"), ("data.md", "[{'role': 'user', 'content': 'What is")],
)
def test_first_example_of_a_page_runs(
    page: str,
    printed: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    pytest.importorskip("sympy")
    monkeypatch.chdir(tmp_path)
    text = (DOCS / page).read_text(encoding="utf-8")
    example = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    exec(compile(example, f"docs/{page}", "exec"), {})
    assert capsys.readouterr().out.startswith(printed)


def test_examples_of_the_data_page_run_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for example in snippets("data.md"):
        exec(compile(example, "docs/data.md", "exec"), names)
    assert names["mmlu"]({"question": "?", "choices": ["x", "y"], "answer": 1})["answer"] == "B"
    assert "{'train': 1} {'name': 'sums.jsonl', 'sha256': " in capsys.readouterr().out


def test_settings_page_lists_every_setting_and_parameter_that_a_user_may_set():
    text = (DOCS / "settings.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
    parameters = {name for schedule in list_schedules() for name in parameter_names(schedule)}
    assert listed == set(TandemConfig.model_fields) | parameters


def test_costs_on_a_gpu_are_those_of_the_measured_rounds():
    rounds = json.loads((DOCS.parent / "benchmarks" / "results" / "h200.json").read_text("utf-8"))
    speeds = rounds["tokens_per_second"]

    def ratio(engine: str, batch: int) -> str:
        """Median over rounds of the ratio to the single model."""
        pairs = zip(speeds[f"{engine}/{batch}"], speeds[f"single/{batch}"], strict=True)
        return f"{median(tandem / single for tandem, single in pairs):.2f}"

    batches = (1, 16, 64, 128)
    page = (DOCS / "performance.md").read_text(encoding="utf-8")
    costs = page.split("\n## At a glance\n", 1)[1].split("\n## ", 1)[0]
    stated = [
        re.split(r" *\| *", row) for row in re.findall(r"^\| ((?:lock|spec).*) \|$", costs, re.M)
    ]
    assert [row[1:] for row in stated] == [
        [ratio(engine, batch) for batch in batches] for engine in ("lockstep", "spec4")
    ]
    page = page.split("One H200", 1)[1]
    for batch in batches:
        (row,) = re.findall(rf"^\| {batch} \|.*$", page.split("### Goals", 1)[0], re.MULTILINE)
        cells = [cell.split(" (")[0] for cell in row.strip("|").split(" | ")]
        for place, engine in enumerate(("lockstep", "streams", "spec4"), start=1):
            assert cells[2 * place] == f"{median(speeds[f'{engine}/{batch}']):,.0f}"
            assert cells[2 * place + 1].strip() == ratio(engine, batch)


def snippets(page: str, language: str = "python") -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def table(page: str, heading: str) -> dict[str, list[str]]:
    """The rows of the first table under a heading, by the name in their first column."""
    text = (DOCS / page).read_text(encoding="utf-8")
    section = text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| `([\w-]+)` \|(.*)\|$", section, re.MULTILINE)
    return {name: [cell.strip() for cell in re.split(r"(?<!\\)\|", rest)] for name, rest in rows}


def test_every_schedule_is_documented_with_its_parameters_and_resolver():
    documented = table("schedules.md", "Schedules")
    assert list(documented) == list(list_schedules())
    for name, (parameters, boundaries, meaning) in documented.items():
        schedule = list_schedules()[name]
        expected = ", ".join(
            f"`{p.name}`: {p.type} = {p.default}" for p in schedule_signature(schedule)
        )
        assert parameters.replace("\\|", "|") == expected
        assert boundaries == f"`{schedule.boundaries}`"
        assert meaning


def test_every_parameter_is_explained():
    text = (DOCS / "schedules.md").read_text(encoding="utf-8")
    explained = set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^- .*", text, re.MULTILINE))))
    parameters = {name for schedule in list_schedules() for name in parameter_names(schedule)}
    assert parameters <= explained


def test_every_resolver_is_documented():
    documented = table("schedules.md", "Boundary resolvers")
    assert set(documented) == set(list_resolvers())
    assert all(cells[0] for cells in documented.values())


def hooks() -> list[str]:
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    return sorted(name for name in vars(manager.hook) if not name.startswith("_"))


def test_every_hook_is_called_documented_and_tested():
    assert hooks() == sorted(loading.HOOKS)
    page = (DOCS / "plugins.md").read_text(encoding="utf-8")
    documented = re.findall(r"^### `(\w+)\(register\)`", page, re.MULTILINE)
    assert sorted(documented) == hooks()
    tests = (DOCS.parent / "tests" / "plugins" / "test_plugins.py").read_text(encoding="utf-8")
    for hook in hooks():
        assert f"def {hook}(" in tests
        assert (getattr(hookspecs, hook).__doc__ or "").strip().endswith("for each.")


def test_example_of_the_schedules_page_runs(capsys: pytest.CaptureFixture[str]):
    example, _ = snippets("schedules.md")
    exec(compile(example, "docs/schedules.md", "exec"), {})
    sentence, step = capsys.readouterr().out.splitlines()
    assert sentence.startswith("sentence [False, True, True, False, False, True, False] [")
    assert step == ("step [False, False, True, False, False, False, False] [1, 1, 1, 0, 0, 0, 0]")


def test_plugin_of_the_plugins_page_works_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.syspath_prepend(tmp_path)
    codes, names = iter(snippets("plugins.md")), {}
    printed = re.findall(r"prints `([^`]*)`", (DOCS / "plugins.md").read_text(encoding="utf-8"))
    for name, result in zip(("tandem_prefix", "tandem_hint"), printed, strict=True):
        (tmp_path / f"{name}.py").write_text(next(codes), encoding="utf-8")
        exec(compile(next(codes), "docs/plugins.md", "exec"), names)
        assert capsys.readouterr().out == f"{result}\n"
    assert next(codes, None) is None
    with refused("parameter-not-count"), using_plugins(names["tandem_prefix"]):
        TandemConfig.from_mapping({"schedule": "prefix", "length": -4})


def test_example_of_the_rollouts_page_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    _, example = snippets("rollouts.md")
    file = tmp_path / "rollouts.jsonl"
    file.write_text('{"problem": 3, "sample": 1, "authorship": [1, 0, 0, 1]}\n')
    exec(compile(example, "docs/rollouts.md", "exec"), {"ROLLOUTS": file})
    assert capsys.readouterr().out == "3 1 0.50 2\n"


def test_a_run_in_python_is_called_as_the_rollouts_page_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    example, _ = snippets("rollouts.md")
    asked: list[run.RolloutOptions] = []

    def roll_out(options: run.RolloutOptions) -> run.RolledOut:
        asked.append(options)
        return run.RolledOut(options.out, 4, 4, 0, 0.25)

    monkeypatch.setattr(run, "roll_out", roll_out)
    exec(compile(example, "docs/rollouts.md", "exec"), {})
    assert (asked[0].grade, asked[0].tandem.parameters) == (True, {"p": 0.5})
    assert capsys.readouterr().out == "0.25\n"


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.stem)
def test_commands_in_the_documentation_exist_with_their_options(page: Path):
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    blocks = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    root: Any = get_command(app)
    for line in "\n".join(blocks).splitlines():
        if line.startswith("tandem "):
            command, rest = root, line.partition(" -- ")[0].split()[1:]
            while hasattr(command, "commands"):
                command, rest = command.commands[rest[0]], rest[1:]
            known = {option for p in command.params for option in p.opts}
            assert {word for word in rest if word.startswith("-")} <= known


def test_settings_that_the_tasks_set_are_those_of_a_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Of each ``tandem train --set``, beside the recipe's own; the schedule is the tutorial's."""
    words = [word for text in snippets("tasks.md", "bash") for word in shlex.split(text, True)]
    assignments = {value for option, value in pairwise(words) if option == "--set"}
    assert len(assignments) > 8
    file = tmp_path / "recipe.yaml"
    file.write_text(written("trl"), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "tandem_prefix.py").write_text(snippets("plugins.md")[0], encoding="utf-8")
    monkeypatch.delitem(sys.modules, "tandem_prefix", raising=False)
    with using_plugins(importlib.import_module("tandem_prefix")):
        for assignment in assignments:
            recipe, _ = read_recipe(file, [assignment])
            name, _, value = assignment.partition("=")
            read = recipe.tandem["images"] if name == "tandem.images" else getattr(recipe, name)
            assert value.lower() in str(read).replace("'", "").lower()


def test_every_command_that_a_page_or_a_refusal_names_exists():
    import typer

    from tandem_plugin.cli import app

    commands: dict[str, object] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    root = DOCS.parent
    files = [*DOCS.glob("*.md"), root / "README.md", root / "tandem_plugin" / "refusals.json"]
    named = set()  # without the lines of a log: "tandem is on", "tandem engine"
    for file in files:
        text = file.read_text(encoding="utf-8")
        named |= set(re.findall(r"`tandem (?!is on|engine)([a-z]+)(?: ([a-z]+))?", text))
    assert len(named) > 15
    wrong = {
        (name, part)
        for name, part in named
        if name not in commands
        or (part and part not in getattr(commands[name], "commands", {part: None}))
    }
    assert wrong == set()
