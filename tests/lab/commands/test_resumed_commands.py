"""``tandem rollout`` resumes a file whose settings and problems are as they were."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from tandem_plugin import Authorship, TandemConfig, TandemRules, Vocabulary, __version__
from tandem_plugin.cli import app
from tandem_plugin.lab.commands.options import template_arguments
from tandem_plugin.lab.evaluation.inputs import fingerprint_folder
from tandem_plugin.lab.rollouts import engine as engine_module
from tandem_plugin.lab.rollouts import generate
from tandem_plugin.lab.rollouts.run import RolloutOptions, roll_out
from tandem_plugin.patching import versions
from tandem_plugin.plugins import using_plugins

pytest.importorskip("sympy")

Row = dict[str, Any]


def run(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    return result.exit_code, result.stdout, result.stderr


def write(path: Path, rows: Sequence[Row]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def lines(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()]


PROBLEMS: list[Row] = [{"problem": f"What is {i} + 1?", "answer": str(i + 1)} for i in range(4)]


class Engine:
    """Stands in for the engine: answers what is asked, and rightly."""

    def __init__(self) -> None:
        scheduler = SimpleNamespace(max_num_seqs=4)
        self.llm_engine = SimpleNamespace(
            vllm_config=SimpleNamespace(scheduler_config=scheduler),
            model_config=SimpleNamespace(max_model_len=10**6),
        )

    def get_tokenizer(self) -> Any:
        return SimpleNamespace(encode=list, chat_template=None)

    def stream(self, requests: Iterator[tuple[Any, ...]], most: int) -> Iterator[Any]:
        for place, *_ in requests:
            problem = place.problem
            response = SimpleNamespace(
                text=f"\\boxed{{{problem + 1}}}", finish_reason="stop", token_ids=[1, 2],
                tandem_seed=7, authorship=Authorship([1, 0]), tandem_fingerprint="x",
                tandem_schedule={}, senior_logprobs=None, junior_logprobs=None,
            )  # fmt: skip
            yield place, SimpleNamespace(outputs=[response])


@dataclass
class RolledOut:
    """A run with --grade, of which a kill left two responses."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch

    @property
    def out(self) -> Path:
        return self.folder / "rollouts.jsonl"

    def again(self, *options: object) -> tuple[int, str, str]:
        self.monkeypatch.setattr(engine_module, "start_engine", lambda *_: Engine())
        self.monkeypatch.setattr(generate, "sampling_parameters", lambda *_, **__: None)
        return run(
            *("rollout", "--grade", "--json", "--out", self.out),
            *("--senior", self.folder / "senior", "--junior", self.folder / "junior"),
            *("--problems", self.folder / "problems.jsonl", *options),
        )


@pytest.fixture
def rolled_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, byte_level: Vocabulary
) -> RolledOut:
    monkeypatch.setattr(Vocabulary, "from_path", lambda path: byte_level)
    for name in ("senior", "junior"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
        (tmp_path / name / "model.safetensors").write_bytes(name.encode())
    write(tmp_path / "problems.jsonl", PROBLEMS)
    found = RolledOut(tmp_path, monkeypatch)
    assert found.again()[0] == 0
    kept = found.out.read_bytes().splitlines(keepends=True)[:2]
    found.out.write_bytes(b"".join(kept))
    return found


def test_rollouts_resume_with_the_same_problems(rolled_out: RolledOut):
    before = rolled_out.out.read_bytes()
    code, said, error = rolled_out.again()
    assert code == 0, said + error
    assert rolled_out.out.read_bytes().startswith(before)
    assert [row["problem"] for row in lines(rolled_out.out)] == [0, 1, 2, 3]
    result = json.loads(said)
    assert (result["written"], result["found"], result["reward"]) == (2, 2, 1.0)


@pytest.mark.parametrize(
    "problems",
    [
        [{**row, "answer": "999"} for row in PROBLEMS],
        [{**PROBLEMS[0], "problem": "What is 0 + 2?"}, *PROBLEMS[1:]],
        [*PROBLEMS, {"problem": "What is 4 + 1?", "answer": "5"}],
    ],
    ids=["answers", "problem", "more"],
)
def test_rollouts_to_other_problems_are_not_resumed(rolled_out: RolledOut, problems: list[Row]):
    before = rolled_out.out.read_bytes()
    write(rolled_out.folder / "problems.jsonl", problems)
    code, said, _ = rolled_out.again()
    assert (code, rolled_out.out.read_bytes()) == (1, before)
    assert "a different --out" in json.loads(said)["error"]


def test_lines_say_their_grades_and_the_command_their_mean(rolled_out: RolledOut):
    rows: list[Row] = [{"problem": "0 + 1?", "answer": ["9", "1"]}, {"problem": "?", "answer": "x"}]
    write(rolled_out.folder / "problems.jsonl", rows)
    rolled_out.out.unlink()
    code, said, error = rolled_out.again("--instruction", "Box it.")
    assert (code, json.loads(said)["reward"]) == (0, 0.5), error
    found = {row["problem"]: row for row in lines(rolled_out.out)}
    assert [found[i]["outcome"] for i in range(2)] == ["correct", "incorrect"]
    assert [(found[i]["reward"], found[i]["pred"]) for i in range(2)] == [(1.0, "1"), (0.0, "2")]
    assert found[0]["prompt"] == [{"role": "user", "content": "0 + 1?\nBox it."}]


def test_run_that_is_stopped_keeps_no_line_without_its_grade(rolled_out: RolledOut):
    stream = Engine.stream

    def stopped(self: Engine, requests: Iterator[tuple[int, int]], most: int) -> Iterator[Any]:
        yield from stream(self, requests, most)
        raise KeyboardInterrupt

    rolled_out.monkeypatch.setattr(Engine, "stream", stopped)
    assert rolled_out.again()[0] == 130
    assert all(row["reward"] == 1.0 for row in lines(rolled_out.out))


@pytest.mark.parametrize("name", ["senior", "junior"])
@pytest.mark.parametrize(
    "file", ["model.safetensors", "config.json", "tokenizer.json", "modeling_own.py"]
)
def test_rollouts_by_other_weights_in_the_same_folder_are_not_resumed(
    rolled_out: RolledOut, name: str, file: str
):
    before = rolled_out.out.read_bytes()
    (rolled_out.folder / name / file).write_text("[]")
    code, said, _ = rolled_out.again()
    assert (code, rolled_out.out.read_bytes()) == (1, before)
    assert f"{name}_fingerprint" in json.loads(said)["error"]


def test_rollouts_note_the_fingerprints_that_evaluations_have(rolled_out: RolledOut):
    note = json.loads((rolled_out.folder / "rollouts.jsonl.run.json").read_text())
    assert note["senior_fingerprint"] == fingerprint_folder(rolled_out.folder / "senior")
    assert note["junior_fingerprint"] == fingerprint_folder(rolled_out.folder / "junior")
    # A log, or what a trainer leaves beside the weights, is none of the model.
    (rolled_out.folder / "senior/optimizer.pt").write_bytes(b"x")
    assert rolled_out.again()[0] == 0


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda row: row.pop("reward"), "reward"),
        (lambda row: row.update(reward="1"), "reward"),
        (lambda row: row.update(reward=float("nan")), "reward"),
        (lambda row: row.update(reward=True), "reward"),
        (lambda row: row.update(reward=None), "reward"),
        (lambda row: row.update(reward=10**400), "reward"),
        (lambda row: row.update(authorship=[1, 2]), "authorship"),
        (lambda row: row.pop("response_ids"), "response_ids"),
    ],
)
@pytest.mark.parametrize("kept", [True, False])
def test_rows_without_a_rollout_and_its_reward_are_refused_before_anything_is_generated(
    rolled_out: RolledOut, spoil: Callable[[Row], object], said: str, kept: bool
):
    """Whether or not the row has the digest that tells it was edited."""
    rows = lines(rolled_out.out)
    spoil(rows[1])
    if not kept:
        del rows[1]["row_sha256"]
    write(rolled_out.out, rows)
    before = rolled_out.out.read_bytes()
    code, answer, _ = rolled_out.again()
    assert (code, rolled_out.out.read_bytes()) == (1, before)
    error = json.loads(answer)["error"]
    assert "line 2" in error
    assert (said if not kept else "was edited") in error


def test_line_that_stands_twice_counts_once(rolled_out: RolledOut):
    """As after ``cat`` of two copies that overlap."""
    write(rolled_out.folder / "problems.jsonl", [*PROBLEMS[:3], {**PROBLEMS[3], "answer": "9"}])
    rolled_out.out.unlink()
    rolled_out.again()
    *others, last = rolled_out.out.read_bytes().splitlines(keepends=True)
    rolled_out.out.write_bytes(b"".join([*others, *[last] * 9, b"\n", others[0]]))
    code, said, error = rolled_out.again()
    assert code == 0, error
    result = json.loads(said)
    assert (result["responses"], result["reward"], result["repeated"]) == (4, 0.75, 9)


def test_rollouts_with_other_arguments_of_the_chat_template_are_not_resumed(rolled_out: RolledOut):
    """They are typed as JSON, else texts."""
    rolled_out.monkeypatch.setattr(engine_module, "check_template_args", lambda *_: None)
    rolled_out.out.unlink()
    given = ("--template-arg", "enable_thinking=false", "--template-arg", "style=terse")
    assert rolled_out.again(*given)[0] == 0
    note = json.loads((rolled_out.folder / "rollouts.jsonl.run.json").read_text())
    assert note["template_args"] == {"enable_thinking": False, "style": "terse"}
    before = rolled_out.out.read_bytes()
    assert rolled_out.again(*given, "--samples", 2)[0] == 0
    rolled_out.out.write_bytes(before)
    for other in ((), ("--template-arg", 'enable_thinking="false"', *given[2:]), given[2:]):
        code, said, _ = rolled_out.again(*other)
        assert (code, rolled_out.out.read_bytes()) == (1, before)
        assert "template_args" in json.loads(said)["error"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1), ("null", None), ('{"a": [1]}', {"a": [1]}), ("True", "True"), ("NaN", "NaN"),
        ('{"a": NaN}', '{"a": NaN}'), ("9" * 5000, "9" * 5000), ("[" * 9999, "[" * 9999), ("", ""),
        ("a=b", "a=b"), ('"1"', "1"),
    ],
)  # fmt: skip
def test_arguments_of_the_template_are_json_or_else_texts(text: str, value: object):
    assert template_arguments([f"x={text}"]) == {"x": value}


PLUGIN = """
from dataclasses import dataclass
from typing import ClassVar

import helper
from tandem_plugin import hookimpl


@dataclass(frozen=True)
class Relay:
    name: ClassVar[str] = "relay"
    boundaries: ClassVar[str] = "word"
    p: float = 0.5

    def start(self, u):
        return u < self.p

    def advance(self, author, run, is_boundary, u):
        return author ^ (is_boundary & (u < helper.SHARE)), run * 0


@hookimpl
def register_schedules(register):
    register(Relay)
"""


@pytest.fixture
def relay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Installs a plugin, of a text and a helper beside it, in a version."""
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "site").mkdir()

    def install(text: str = PLUGIN, share: float = 0.5, version: str = "1.0") -> Any:
        for name, content in (("relay_plugin", text), ("helper", f"SHARE = {share}")):
            (tmp_path / "site" / f"{name}.py").write_text(content)
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        module = importlib.import_module("relay_plugin")
        return using_plugins(module, distribution="relays", version=version)

    return install


@pytest.mark.parametrize(
    "change",
    [
        {"version": "2.0"},
        {"text": PLUGIN.replace("u < self.p", "u > self.p")},
        {"text": PLUGIN.replace("run * 0", "run + 1")},
        {"share": 0.4},
    ],
    ids=["version", "code", "code without an effect so far", "code beside it"],
)
def test_rollouts_of_a_plugins_schedule_that_changed_are_not_resumed(
    rolled_out: RolledOut, relay: Callable[..., Any], change: dict[str, Any]
):
    rolled_out.out.unlink()
    options = ("--schedule", "relay")
    with relay():
        assert rolled_out.again(*options)[0] == 0
        before = rolled_out.out.read_bytes()
    with relay():
        assert rolled_out.again(*options, "--samples", 2)[0] == 0
    rolled_out.out.write_bytes(before)
    with relay(**change):
        code, said, _ = rolled_out.again(*options, "--samples", 4)
    assert (code, rolled_out.out.read_bytes()) == (1, before)
    assert "with rule=" in json.loads(said)["error"]


def test_rollouts_note_our_version_and_rule(rolled_out: RolledOut, byte_level: Vocabulary):
    note = json.loads((rolled_out.folder / "rollouts.jsonl.run.json").read_text())
    rule = TandemRules(TandemConfig(), byte_level).default
    assert note["tandem_plugin"] == __version__
    assert note["rule"] == {"fingerprint": rule.fingerprint}  # our code has our version


@pytest.mark.parametrize("library", ["vllm", "torch", "transformers"])
def test_rollouts_by_another_version_of_a_library_are_not_resumed(
    rolled_out: RolledOut, monkeypatch: pytest.MonkeyPatch, library: str
):
    before = rolled_out.out.read_bytes()
    real = versions.installed_version
    changed = {library: "99.0"}
    monkeypatch.setattr(versions, "installed_version", lambda name: changed.get(name) or real(name))
    code, said, _ = rolled_out.again()
    assert (code, rolled_out.out.read_bytes()) == (1, before)
    assert f"with {library}={real(library)!r}, but now it is '99.0'" in json.loads(said)["error"]


def test_settings_of_an_engine_reach_it(rolled_out: RolledOut):
    seen: list[dict[str, Any]] = []

    def start(senior: str, arguments: Any, tandem: dict[str, Any], tokens: int) -> Engine:
        seen.append(tandem)
        return Engine()

    rolled_out.out.unlink()
    rolled_out.monkeypatch.setattr(engine_module, "start_engine", start)
    rolled_out.monkeypatch.setattr(generate, "sampling_parameters", lambda *_, **__: None)
    command = ["rollout", "--out", rolled_out.out, "--senior", rolled_out.folder / "senior"]
    command += ["--junior", rolled_out.folder / "junior"]
    command += ["--problems", rolled_out.folder / "problems.jsonl"]
    for name, value in (("cap", 4), ("mode", "speculative"), ("drafts", 2), ("record", "r")):
        command += ["--set", f"{name}={value}"]
    assert run(*command)[0] == 0
    (tandem,) = seen
    assert (tandem["cap"], tandem["mode"], tandem["drafts"]) == (4, "speculative", 2)
    assert tandem["junior"] == str(rolled_out.folder / "junior")


def test_a_run_is_one_call_in_python(rolled_out: RolledOut):
    rolled_out.out.unlink()
    rolled_out.monkeypatch.setattr(engine_module, "start_engine", lambda *_: Engine())
    write(rolled_out.folder / "problems.jsonl", [{**row, "hint": 1} for row in PROBLEMS])
    options = RolloutOptions(
        senior=str(rolled_out.folder / "senior"),
        problems=str(rolled_out.folder / "problems.jsonl"),
        out=rolled_out.out,
        tandem=TandemConfig(junior=str(rolled_out.folder / "junior")),
        samples=2,
        grade=True,
    )
    notes: list[str] = []
    done = roll_out(options, notes.append)
    assert (done.responses, done.written, done.found, done.reward) == (8, 8, 0, 1.0)
    assert notes == ["not in the prompts: hint (4 rows)"]
    again = roll_out(options)
    assert (again.written, again.found, again.reward) == (0, 8, 1.0)
