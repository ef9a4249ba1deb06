"""Every place where a user names a file: ``~`` is the home, and a file of Windows reads the same.

One table over all doors. Each is given the same files three times: by absolute paths and as a
program on Linux writes them, by paths that begin with ``~``, and with a byte order mark and lines
that end as on Windows. What it makes of them must not differ. TRL's own ``--config`` is tested
where TRL is.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from codecs import BOM_UTF8
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from planned_models import QWEN3_4B, checkpoint
from typer.testing import CliRunner

from tandem_plugin import TandemConfig, TandemRules, Vocabulary
from tandem_plugin.cli import app
from tandem_plugin.engine import local_models
from tandem_plugin.lab.data import read_problems
from tandem_plugin.lab.evaluation import run as evaluation
from tandem_plugin.lab.recipes.choose_problems import write_chosen
from tandem_plugin.lab.rollouts import engine, run
from tandem_plugin.lab.rollouts.run import RolloutOptions
from tandem_plugin.terminal import processes
from tandem_plugin.training.command import settings_of_command

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

Named = Callable[[str], str]
"""From a file's name to how the user writes its path."""

ROWS = "".join(f'{{"q": "What is {i} and 1?", "answer": "{i + 1}"}}\n' for i in range(12))
RECIPE = """\
trainer: {trainer}
model: {model}
junior: {model}
problems: {problems}
map: {map}:row
reward: {map}:score
out: {out}
benchmarks: {{sums: {problems}}}
heldout: 2
device: cpu
"""
FILES = {
    "rows.jsonl": ROWS,
    "rows.json": json.dumps([json.loads(line) for line in ROWS.splitlines()], indent=1) + "\n",
    "mine.py": "def row(record):\n    return {'problem': record['q'], 'answer': '1'}\n\n\n"
    "def score(response, problem):\n    return 1.0\n\n\n"
    "def compute_score(source, response, gold):\n    return 1.0\n",
    "tandem.json": '{\n"p": 0.25,\n"cap": 8\n}\n',
}
"""What users write, as text."""


class StoppedError(Exception):
    """In place of an engine; what it was to be started with."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with everything that a door reads; the tests run in a folder elsewhere."""
    folder, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("TANDEM_CONFIG", raising=False)
    monkeypatch.chdir(elsewhere)
    return folder


def write(home: Path, begin: bytes = b"", end: bytes = b"\n") -> None:
    """All files of the home, with a mark at their beginning and these ends of lines."""
    checkpoint(home / "model", QWEN3_4B | {"architectures": ["Qwen3ForCausalLM"]}, parameters=1000)
    vocabulary = {piece: i for i, piece in enumerate(PIECES.pieces)}
    made = {"rollouts.jsonl": rollouts(), "vocab.json": json.dumps(vocabulary)}
    for name, text in (FILES | made).items():
        (home / name).write_bytes(begin + text.encode().replace(b"\n", end))


PIECES = Vocabulary(("a", "b", "Ġa", "Ġb", "c", "Ġ"), "pieces")


def rollouts() -> str:
    rule = TandemRules(TandemConfig(), PIECES).default
    tokens = [0, 2, 4, 3, 1, 2, 2, 5, 0] * 4
    rows = [
        {
            "problem": 0,
            "sample": seed,
            "response_ids": tokens,
            "authorship": rule.replay(tokens, seed).tolist(),
            "tandem_seed": seed,
            "tandem_fingerprint": rule.fingerprint,
        }
        for seed in range(2)
    ]
    return "".join(json.dumps(row) + "\n" for row in rows)


# Doors. Each is a function of how the user writes a path; what it returns is compared.


def called(*line: str, stdin: bytes | None = None) -> str:
    done = CliRunner().invoke(app, line, input=stdin, catch_exceptions=True)
    if isinstance(done.exception, StoppedError):
        return str(done.exception)
    assert done.exit_code == 0, done.output
    return done.stdout


def content(folder: str) -> dict[str, Any]:
    """The rows of all files of a folder that was to be made in the home."""
    files = sorted(Path(os.environ["HOME"], folder).rglob("*"))
    return {f.name: f.read_bytes() for f in files if f.suffix in (".jsonl", ".parquet", ".html")}


def of_data(name: str, *options: str) -> Callable[[Named], Any]:
    def give(named: Named) -> Any:
        more = [text.format(mine=named("mine.py"), out=named("out")) for text in options]
        called("data", "prepare", named(name), "--to", "openrlhf", "--heldout", "2", *more)
        return content("out")

    return give


def of_stdin(named: Named) -> Any:
    rows = Path(named("rows.jsonl")).expanduser().read_bytes()
    called("data", "prepare", "-", "--to", "openrlhf", "--field", "problem=q",
           f"--out={named('out')}", stdin=rows)  # fmt: skip
    return content("out")


def write_recipe(named: Named, trainer: str) -> str:
    """A recipe that names everything as the user does; how its own path is written."""
    home = Path(os.environ["HOME"])
    places = {"model": "model", "problems": "rows.jsonl", "map": "mine.py", "out": "run"}
    text = RECIPE.format(trainer=trainer, **{key: named(file) for key, file in places.items()})
    rows = (home / "rows.jsonl").read_bytes()
    begin, end = rows.startswith(BOM_UTF8) * BOM_UTF8, b"\r\n" if b"\r" in rows else b"\n"
    (home / "recipe.yaml").write_bytes(begin + text.encode().replace(b"\n", end))
    return named("recipe.yaml")


def of_recipe(trainer: str, *options: str) -> Callable[[Named], Any]:
    """The folder of its data is called by what is in the files, bit for bit.

    What the command repeats of the recipe and its own words may be as the user wrote it.
    """

    def give(named: Named) -> Any:
        recipe = write_recipe(named, trainer)
        printed = called("train", recipe, *(text.format(model=named("model")) for text in options))
        shown = re.sub(r"rows-[0-9a-f]{12}", "rows", printed)
        return shown.replace("~/", f"{os.environ['HOME']}/"), content("data")

    return give


def of_chosen(named: Named) -> Any:
    """The problems of a run of OpenRLHF, of the user's own file."""
    out = Path(os.environ["HOME"], "chosen.jsonl")
    write_chosen(os.path.expanduser(named("rows.jsonl")), "30", str(out))
    return [json.loads(line) for line in out.read_text("utf-8").splitlines()]


def of_command(command: str, *options: str) -> Callable[[Named], Any]:
    def give(named: Named) -> Any:
        words = [re.sub(r"@(\S+)", lambda name: named(name[1]), text) for text in options]
        shown = called(command, *words), content("pages")
        return re.sub(r" at 0x[0-9a-f]+", "", repr(shown))

    return give


def of_variable(named: Named) -> Any:
    """``TANDEM_CONFIG="$(cat FILE)"``."""
    text = Path(named("tandem.json")).expanduser().read_bytes().decode().rstrip("\n")
    os.environ["TANDEM_CONFIG"] = text
    return settings_of_command([], "plain").tandem


def of_junior(named: Named) -> Any:
    """Of an engine's settings, in Python, a server's JSON or a trainer's flag."""
    config = TandemConfig.from_mapping({"junior": named("model")})
    local_models.check_before_start(config, named("model"), lambda name: None)
    return config.junior


def of_vocabulary(named: Named) -> Any:
    return Vocabulary.from_path(os.path.expanduser(named("vocab.json"))).pieces


PREPARE = ("--map={mine}:row", "-o{out}")
DOORS: dict[str, Callable[[Named], Any]] = {
    "data prepare, .jsonl": of_data("rows.jsonl", *PREPARE),
    "data prepare, .json": of_data("rows.json", "--map", "{mine}:row", "--out", "{out}"),
    "data prepare, standard input": of_stdin,
    **{f"train, {name}": of_recipe(name, "--print") for name in ("verl", "openrlhf", "skyrl")},
    "train --set": of_recipe("trl", "--print", "--set=model={model}", "--set", "junior={model}"),
    "train --prepare": of_recipe("openrlhf", "--prepare"),
    "problems of OpenRLHF": of_chosen,
    "rollout": of_command("rollout", "--senior=@model", "--junior", "@model", "--problems",
                          "@rows.jsonl", "--map", "@mine.py:row", "-o@rollout.jsonl"),
    "eval": of_command("eval", "all", "--senior=s=@model", "--junior", "j=@model",
                       "--benchmark=sums=@rows.jsonl", "--map=@mine.py:row",
                       "--grader=own=@mine.py", "-o@results"),
    "drafts": of_command("drafts", "--senior=@model", "--junior", "@model"),
    "plan": of_command("plan", "--senior=s=@model", "--junior=@model", "--memory=90"),
    "view": of_command("view", "@rollouts.jsonl", "--tokenizer=@vocab.json", "-o@pages/p.html"),
    "show": of_command("show", "@rollouts.jsonl", "--tokenizer", "@vocab.json"),
    "replay": of_command("replay", "@rollouts.jsonl", "--tokenizer", "@vocab.json"),
    "TANDEM_CONFIG": of_variable,
    "an engine's junior": of_junior,
    "a vocabulary": of_vocabulary,
}  # fmt: skip
FORMS = {"~": (b"", b"\n"), "Windows": (BOM_UTF8, b"\r\n")}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("door", DOORS)
def test_home_and_text_of_windows_change_nothing(
    door: str, form: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*given: Any, **_: Any) -> None:
        raise StoppedError(repr(given))

    def stop_rollout(options: RolloutOptions, _: Any) -> None:
        stop(options, read_problems(options.problems, layout=options.layout).problems)

    monkeypatch.setattr(run, "roll_out", stop_rollout)
    monkeypatch.setattr(engine, "start_engine", stop)
    monkeypatch.setattr(engine, "check_drafting_here", lambda: None)
    monkeypatch.setattr(evaluation, "evaluate", stop)
    monkeypatch.setattr(processes, "end_with_this_process", lambda: None)
    monkeypatch.setenv("TANDEM_CONFIG", "")
    write(home)
    plain = DOORS[door](lambda name: str(home / name))
    assert plain
    shutil.rmtree(home)
    write(home, *FORMS[form])
    mine = DOORS[door](lambda name: f"~/{name}" if form == "~" else str(home / name))
    assert mine == plain
    assert not list(Path.cwd().iterdir()), "nothing is written to a folder called ~"
