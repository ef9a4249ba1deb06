"""The page of ``tandem report``."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tandem_plugin.cli import app
from tandem_plugin.lab.evaluation.report import colours

pytest.importorskip("matplotlib")

HOSTILE = (
    "</td></section><script>window.pwned=1</script><img src=x onerror=pwned()>"
    "<style>*{display:none}</style> $\\frac{x$ {{title}} \u202eltr\u2066 \x07 \ud800 "
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
    results = make_results("TRL", [1, 3, 4])
    done = report(results, "--order", "GRPO", "--order", "TRL", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["figures"] == ["seniors", "drift"]
    for name in found["figures"]:
        assert (results / "report/figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    page = Elements((results / "report/index.html").read_text())
    assert sum(tag == "img" for tag, _ in page.tags) == len(found["figures"])
    for heading in ("Solo reasoning capability", "Handoff robustness", "Paired one-sided t-tests"):
        assert heading in page.text


def test_pools_and_units_are_those_of_the_tables(make_results: MakeResults):
    for senior, right in {
        "G-a": [0, 2, 4],
        "T-a": [1, 3, 4],
        "G-b": [0, 1, 4],
        "T-b": [2, 3, 4],
    }.items():
        results = make_results(senior, right)
    pools = ("--pool", "G=G-a,G-b", "--pool", "T=T-a,T-b")
    done = report(
        results, *pools, "--unit", "a=G-a,T-a", "--unit", "b=G-b,T-b", "--k", 1, "--top", 4
    )
    assert done.exit_code == 0, done.output
    page = page_of(results)
    assert "One-sided t-tests over 2 units" in page
    assert "T > G" in page
    assert "T-b > G" not in page
    drawn = colours(["base", "T-a", "G-a", "T-b"], {"T": ["T-a", "T-b"]})
    assert drawn["T-a"] == drawn["T-b"]
    assert len(set(drawn.values())) == 3


def test_hostile_text_stays_text(make_results: MakeResults):
    make_results("TRL", [1, 2], benchmark="<b>$x_")
    results = make_results("<i>$GRPO", [2, 2], benchmark="<b>$x_")
    done = report(results, "--title", HOSTILE)
    assert done.exit_code == 0, done.output
    text = (results / "report/index.html").read_text(encoding="utf-8")
    page = Elements(text)
    allowed = {
        "html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "figure", "img",
        "figcaption", "section", "div", "table", "thead", "tbody", "tr", "th", "td", "strong",
        "small", "footer",
    }  # fmt: skip
    assert {tag for tag, _ in page.tags} <= allowed
    assert not any(name.startswith("on") for _, attrs in page.tags for name in attrs)
    sources = [str(attrs["src"]) for tag, attrs in page.tags if tag == "img"]
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert sum(tag == "meta" for tag, _ in page.tags) == 4
    assert "window.pwned=1" in page.text
    assert not re.search("[\x07\u202e\u2066\ud800]", text)
    policy = next(str(a["content"]) for t, a in page.tags if a.get("http-equiv"))
    assert policy.startswith("default-src 'none'; img-src data:; style-src 'sha256-")


def test_results_that_cannot_be_compared_are_refused(make_results: MakeResults):
    make_results("GRPO", [0, 2], kinds=("solo",))
    results = make_results("TRL", [1, 3], kinds=("solo",))
    path = results / "TRL/solo/summary.json"
    path.write_text(path.read_text().replace('"temperature": 0.6', '"temperature": 0.7'))
    empty = results.parent / "empty"
    empty.mkdir()
    for code, arguments in (
        ("TP914", [results]),
        ("TP882", [results, "--order", "x"]),
        ("TP881", [empty]),
    ):
        done = report(*arguments)
        assert done.exit_code == 1
        assert f"[{code}]" in done.stderr


def test_report_and_compare_have_the_same_tables(make_results: MakeResults):
    """The junior's own model first, then by name."""
    for senior, right in {"TRL": [3, 3, 4, 4], "base": [0, 1, 1, 2], "KL": [1, 1, 2, 2]}.items():
        results = make_results(senior, right, kinds=("handoff", "legibility"))
    assert report(results).exit_code == 0
    page = page_of(results)
    folders = [str(results / name) for name in ("base", "KL", "TRL")]
    compared = CliRunner().invoke(app, ["compare", *folders, "--json"])
    tables = {table["name"]: table for table in json.loads(compared.stdout)["tables"]}
    rows = tables["significance"]["rows"]
    assert {row[1]["text"] for row in rows} >= {"TRL > base", "TRL > KL"}
    for row in rows:
        assert "".join(cell["text"] + cell["stars"] for cell in row) in page
    assert report(results, "--order", "TRL", "--order", "KL").exit_code == 0
    assert "KL > TRL" in page_of(results)
