"""The protocols of the paper and of its release, against what each of them states."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from refused import refused
from typer.testing import CliRunner

from tandem_plugin.cli import app
from tandem_plugin.lab.commands import eval as commands
from tandem_plugin.lab.data import Problem, PromptTemplate
from tandem_plugin.lab.data.preparation import split
from tandem_plugin.lab.evaluation import drift, handover_kl, legibility, solo_handoff
from tandem_plugin.lab.evaluation.generation import (
    Sampling,
    engine_settings,
    schedule_label,
    team_schedule,
)
from tandem_plugin.lab.evaluation.measures import measured
from tandem_plugin.lab.evaluation.results import read_summary, write_summary
from tandem_plugin.lab.evaluation.text_handoff import TextHandoff
from tandem_plugin.lab.protocols import defaults, training_settings

RELEASE = Path(__file__).parent / "evaluation" / "release"
BOXED = (  # data/build_deepscaler.py and data/build_evals.py have this constant
    " Solve the following math problem step by step. Put your final answer "
    "inside \\boxed{}, like \\boxed{42} or \\boxed{\\frac{1}{2}}."
)


def test_sampling_is_that_of_the_releases_results():
    for phase in ("solo", "handoff"):
        stated = json.loads((RELEASE / f"{phase}.json").read_text())
        chosen = defaults("release")
        assert {name: chosen[name] for name in stated["sampling"]} == stated["sampling"]
    assert team_schedule("step-text", {}) == {
        "schedule": "step-text",
        "rounds": stated["max_rounds"],
    }
    assert chosen["schedule"] == ["step-text"]


@pytest.mark.parametrize("text", ["Add.", " Add. \n", "Give it in \\boxed{}: add."])
def test_the_releases_prompt_is_the_problem_and_its_instruction_to_the_byte(text: str):
    stated = defaults("release")
    template = PromptTemplate(stated["template"], stated["instruction"], always=True)
    problem = Problem(1, ({"role": "user", "content": text.strip()},), ("1",), text)
    (turn,) = template.messages(problem)
    assert turn["content"] == text + BOXED
    again = Problem(1, (turn,), ("1",))  # as `tandem data prepare` has written it
    assert template.messages(again) == [turn]


def test_the_rows_that_pandas_draws_are_held_out():
    problems = [Problem(i, ({"role": "user", "content": str(i % 20)},), ("1",)) for i in range(50)]
    parts, _ = split(problems, 10, 3, draws_rows=True)
    # pandas.DataFrame.sample(n=10, random_state=3) draws exactly this.
    rows = np.random.RandomState(3).choice(50, size=10, replace=False)
    assert [one.row for one in parts["heldout"]] == rows.tolist()
    assert sorted(one.row for part in parts.values() for one in part) == list(range(50))
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"row": range(50)}).sample(n=10, random_state=3)
    assert frame["row"].tolist() == rows.tolist()


def test_prepared_data_record_the_protocol_and_what_was_given_instead(tmp_path: Path):
    pytest.importorskip("pyarrow")
    file = tmp_path / "sums.jsonl"
    rows = [{"problem": f"{i} + 1 = ?", "answer": i + 1} for i in range(30)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "out"
    command = ["data", "prepare", str(file), "--to", "openrlhf", "--out", str(out), "--json"]
    done = CliRunner().invoke(app, [*command, "--protocol", "release", "--heldout", "5"])
    assert done.exit_code == 0, done.output
    noted = json.loads((out / "manifest.json").read_text())["protocol"]
    assert noted == json.loads(done.output)["protocol"]
    assert noted["overridden"] == {"heldout": 5}
    assert noted["stated"]["heldout"]["value"] == 1000
    first = json.loads((out / "train.jsonl").read_text().splitlines()[0])
    assert first["input"][-1]["content"].endswith(f" + 1 = ?{BOXED}")
    done = CliRunner().invoke(app, [*command, "--protocol", "release"])
    assert (done.exit_code, "heldout-too-many" in done.output) == (
        1,
        True,
    )  # 1,000 of 30 cannot be held out


def test_an_evaluation_takes_the_protocol_and_what_is_given_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = tmp_path / "sums.jsonl"
    file.write_text('{"problem": "1 + 1 = ?", "answer": 2}\n')
    seen: list[tuple[Any, ...]] = []

    def run(*arguments: Any) -> list[Path]:
        seen.append(arguments)
        return []

    monkeypatch.setattr(solo_handoff, "run_handoff", run)
    monkeypatch.setattr(solo_handoff, "check_handoffs", lambda *_: None)
    monkeypatch.setattr(commands, "_checkpoints", lambda given: list(given))
    monkeypatch.setattr(commands, "_show", lambda *_: None)
    common = ["--senior", "s", "--junior", "j", "--benchmark", str(file), "--out", str(tmp_path)]
    paper_of_4 = ["--protocol", "paper", "--samples", "4"]
    code = ["--protocol", "paper-code"]
    for given in (["--protocol", "release"], paper_of_4, [], ["--n", "4", "--team-n", "2"], code):
        done = CliRunner().invoke(app, ["eval", "handoff", *common, "--temperature", "0.5", *given])
        assert done.exit_code == 0, done.output
    (_, _, _, schedules, (benchmark,), sampling, _, noted, _), paper, plain, both, papers_code = (
        seen
    )
    assert schedules == [{"schedule": "step-text", "rounds": 150}]
    assert sampling == Sampling(8, 0.5, 0.8, 3000, 0, 20, 4088)
    assert benchmark.template_args == {"enable_thinking": False}
    assert benchmark.questions()[0]["messages"][0]["content"] == f"1 + 1 = ?{BOXED}"
    assert noted["overridden"] == {"temperature": 0.5}
    assert [one[5].samples for one in (paper, plain, both)] == [4, 8, 2]
    assert paper[7]["overridden"] == {"team_samples": 4}
    assert plain[5] == Sampling(8, 0.5, 0.95, 3000, 0)
    assert paper[3] == plain[3] == [{"schedule": "step", "first": "senior"}]
    assert paper[7]["not_stated"]["temperature"] == 0.5  # the paper says nothing of it
    assert plain[7] is None
    # The temperature that is given for a team alone is the team's; the rest is the code's own.
    assert papers_code[5] == Sampling(8, 0.5, 0.95, 3000, 0, None, 4096)
    assert papers_code[7]["overridden"] == {"temperature": 0.5, "team_temperature": 0.5}
    assert papers_code[7]["source"].endswith("f0ae0b9263277b21fceafe8730dbf7c3eab8f587")


def test_the_papers_code_samples_its_seniors_and_its_teams_in_two_ways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Alone at 0.7, 0.8, 20; as a team at 0.6, 0.95. Samples are the largest k of the figures."""
    file = tmp_path / "sums.jsonl"
    file.write_text('{"problem": "1 + 1 = ?", "answer": 2}\n')
    seen: dict[str, Sampling] = {}
    monkeypatch.setattr(
        solo_handoff, "run_solo", lambda out, one, marks, sampling, *_: seen.update(solo=sampling)
    )
    monkeypatch.setattr(
        solo_handoff,
        "run_handoff",
        lambda out, one, two, plans, marks, sampling, *_: seen.update(team=sampling) or [],
    )
    for check in ("check_handoffs", "check_tokenizers"):
        monkeypatch.setattr(solo_handoff, check, lambda *_: None)
    monkeypatch.setattr(legibility, "run_legibility", lambda *_: [])
    monkeypatch.setattr(handover_kl, "run_handover_kl", lambda *_: [])
    monkeypatch.setattr(drift, "run_drift", lambda *_: None)
    monkeypatch.setattr(
        commands, "_checkpoints", lambda given: [SimpleNamespace(name=one) for one in given]
    )
    monkeypatch.setattr(commands, "_show", lambda *_: None)
    given = ["--senior", "s", "--junior", "j", "--benchmark", str(file), "--out", str(tmp_path)]
    done = CliRunner().invoke(app, ["eval", "all", *given, "--protocol", "paper-code"])
    assert done.exit_code == 0, done.output
    assert seen["solo"] == Sampling(32, 0.7, 0.8, 3000, 0, 20, 4096)
    assert seen["team"] == Sampling(8, 0.6, 0.95, 3000, 0, None, 4096)


def test_a_context_shortens_the_responses_to_long_prompts_alone():
    limited = Sampling(1, max_tokens=3000, context=4088)
    assert [limited.budget(prompt) for prompt in (10, 1088, 1089, 4088)] == [3000, 3000, 2999, 0]
    assert Sampling(1, max_tokens=3000).budget(4000) == 3000
    assert "context" not in Sampling(1).settings()
    # Of a handoff by text: the prompt "Q" and the response have 8 tokens together.
    row = run_text(Scripted(Turn("A\n\n", [1] * 4), Turn("B\n\n", [2] * 3)), context=8)
    assert (row["finish_reason"], row["response"]) == ("length", "A\n\nB\n\n")


@pytest.mark.parametrize("prepared", [[], ["--protocol", "release", "--heldout", "0"]])
def test_a_prepared_file_is_asked_with_its_own_instruction_under_every_protocol(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prepared: list[str]
):
    source, out = tmp_path / "sums.jsonl", tmp_path / "data"
    source.write_text('{"problem": "1 + 1 = ?", "answer": 2}\n')
    command = ["data", "prepare", str(source), "--to", "openrlhf", "--out", str(out), *prepared]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    seen: list[tuple[Any, ...]] = []
    monkeypatch.setattr(solo_handoff, "run_handoff", lambda *given: seen.append(given) or [])
    monkeypatch.setattr(solo_handoff, "check_handoffs", lambda *_: None)
    monkeypatch.setattr(commands, "_checkpoints", lambda given: list(given))
    monkeypatch.setattr(commands, "_show", lambda *_: None)
    file = out / "train.jsonl"
    command = ["eval", "handoff", "--senior", "s", "--junior", "j", "--benchmark", str(file)]
    done = CliRunner().invoke(app, [*command, "--out", str(tmp_path), "--protocol", "release"])
    assert done.exit_code == 0, done.output
    ((_, _, _, _, (benchmark,), _, _, noted, _),) = seen
    (row,) = map(json.loads, file.read_text().splitlines())
    assert [one["messages"] for one in benchmark.questions()] == [row["input"]]
    assert row["input"][0]["content"].count("\\boxed{}") == 1
    changed = {"template", "instruction", "always_instructed"}
    assert changed & noted["overridden"].keys() == (set() if prepared else changed)


@pytest.mark.parametrize(
    ("part", "options", "said"),
    [
        ("legibility", ["--junior", "j", "--n", "3"], "--samples has no effect on legibility"),
        ("handoff", ["--junior", "j"], "--benchmark is needed for handoff"),
        ("drift", [], "--junior is needed for drift"),
    ],
)
def test_options_of_another_part_are_rejected(part: str, options: list[str], said: str):
    done = CliRunner().invoke(app, ["eval", part, "--senior", "s", "--out", "o", *options])
    assert (done.exit_code, said in done.output) == (2, True), done.output


def test_model_without_tokenizer_files_is_named_before_it_answers(tmp_path: Path):
    pytest.importorskip("transformers")
    senior, problems = tmp_path / "senior", tmp_path / "sums.jsonl"
    senior.mkdir()
    (senior / "config.json").write_text('{"model_type": "qwen3"}')
    (senior / "model.safetensors").write_bytes(b"weights")
    problems.write_text('{"problem": "1 + 1 = ?", "answer": 2}\n')
    common = ["--senior", str(senior), "--benchmark", str(problems), "--out", str(tmp_path / "o")]
    done = CliRunner().invoke(app, ["eval", "solo", *common])
    assert (done.exit_code, "tokenizer-files-missing" in done.output) == (1, True), done.output


def test_legibility_over_responses_is_the_releases_mean(tmp_path: Path):
    stated = json.loads((RELEASE / "legibility.json").read_text())
    problems: dict[str, dict[int, list[dict[str, float]]]] = {}
    for row in stated["per_sample"]:
        problems.setdefault(row["set"], {}).setdefault(row["idx"], []).append(row)
    content = {
        "senior": {"name": "s"}, "junior": {"name": "j"}, "settings": {},
        "benchmarks": {
            name: [
                {
                    "problem": problem, "overlap": 0.9, "response_overlap": 0.9,
                    "tokens": sum(row["n_tokens"] for row in rows),
                    "cross_entropy": sum(r["ce"] * r["n_tokens"] for r in rows)
                    / sum(r["n_tokens"] for r in rows),
                    "responses": len(rows),
                    "response_cross_entropy": float(np.mean([row["ce"] for row in rows])),
                }
                for problem, rows in found.items()
            ]
            for name, found in problems.items()
        },
    }  # fmt: skip
    summary = read_summary(write_summary(tmp_path, "legibility", content))
    found = next(iter(measured(summary, 10, "responses").values()))
    assert found.means == pytest.approx(stated["by_set"])
    assert found.macro == pytest.approx(stated["macro_ce"])
    for over in ("problems", "positions"):
        assert next(iter(measured(summary, 10, over).values())).macro != found.macro  # type: ignore[arg-type]


@dataclass
class Turn:
    text: str
    token_ids: list[int]
    finish_reason: str = "stop"
    stop_reason: str | None = "\n\n"
    tandem_fingerprint: str = "0" * 16


class Letters:
    """A tokenizer of letters."""

    chat_template = None

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        return [ord(letter) for letter in text]


class Scripted:
    """An engine whose turns are written beforehand; it keeps its requests."""

    def __init__(self, *turns: Turn) -> None:
        self.turns = list(turns)
        self.asked: list[tuple[Any, Any, Any]] = []
        self.llm_engine = self.model_config = self
        self.max_model_len = 1000

    def get_tokenizer(self) -> Letters:
        return Letters()

    def stream(self, requests: Any, most: int) -> Any:
        while asked := next(requests, None):
            key, prompt, params, tandem = asked
            self.asked.append((prompt["prompt_token_ids"], params, tandem))
            yield key, type("Output", (), {"outputs": [self.turns.pop(0)]})


def run_text(
    engine: Scripted, budget: int = 99, rounds: int = 150, context: int | None = None
) -> dict[str, Any]:
    pytest.importorskip("vllm")
    handoff = TextHandoff(engine, Sampling(1, max_tokens=budget, context=context), 4)
    question = {"messages": [{"role": "user", "content": "Q"}], "golds": ["1"]}
    handoff.add("key", question, (5, 7), rounds)
    ((key, row),) = handoff.rows()
    assert key == "key"
    return row


def test_models_hand_over_the_text_up_to_a_blank_line():
    engine = Scripted(
        Turn("A\n\n", [1, 2]), Turn("B\n\n", [3]), Turn("C", [4, 5, 6], stop_reason=None)
    )
    row = run_text(engine)
    assert row["response"] == "A\n\nB\n\nC"
    assert row["response_ids"] == [1, 2, 3, 4, 5, 6]
    assert row["authorship"] == [1, 1, 0, 1, 1, 1]
    assert row["tandem_segments"] == [[7, 0, 2], [7, 2, 3], [7, 3, 6]]
    assert row["finish_reason"] == "stop"
    # The text is tokenised anew, and the budget is what is left of it.
    assert [bytes(ids).decode() for ids, *_ in engine.asked] == ["Q", "QA\n\n", "QA\n\nB\n\n"]
    assert [params.max_tokens for _, params, _ in engine.asked] == [99, 97, 96]
    assert [tandem["schedule"] for *_, tandem in engine.asked] == ["solo", "junior", "solo"]
    assert len({params.seed for _, params, _ in engine.asked}) == 3


def test_a_handoff_by_text_ends_at_its_budget_and_after_its_rounds():
    assert run_text(Scripted(Turn("A\n\n", [1] * 9)), budget=9)["finish_reason"] == "length"
    long = Scripted(*[Turn("A\n\n", [1]) for _ in range(400)])
    row = run_text(long, budget=999, rounds=150)
    assert (row["finish_reason"], len(row["response_ids"])) == ("rounds", 300)


def test_handoff_by_text_needs_an_engine_of_turns():
    team = team_schedule("step-text", {"rounds": 3})
    assert schedule_label(team) == "step-text,rounds=3"
    assert engine_settings(team) == {"schedule": "solo"}
    with refused("text-handoff-parameter", name="p"):
        team_schedule("step-text", {"p": 0.5})


def test_training_settings_of_each_protocol():
    assert training_settings("paper") == {
        "cap": 32, "validation": "team", "validation_n": 4, "lambda_jun": 0.0,
    }  # fmt: skip
    code = training_settings("paper-code")
    assert (code["cap"], code["validation"], code["validation_n"]) == (31, "team", 4)
    release = training_settings("release")
    assert (release["cap"], release["validation"], release["validation_n"]) == (31, "senior", 1)
    assert release["steps"] == 2 * ((40_309 - 1_000) // 16)
    assert (release["test_freq"], release["save_freq"]) == (20, 20)
    with refused("protocol-unknown", name="other"):
        training_settings("other")


@pytest.mark.parametrize("given", ["+a.tandem.lambda_jun=0.1", "--tandem.lambda_jun 0.1"])
def test_weight_of_the_juniors_tokens_in_the_policy_loss_is_refused(given: str):
    assert training_settings("paper", given.split())
    with refused("protocol-junior-loss-weight", weight="0.1"):
        training_settings("release", given.split())
    assert training_settings("release", given.replace("0.1", "0").split())
