from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from small_tokenizers import byte_level_bpe
from typer.testing import CliRunner

from tandem_plugin import TandemConfig, TandemRules, Vocabulary, __version__
from tandem_plugin.cli import app
from tandem_plugin.lab.commands.options import RESOLVERS, SCHEDULES


def test_version_is_printed():
    result = CliRunner().invoke(app, ["--version"])
    lines = result.output.splitlines()
    assert lines[:2] == [f"tandem-plugin {__version__}", f"Python {platform.python_version()}"]
    assert f"pydantic {version('pydantic')}" not in lines
    assert all(version(name) == found for name, found in map(str.split, lines[2:]))


def test_version_as_json():
    result = CliRunner().invoke(app, ["--version", "--json"])
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["version"] == __version__
    assert found["stack"]["Python"] == platform.python_version()


def test_version_imports_nothing_of_the_stack():
    code = (
        "import sys\n"
        "from tandem_plugin.cli import app\n"
        "app(['--version'], standalone_mode=False)\n"
        "heavy = ('torch', 'vllm', 'verl', 'openrlhf', 'trl', 'transformers')\n"
        "sys.exit(str([name for name in heavy if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.strip() == "[]"


def test_help_says_what_an_option_takes_in_plain_words():
    found = CliRunner().invoke(app, ["rollout", "--help"]).output
    assert "--samples, --n INTEGER" in found
    assert "--temperature NUMBER" in found
    assert "--senior [NAME=]PATH" in found
    found += CliRunner().invoke(app, ["data", "prepare", "--help"]).output
    assert "-o, --out PATH" in found
    assert not re.search(r"--\S+ <(?!stop|verl|paper)", found)


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [
        ("--memory", "24GB", "it must be a number"),
        ("--memory", "0", "it must be at least 0.1"),
        ("--max-model-len", "long", "it must be an integer"),
        ("--gpu-memory-utilization", "2", "it must be at most 1"),
    ],
)
def test_wrong_value_is_said_in_words_of_the_command(option: str, value: str, reason: str):
    found = CliRunner().invoke(app, ["plan", "--senior", "x/y", option, value])
    assert found.exit_code == 2
    assert f"Invalid value for '{option}': {reason}\n" in found.stderr


@pytest.mark.parametrize("as_json", [False, True])
def test_wrong_choice_is_said_in_words_of_the_command_alone(as_json: bool):
    result = CliRunner().invoke(app, ["path", "reward-vrl", *(["--json"] if as_json else [])])
    assert result.exit_code == 2
    assert "'reward-vrl' is not one of 'reward-verl'" in result.output
    assert "Value error" not in result.output


def test_help_of_rollout_reads_neither_data_nor_grading():
    code = (
        "import sys\n"
        "from tandem_plugin.cli import app\n"
        "app(['rollout', '--help'], standalone_mode=False)\n"
        "heavy = ('tandem_plugin.lab.data', 'tandem_plugin.grading', 'torch', 'vllm', 'sympy')\n"
        "sys.exit(str([name for name in sys.modules if name.startswith(heavy)]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "--problems" in done.stdout
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize(
    "arguments",
    [
        ["nope"],
        ["--nope"],
        ["doctor", "--nope"],
        ["replay", "x", "--show", "-1"],
    ],
)
def test_wrong_command_line_ends_with_code_2(arguments: list[str]):
    plain = CliRunner().invoke(app, arguments)
    assert plain.exit_code == 2
    assert plain.stdout == ""
    assert "Error" in plain.stderr
    as_json = CliRunner().invoke(app, [*arguments, "--json"])
    assert as_json.exit_code == 2
    assert as_json.stderr == ""
    assert list(json.loads(as_json.stdout)) == ["error"]


HEAVY = ("torch", "transformers", "vllm", "pyarrow", "datasets", "scipy", "matplotlib")
WITHOUT = f"import sys; sys.modules.update(dict.fromkeys({HEAVY}))\n"
"""Makes every import of these an error, as where they are not installed."""


def run_without(*arguments: str) -> Any:
    """The JSON of a command that cannot import torch, transformers and others."""
    code = f"{WITHOUT}from tandem_plugin.cli import main\nmain()"
    command = [sys.executable, "-c", code, *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def colleague(tmp_path: Path) -> Path:
    """The folder of a run: two steps' responses, and a checkpoint without its weights.

    The authors are those of the tokenizer as the engine reads it, by transformers if it is here.
    """
    core = byte_level_bpe()
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    core.save(str(checkpoint / "tokenizer.json"))
    kind = {"tokenizer_class": "PreTrainedTokenizerFast"}
    (checkpoint / "tokenizer_config.json").write_text(json.dumps(kind))
    rule = TandemRules(TandemConfig(), Vocabulary.from_path(checkpoint)).default
    (tmp_path / "rollouts").mkdir()
    for step in (1, 2):
        rows = []
        for seed in range(4):
            text = f"Step {seed}: the senior writes.\n\nIt is \\boxed{{{seed}}}. " * 4
            ids = core.encode(text).ids
            rows.append(
                {
                    "prompt": f"What is {seed}?",
                    "response": core.decode(ids),
                    "response_ids": ids,
                    "authorship": rule.replay(ids, seed).tolist(),
                    "tandem_seed": seed,
                    "tandem_fingerprint": rule.fingerprint,
                    "tandem_schedule": rule.settings(),
                }
            )
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / "rollouts" / f"{step}.jsonl").write_text(lines)
    return tmp_path


def test_a_colleagues_rollouts_are_seen_and_replayed_without_torch_and_transformers(
    colleague: Path,
):
    shown = run_without("view", str(colleague / "rollouts"))
    assert (shown["responses"], shown["steps"], shown["unread_lines"]) == (8, 2, 0)
    assert run_without("view", str(colleague / "rollouts" / "2.jsonl"))["responses"] == 4
    replayed = run_without("replay", str(colleague / "rollouts"))
    assert replayed["ok"] is True
    assert (replayed["rows"], replayed["differing_rows"]) == (8, 0)
    assert replayed["handoffs_per_response"] > 0


def test_problems_and_grading_need_no_torch_either(colleague: Path):
    problems = colleague / "problems.jsonl"
    problems.write_text('{"problem": "1 + 1?", "answer": "2"}\n')
    out = str(colleague / "data")
    prepared = run_without("data", "prepare", str(problems), "--to", "openrlhf", "--out", out)
    assert prepared["rows"] == {"train": 1}
    code = (
        f"{WITHOUT}from tandem_plugin.grading import grade\n"
        r"print(grade(r'\boxed{\frac{2}{4}}', '0.5').outcome)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("correct\n", "")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("rollout --schedule so", ["solo", "solo-word"]),
        ("replay x --boundaries ", RESOLVERS.split(", ")),
        ("eval solo --schedule step", ["step", "step-bernoulli"]),
        ("data prepare gsm", ["gsm8k", "gsm8k-test"]),
        ("data prepare x --to ", ["verl", "openrlhf", "trl", "skyrl"]),
    ],
)
def test_shell_completes_values(words: str, found: list[str]) -> None:
    line = f"tandem {words}"
    asked = {"_TANDEM_COMPLETE": "complete_bash", "COMP_WORDS": line}
    env = {**os.environ, **asked, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    command = [sys.executable, "-c", "from tandem_plugin.cli import main; main()"]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert sorted(done.stdout.split()) == sorted(found), done.stderr


def test_help_lists_the_built_in_schedules_and_resolvers() -> None:
    from tandem_plugin.plugins.loading import catalogue

    own = [one for one in catalogue().registrations if one.provider.distribution == "tandem-plugin"]
    assert set(SCHEDULES.split(", ")) == {one.name for one in own if one.kind == "schedule"}
    assert set(RESOLVERS.split(", ")) == {one.name for one in own if one.kind == "boundaries"}
