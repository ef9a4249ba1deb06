"""Writes docs/troubleshooting.md from the refusals in the code.

Run ``python docs/generate_troubleshooting.py`` after a change of a refusal; a test fails until
then. Refusals are found where they are raised, and in the two tables of what a trainer may not
combine. What a sentence says of a run's own values stands between ‹ and ›.
"""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tandem_openrlhf.refusals import _REFUSALS as OPENRLHF_REFUSALS
from tandem_plugin import errors
from tandem_plugin.training.refusals import Refusal
from tandem_verl.refusals import REFUSALS as VERL_REFUSALS

PAGE = Path(__file__).with_name("troubleshooting.md")
ROOT = PAGE.parents[1]

ERRORS = {name for name in errors.__all__ if name.endswith("Error")} | {"RolloutError"}

VERBS = (
    "Add|Allowed|Ask|Both|Bring|Call|Change|Check|Choose|Compare|Copy|Cut|Delete|Derive|Did|End|Evaluate|"
    "Every|Expected|Export|Fetch|Finish|Fix|Generate|Give|Go|Grade|Import|Install|Keep|Leave|Let|"
    "List|Look|Lower|Make|Mend|Merge|Move|Name|Pass|Prepare|Put|Quote|Raise|Ranks|Read|Record|Remove|"
    "Rename|Repeat|Report|Restart|Return|Rewrite|Run|Say|See|Send|Set|Sleep|Sort|Start|Take|To run|"
    "Tokenize|Train|Turn|Unset|Update|Upgrade|Use|Wait|Write"
)
"""How a sentence, or what follows its colon, begins where it says what to do."""

TOLD = {
    "look_again": "Check the path.",
    "told": "‹why›. Check the path, its permissions, its disk.",
}
"""What stands for the sentences that these functions make."""

FAMILIES = (
    (
        r"between the agent (loop|executor) and the trainer|mask of|entries of ‹name› before|"
        r"was not narrowed|written by the team, but|rollout log-probabilities",
        "Look for what changes responses there: an agent loop of your own, another plugin, a node "
        "with another version of tandem-plugin.",
    ),
    (
        r"is not what the adapter was tested with",
        "Install the [version](compatibility.md) that is.",
    ),
    (r"generated or trained|trajectory failed|server refused", "Mend what the sentence names."),
    (
        r"resolver ‹.*(failed|no function|not take)|(schedule|parameter) ‹.*(refuses|needs a)|"
        r"plugin cannot|registers nothing|plugin asked|'off'|‹qualname›|types of ‹|not a class",
        "Mend the plugin; [plugins](plugins.md) has what is expected of one.",
    ),
    (
        r"^(tandem_|‹(name|field)›(\[.*\])?=‹.*› is not (three|a list of int|an integer|‹len))",
        "Give a file as it was written: the line was changed, or another program's.",
    ),
    (
        r"^(Logits|Values|Token counts|Counts of|Recovery|A paired|A test over|A null|Authorship|"
        r"A response (is|without)|resamples|smoothing|count=|‹correct›|pass@|‹responses›|Token id|"
        r"There are no (places|benchmarks))",
        "Call the function with what it takes; its docstring says what.",
    ),
    (r"^The engine did not start", "Mend what vLLM says at its end; `tandem doctor` looks for it."),
    (r"^The junior ‹path› does not go", "Choose another junior, or a smaller max_model_len."),
    (r"^(A request in tandem|Row ‹|The engine (computes|has not))", "Report it: it is a fault."),
)
"""What to do about sentences of one kind, which say what happened alone."""


@dataclass(frozen=True)
class Area:
    """Refusals of some folders and files, with what to do where a sentence does not say it."""

    title: str
    otherwise: str
    places: tuple[str, ...]


AREAS = (
    Area(
        "Settings of a run",
        "Settings are listed in [settings](settings.md), schedules and their parameters in "
        "[schedules](schedules.md); `tandem plugins` prints what is there.",
        ("tandem_plugin/config.py", "tandem_plugin/schedules", "tandem_plugin/plugins"),
    ),
    Area(
        "Tokenizers and boundaries",
        "`tandem boundaries TOKENIZER` shows what a resolver finds; another resolver, or another "
        "schedule, may suit the tokenizer ([schedules](schedules.md)).",
        ("tandem_plugin/boundaries", "tandem_plugin/rules.py"),
    ),
    Area(
        "Starting an engine",
        "`tandem doctor` says what is installed and how to mend it; what goes with tandem stands "
        "in [the engine](engine.md#refused).",
        ("tandem_plugin/engine", "tandem_plugin/patching", "tandem_plugin/fingerprint.py"),
    ),
    Area(
        "One request",
        "What a request may say of tandem stands in [serving](serving.md).",
        (
            "tandem_plugin/request.py",
            "tandem_plugin/seeds.py",
            "tandem_plugin/draws.py",
            "tandem_plugin/replay.py",
            "tandem_plugin/authorship.py",
            "tandem_plugin/client.py",
        ),
    ),
    Area(
        "Training",
        "The run stopped before it learnt from the wrong tokens. Look for what changes responses "
        "between the engine and the trainer: an agent loop, another plugin, a node with another "
        "version of tandem-plugin.",
        ("tandem_plugin/training",),
    ),
    Area("verl", "See [verl](verl.md#what-is-refused).", ("adapters/tandem_verl",)),
    Area("OpenRLHF", "See [OpenRLHF](openrlhf.md#what-is-refused).", ("adapters/tandem_openrlhf",)),
    Area(
        "Problem sets",
        "`tandem data show` shows what is read of a set ([data](data.md)).",
        ("tandem_plugin/lab/data",),
    ),
    Area("Grading", "See [grading](grading.md).", ("tandem_plugin/grading",)),
    Area(
        "Rollouts and their page",
        "See [rollouts](rollouts.md).",
        (
            "tandem_plugin/lab/rollouts",
            "tandem_plugin/lab/viewer",
            "tandem_plugin/files",
            "tandem_plugin/spans.py",
        ),
    ),
    Area(
        "Evaluation",
        "The same command goes on with an evaluation that was stopped; another --out begins a new "
        "one ([evaluation](evaluation.md)).",
        ("tandem_plugin/lab/evaluation",),
    ),
    Area(
        "Planning",
        "What a plan needs of checkpoints and machines stands in [planning](planning.md).",
        ("tandem_plugin/lab/planning",),
    ),
    Area(
        "Commands",
        "`--help` of a command lists what it takes.",
        ("tandem_plugin/cli", "tandem_plugin/lab/commands", "tandem_plugin/terminal"),
    ),
)

HEAD = """\
# Troubleshooting

Written by `docs/generate_troubleshooting.py` from the code: every sentence with which tandem-plugin
refuses something, and what to do. Search this page for a few words of yours; what stands between ‹
and › is of your own run.

First, in the environment of the run, `tandem doctor`: it prints versions, the model runner, whether
the plugin and the adapters are active, and how to mend what is not. A trainer's log says
`tandem is on: schedule=...` once where tandem is on. For what is no refusal, such as a run that is
slow or does not learn, see [questions](faq.md) and [a first run](first-run.md).

With `tandem.unproven=[NAME]` a trainer goes on where it refuses only what nobody has shown to work;
the sentence is marked with that name. What is known to be wrong has no name.
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for area in AREAS:
        rows = dict.fromkeys(row for row in _rows(area) if row[0])
        parts.append(f"## {area.title}\n\n{area.otherwise}\n\n| It says | What to do |\n|---|---|")
        parts += [f"| {said} | {remedy or 'see above'} |" for said, remedy in rows]
        parts.append("")
    return "\n".join(parts)


def _rows(area: Area) -> Iterator[tuple[str, str]]:
    for sentence, mark in _sentences(area):
        said, remedy = divided(sentence)
        told = _cell(remedy) or next((do for kind, do in FAMILIES if re.search(kind, said)), "")
        yield _cell(said), " ".join(part for part in (told, mark) if part)


def _sentences(area: Area) -> Iterator[tuple[str, str]]:
    """The sentences of an area in the order of its files, with the name that allows each."""
    for place in area.places:
        for file in files(ROOT / place):
            yield from ((sentence, "") for sentence in raised(ast.parse(file.read_text("utf-8"))))
    tables = {"verl": VERL_REFUSALS, "OpenRLHF": OPENRLHF_REFUSALS}
    yield from _tabled(tables.get(area.title, ()))


def files(place: Path) -> list[Path]:
    """The Python files of a place."""
    return [place] if place.is_file() else sorted(place.rglob("*.py"))


def _tabled(refusals: Iterable[Refusal]) -> Iterator[tuple[str, str]]:
    for one in refusals:
        template = re.sub(r"\{value\.[\w.()]*(![rs])?\}", "‹value›", one.sentence)
        names = {name for _, name, _, _ in string.Formatter().parse(template) if name}
        assert names <= {"key", "value", "setting"}, one.sentence
        name = "a name of its own" if "{" in one.unproven else f"`{one.unproven}`"
        setting = one.setting("‹value›")
        said = template.replace("{key}", one.key).replace("{setting}", setting)
        said = re.sub(r"\{value(![rs])?\}", "‹value›", said)
        yield said, f"(or allow {name})" if one.unproven else ""


def raised(tree: ast.Module) -> Iterator[str]:
    """The sentence of every error that a module makes."""
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    tree = _Constants(tree).visit(tree)
    for node in ast.walk(tree):
        is_named = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if is_named and node.func.id in ERRORS and node.args:
            yield from _templates(node.args[0], functions)


class _Constants(ast.NodeTransformer):
    """Puts a module's own texts where their names stand."""

    def __init__(self, module: ast.Module) -> None:
        self._texts: dict[str, ast.expr] = {}
        for node in module.body:
            match node:
                case ast.Assign([ast.Name(name)], ast.Constant(str())):
                    self._texts[name] = node.value

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._texts.get(node.id, node) if isinstance(node.ctx, ast.Load) else node


def _templates(argument: ast.expr, functions: dict[str, ast.FunctionDef]) -> Iterator[str]:
    """The texts that an expression may become; none where it only hands another's on."""
    if isinstance(argument, ast.Call) and isinstance(argument.func, ast.Name):
        made_by = functions.get(argument.func.id)
        if made_by is not None:
            for node in ast.walk(made_by):
                if isinstance(node, ast.Return) and node.value is not None:
                    yield from _templates(node.value, {})
        return
    text = _text(argument)
    if re.search(r"[a-z]{3}", re.sub("‹.*?›", "", text)):
        yield text


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_text, node.values))
    if isinstance(node, ast.FormattedValue):
        constant = isinstance(node.value, ast.Constant)
        return _text(node.value) if constant else _placeholder(node.value)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left) + _text(node.right)
    return _placeholder(node)


def _placeholder(node: ast.expr) -> str:
    """What stands for a value: the last name in its expression, or a function's sentence."""
    inner = node
    if isinstance(inner, ast.Call) and inner.args:
        if (name := ast.unparse(inner.func)) in TOLD:
            return TOLD[name]
        inner = inner.args[-1]
    names = re.findall(r"[A-Za-z_]\w*", ast.unparse(inner))
    words = [name.strip("_").lower().replace("_", " ") for name in names]
    return f"‹{words[-1] if words else 'value'}›"


def divided(sentence: str) -> tuple[str, str]:
    """What happened, and what to do: from the first part that begins with one of the verbs."""
    sentence = " ".join(sentence.split())
    either = (
        rf"(?<=[.?!›]) (?=(?:{VERBS})\b)|(?<=[:;]) (?=(?:{VERBS.lower()})\b)|"
        r"(?<=[.:]) (?=‹(?:instead|mend)›)"
    )
    parts = re.split(either, sentence, maxsplit=1)
    if len(parts) == 1:
        return sentence, ""
    return parts[0].rstrip(":; "), parts[1][:1].upper() + parts[1][1:]


def _cell(text: str) -> str:
    """Text of a table's cell: nothing in it is Markdown or HTML."""
    escaped = re.sub(r"([\\`*_\[\]|~])", r"\\\1", text)
    return escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
