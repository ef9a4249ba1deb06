from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from refused import refused
from typer.testing import CliRunner

from tandem_plugin.cli import app
from tandem_plugin.lab.evaluation import EvaluationError
from tandem_plugin.lab.evaluation.report.figures import styles
from tandem_plugin.lab.evaluation.report.page import safe
from tandem_plugin.lab.evaluation.training_log import read_training_log

pytest.importorskip("matplotlib")

HOSTILE = (
    "</pre></details><script>window.pwned=1</script><img src=x onerror=pwned()>"
    "<style>*{display:none}</style> $\\frac{x$ {{title}} \u202eltr\u2066 \x00\x07 \ud800 "
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


@pytest.fixture
def byte_tokenizer(tmp_path: Path) -> Path:
    """A folder whose tokenizer has the eight pieces of the made results."""
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    pieces = ["a", "Ġb", "Ċ", "$x$", "=1", "Ã", "©", "<b>"]
    core = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    folder = tmp_path / "senior"
    transformers.PreTrainedTokenizerFast(tokenizer_object=core).save_pretrained(folder)
    return folder


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


def test_pooled_seeds_stand_in_tables_as_one(make_results: MakeResults):
    for senior, right in {"GRPO": [0, 2, 4], "TRL-1": [1, 3, 4], "TRL-2": [2, 3, 4]}.items():
        results = make_results(senior, right)
    done = report(results, "--pool", "TRL=TRL-1,TRL-2", "--k", 1, "--top", 4)
    assert done.exit_code == 0, done.output
    page = Elements((results / "report/index.html").read_text()).text
    assert "Macro averages of each pooled run" in page
    assert "solo: pass@1" in page
    assert "TRL > GRPO" in page
    assert "TRL-2 > GRPO" not in page


def test_seeds_of_a_method_have_one_colour_and_another_line_each():
    drawn = styles(["base", "TRL-1", "GRPO-1", "TRL-2"], {"TRL": ["TRL-1", "TRL-2"]})
    assert drawn["TRL-1"].colour == drawn["TRL-2"].colour
    assert drawn["TRL-1"].line != drawn["TRL-2"].line
    assert len({style.colour for style in drawn.values()}) == 3


def test_same_results_give_the_same_files(make_results: MakeResults, tmp_path: Path):
    results = make_results("TRL", [0, 1, 4], kinds=("solo", "drift"))
    for name in ("one", "two"):
        assert report(results, "--out", tmp_path / name).exit_code == 0
    files = sorted(f.relative_to(tmp_path / "one") for f in (tmp_path / "one").rglob("*.*"))
    assert len(files) == 3  # the page and two figures
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_responses_are_cut_where_the_author_changes(
    make_results: MakeResults, byte_tokenizer: Path
):
    """Tokens 5 and 6 are the two bytes of é: one character of both."""
    results = make_results(
        "TRL",
        [1],
        response_ids=(0, 1, 5, 6, 2, 0),
        authorship=(1, 0, 1, 0, 0, 1),
        tokenizer=byte_tokenizer,
        kinds=("solo", "handoff"),
    )
    assert report(results).exit_code == 0
    page = (results / "report/index.html").read_text()
    assert (
        "<pre><span class=senior>a</span><span class=junior> b</span>"
        "<span class=shared>é</span><span class=junior>\n</span><span class=senior>a</span></pre>"
    ) in page
    assert "<pre><span class=senior>a bé\na</span></pre>" in page  # alone


def test_without_tokenizer_responses_have_no_authors_and_a_note(make_results: MakeResults):
    results = make_results("TRL", [1], response="what was said", kinds=("handoff",))
    done = report(results)
    assert "The tokenizer of TRL could not be read" in done.stderr
    page = (results / "report/index.html").read_text()
    assert "<pre>what was said</pre>" in page
    assert "class=junior>what" not in page


def test_hostile_text_stays_text(make_results: MakeResults, byte_tokenizer: Path, tmp_path: Path):
    log = tmp_path / "log.jsonl"
    log.write_text('{"step": 1, "data": {"critic/score/mean": 0.5}}\n')
    results = make_results(
        "TRL",
        [1, 2],
        response=HOSTILE,
        response_ids=(7, 3, 4, 99),
        authorship=(1, 0, 1, 0),
        benchmark="<b>$x_",
        tokenizer=byte_tokenizer,
    )
    make_results("<i>$GRPO", [2, 2], response=HOSTILE, benchmark="<b>$x_", tokenizer=None)
    done = report(results, "--title", HOSTILE.replace("\x00", ""), "--log", f"<u>$a$={log}")
    assert done.exit_code == 0, done.output
    text = (results / "report/index.html").read_text(encoding="utf-8")
    page = Elements(text)
    allowed = {
        "html", "head", "meta", "title", "style", "body", "header", "h1", "dl", "dt", "dd", "p",
        "main", "figure", "h2", "img", "figcaption", "section", "div", "table", "thead", "tbody",
        "tr", "th", "td", "strong", "small", "h3", "details", "summary", "pre", "span", "footer",
        "ul", "li", "b",
    }  # fmt: skip
    assert {tag for tag, _ in page.tags} <= allowed
    assert not any(name.startswith("on") for _, attrs in page.tags for name in attrs)
    sources = [attrs["src"] for tag, attrs in page.tags if tag == "img"]
    assert all(
        source is not None and source.startswith("data:image/png;base64,") for source in sources
    )
    assert sum(tag == "meta" for tag, _ in page.tags) == 4
    assert "window.pwned=1" in page.text
    assert not re.search("[\x00\x07\u202e\u2066\ud800]", text)
    policy = next(a["content"] for t, a in page.tags if a.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'; img-src data:; style-src 'sha256-")


def test_results_that_cannot_be_compared_are_refused(make_results: MakeResults):
    make_results("GRPO", [0, 2], kinds=("solo",))
    results = make_results("TRL", [1, 3], kinds=("solo",))
    path = results / "TRL/solo/summary.json"
    path.write_text(path.read_text().replace('"temperature": 0.6', '"temperature": 0.7'))
    done = report(results)
    assert done.exit_code == 1
    assert "sampling.temperature" in done.stderr
    assert "There is no result of 'x'" in report(results, "--order", "x").stderr
    empty = results.parent / "empty"
    empty.mkdir()
    assert "no finished result" in report(empty).stderr


def test_safe_text_has_no_markup_and_no_control_characters():
    assert safe("<a b='c'>&\x00\n\t\u202e") == "&lt;a b=&#x27;c&#x27;&gt;&amp;\ufffd\n\t\ufffd"


VERL_FILE = """\
{"step": 2, "data": {"critic/score/mean": 0.5, "response_length/mean": 30, "timing_s/step": 60.5}}
{"step": 1, "data": {"critic/score/mean": 0.25, "val-core/a/acc/mean@4": 0.2,\
 "val-core/b/acc/mean@4": 0.4, "team/val-core/a/acc/mean@4": 0.1}}
not json
{"step": 3, "data": {"critic/score/mean": NaN, "other": "text"}}
"""
VERL_PRINTED = """\
(TaskRunner pid=9) step:1 - critic/score/mean:0.25 - response_length/mean:np.float64(31.5)\
 - timing_s/step:6e1
(TaskRunner pid=9) step:2 - critic/score/mean:-0.5 - val-core/a/acc/mean@4:0.75\
 - team/val-core/a/acc/mean@4:0.5 - team/val-core/b/acc/mean@4:0.25
"""
OPENRLHF = """\
INFO ✨ Global step 1: {'policy_loss': nan, 'rollout/reward_mean': 0.25,\
 'rollout/response_length_mean': 40.0, 'timing/step_total': 12.5}
INFO ✨ Evaluation completed in 0:00:10, global_step 1,\
 eval_metrics: {'eval_math_pass4': 0.5, 'eval_math_pass1': 0.25}
INFO ✨ Global step 2: {'rollout/reward_mean': 1e-05}
INFO Eval at step 2: {'eval_math_pass1': 0.5}
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            VERL_FILE,
            {
                "reward": ((1, 0.25), (2, 0.5)),
                "accuracy": ((1, pytest.approx(0.3)),),
                "team_accuracy": ((1, 0.1),),
            },
        ),
        (
            VERL_PRINTED,
            {
                "reward": ((1, 0.25), (2, -0.5)),
                "accuracy": ((2, 0.75),),
                "team_accuracy": ((2, 0.375),),
            },
        ),
        (
            OPENRLHF,
            {
                "reward": ((1, 0.25), (2, 1e-05)),
                "accuracy": ((1, 0.25), (2, 0.5)),
            },
        ),
    ],
    ids=["verl file", "verl printed", "OpenRLHF printed"],
)
def test_training_logs_are_read(text: str, expected: dict[str, Any], tmp_path: Path):
    file = tmp_path / "log"
    file.write_text(text, encoding="utf-8")
    assert dict(read_training_log("x", file).curves) == expected


def test_log_without_steps_is_refused(tmp_path: Path):
    file = tmp_path / "log"
    file.write_text("nothing of the kind\n")
    with pytest.raises(EvaluationError, match="no reward or accuracy"):
        read_training_log("x", file)
    with refused("TP885"):
        read_training_log("x", tmp_path / "none")


def test_accuracy_by_step_is_drawn_from_a_training_log(make_results: MakeResults, tmp_path: Path):
    log = tmp_path / "log"
    log.write_text(OPENRLHF + VERL_FILE, encoding="utf-8")
    results = make_results("TRL", [1], kinds=("solo",))
    done = report(results, "--log", f"TRL={log}", "--json")
    assert json.loads(done.stdout)["figures"] == ["accuracy-by-step", "seniors"]
    assert "NAME=FILE" in report(results, "--log", "x").stderr


def test_report_and_compare_test_the_same_way_round(make_results: MakeResults):
    """The junior's own model first, then as seniors were evaluated: not by name."""
    for senior, right in {"TRL": [3, 3, 4, 4], "base": [0, 1, 1, 2], "KL": [1, 1, 2, 2]}.items():
        results = make_results(senior, right, kinds=("handoff", "legibility"))
    (results / "seniors.txt").write_text("base\nKL\nTRL\n")
    assert report(results).exit_code == 0
    page = Elements((results / "report/index.html").read_text()).text
    folders = [str(results / name) for name in ("base", "KL", "TRL")]
    compared = CliRunner().invoke(app, ["compare", *folders, "--json"])
    tables = {table["name"]: table for table in json.loads(compared.stdout)["tables"]}
    rows = tables["significance"]["rows"]
    assert {row[1]["text"] for row in rows} >= {"TRL > base", "TRL > KL"}
    for row in rows:
        assert "".join(cell["text"] + cell["stars"] for cell in row) in page
    assert report(results, "--order", "TRL", "--order", "KL").exit_code == 0
    assert "KL > TRL" in Elements((results / "report/index.html").read_text()).text


def test_without_a_noted_order_the_juniors_own_model_is_first(make_results: MakeResults):
    make_results("TRL", [3, 3, 4, 4], kinds=("handoff",))
    results = make_results("base", [0, 1, 1, 2], kinds=("handoff",))
    assert report(results).exit_code == 0
    page = Elements((results / "report/index.html").read_text()).text
    assert "TRL > base" in page
    assert "base > TRL" not in page
