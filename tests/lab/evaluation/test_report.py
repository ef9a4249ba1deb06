"""The page of ``tandem report``."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from made_results import edit
from typer.testing import CliRunner

from tandem_plugin.cli import app
from tandem_plugin.lab.evaluation.report import looks

pytest.importorskip("matplotlib")

HOSTILE = (
    "</td></section><script>window.pwned=1</script><img src=x onerror=pwned()>"
    "<style>*{display:none}</style> $\\frac{x$ {{title}} \u202eltr\u2066 \x07 "
    "<base href=//evil> javascript:x <meta http-equiv=refresh content=0>"
)
MakeResults = Callable[..., Path]


class Elements(HTMLParser):
    """The elements of a page, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def report(results: Path, *arguments: object) -> Any:
    return CliRunner().invoke(app, ["report", str(results), *map(str, arguments)])


def page_of(results: Path) -> str:
    return Elements((results / "report/index.html").read_text()).text


def test_report_has_its_figures_and_tables_in_one_page(make_results: MakeResults):
    make_results("GRPO", [0, 2, 4])
    results = make_results("tandem", [1, 3, 4])
    done = report(results, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["figures"] == ["curves", "seniors", "drift"]
    for name in found["figures"]:
        assert (results / "report/figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    page = Elements((results / "report/index.html").read_text())
    for heading in ("Solo reasoning capability", "Handoff robustness", "tandem > GRPO"):
        assert heading in page.text
    again = report(results / "tandem", results / "GRPO", "--out", results / "report")
    assert again.exit_code == 0, again.output
    assert "GRPO > tandem" in page_of(results)


def test_pools_and_units_are_those_of_the_tables(make_results: MakeResults):
    for senior, right in {
        "G-a": [0, 2, 4],
        "T-a": [1, 3, 4],
        "G-b": [0, 1, 4],
        "T-b": [2, 3, 4],
    }.items():
        results = make_results(senior, right)
    pools = ("--pool", "G=G-a,G-b", "--pool", "T=T-a,T-b")
    done = report(results, *pools, "--unit", "a=G-a,T-a", "--unit", "b=G-b,T-b", "--k", 1)
    assert done.exit_code == 0, done.output
    page = page_of(results)
    assert "One-sided t-tests over 2 units" in page
    assert "T > G" in page
    assert "T-b > G" not in page
    assert "Seeds of T: T-a, T-b." in page
    assert "Unit b: G-b, T-b." in page
    names, units = ["base", "T-a", "G-a", "T-b"], {"a": ["T-a", "G-a"], "b": ["T-b"]}
    drawn = looks(names, {"T": ["T-a", "T-b"]}, units)
    assert drawn["T-a"].colour == drawn["T-b"].colour
    assert drawn["T-a"].marker == drawn["G-a"].marker
    assert len({look.colour for look in drawn.values()}) == 3
    assert len({look.marker for look in drawn.values()}) == 3


def test_hostile_text_stays_text(make_results: MakeResults):
    make_results("tandem", [1, 2], benchmark="<b>$x_")
    results = make_results("<i>$GRPO", [2, 2], benchmark="<b>$x_")
    for one in results.glob("*/handoff/step/base/summary.json"):
        edit(one, lambda c: c["settings"]["schedule"].update(label=HOSTILE))
    done = report(results)
    assert done.exit_code == 0, done.output
    text = (results / "report/index.html").read_text(encoding="utf-8")
    page = Elements(text)
    allowed = {
        "html", "head", "meta", "title", "style", "body", "h1", "h3", "p", "ul", "li", "figure",
        "picture", "source", "img", "figcaption", "table", "thead", "tbody", "tr", "th", "td",
        "strong",
    }  # fmt: skip
    assert {tag for tag, _ in page.tags} <= allowed
    assert not any(name.startswith("on") for _, attrs in page.tags for name in attrs)
    sources = [str(attrs["src"]) for tag, attrs in page.tags if tag == "img"]
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert sum(tag == "meta" for tag, _ in page.tags) == 4
    assert "window.pwned=1" in page.text
    assert not re.search("[\x07\u202e\u2066]", text)
    policy = next(str(a["content"]) for t, a in page.tags if a.get("http-equiv"))
    assert policy.startswith("default-src 'none'; img-src data:; style-src 'sha256-")


def test_results_that_cannot_be_compared_are_refused(make_results: MakeResults):
    make_results("GRPO", [0, 2], kinds=("solo",))
    results = make_results("tandem", [1, 3], kinds=("solo",))
    path = results / "tandem/solo/summary.json"
    path.write_text(path.read_text().replace('"temperature": 0.6', '"temperature": 0.7'))
    empty = results.parent / "empty"
    empty.mkdir()
    for code, arguments in (
        ("compare-settings-differ", [results]),
        ("results-unfinished", [empty]),
    ):
        done = report(*arguments)
        assert done.exit_code == 1
        assert f"[{code}]" in done.stderr


def test_juniors_own_model_comes_first_and_is_not_what_is_claimed(make_results: MakeResults):
    for senior, right in {"tandem": [3, 3, 4, 4], "base": [0, 1, 1, 2], "KL": [1, 1, 2, 2]}.items():
        results = make_results(senior, right, kinds=("handoff", "legibility"))
    assert report(results).exit_code == 0
    page = page_of(results)
    assert "tandem > base" in page
    assert "tandem > KL" in page


def test_report_replaces_its_own_page_and_no_other(make_results: MakeResults, tmp_path: Path):
    results = make_results("tandem", [1, 3, 4])
    own = tmp_path / "site" / "index.html"
    own.parent.mkdir()
    own.write_text("<!DOCTYPE html><p>My own.")
    done = report(results, "--out", own.parent)
    assert (done.exit_code, "page-is-foreign" in done.output) == (1, True), done.output
    assert own.read_text() == "<!DOCTYPE html><p>My own."
    for _ in range(2):
        assert report(results).exit_code == 0


def test_trainings_by_step_are_a_figure_of_the_report(make_results: MakeResults, tmp_path: Path):
    results = make_results("tandem", [1, 3, 4])
    steps = tmp_path / "run" / "rollouts"
    steps.mkdir(parents=True)
    for step in (1, 2, 10):
        row = {"response_ids": [1] * step, "tandem_seed": None, "score": 0.5}
        (steps / f"{step}.jsonl").write_text(json.dumps(row) + "\n")
    done = report(results, "--json", "--training", f"tandem={tmp_path / 'run'}")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["figures"][-1] == "training"
    assert (results / "report/figures/training.png").stat().st_size > 5_000
    assert "hours" not in page_of(results)  # the panels are a picture
    twice = ["--training", f"a={steps}"] * 2
    assert "option-name-used-twice" in report(results, *twice).stderr
