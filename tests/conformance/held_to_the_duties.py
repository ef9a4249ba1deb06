"""The duties of an adapter after its start: subclass, play the trainer, run pytest.

docs/architecture.md lists them; a duty is a test here. A driver runs the adapter's own classes over
a trainer without models: every response is two calls, which :class:`Engine` answers, with feedback
between them. What the adapter hands on is compared with Algorithm 1 over the seeds that the engine
was sent.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from algorithm_1 import algorithm_1
from refused import refused
from shared_rollouts import BOUNDARIES, CAP, PIECES, P

from tandem_plugin import TandemConfig, TandemRules, Vocabulary
from tandem_plugin._draws import draws
from tandem_plugin.engine.wire import MeasureSums
from tandem_plugin.request import OFF
from tandem_plugin.training.authorship_wire import ranges_of
from tandem_plugin.training.calls import NarrowedResponse, Trajectory
from tandem_plugin.training.checkpoint_note import NOTE
from tandem_plugin.training.validation_log import CHANGE, JUNIOR_ALONE

VOCABULARY = Vocabulary(PIECES, "a test")
SETTINGS = {"schedule": "word", "p": P, "cap": CAP, "seed": 3, "measure_every": 0}
PROMPTS, SAMPLES = 2, 2
FEEDBACK = [5, 7]
MODEL = "a/model"


@dataclass(frozen=True)
class Call:
    """What an engine was sent and answered."""

    prompt: list[int]
    request: Any
    extra: Mapping[str, Any]
    tokens: list[int]


class Engine:
    """Answers each call with different tokens, and counts them."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.cross_entropy = 1.0
        self._noise = np.random.default_rng(11)
        self._sums = MeasureSums()

    def answer(self, prompt: Sequence[int], extra: Mapping[str, Any]) -> list[int]:
        tokens: list[int] = self._noise.integers(0, 24, int(self._noise.integers(6, 12))).tolist()
        self.calls.append(Call(list(prompt), extra.get("tandem"), extra, tokens))
        self._sums += MeasureSums(senior_tokens=1.0, junior_cross_entropy=self.cross_entropy)
        return tokens

    def counters(self, _: str = "") -> dict[str, float]:
        return self._sums.to_row()


@dataclass(frozen=True)
class Written:
    """A response as the adapter hands it to its trainer."""

    prompt: list[int]
    response: list[int]
    mask: list[int]
    log_probs: list[float]


def _whole(response: NarrowedResponse, loops: Any) -> NarrowedResponse:
    return replace(response, mask=np.array(loops).astype(np.bool_))


def _complement(response: NarrowedResponse, _: Any) -> NarrowedResponse:
    assert response.facts is not None
    facts = replace(response.facts, senior=tuple(ranges_of(~response.facts.authorship)))
    return replace(response, facts=facts, mask=facts.mask)


def _without_facts(response: NarrowedResponse, _: Any) -> NarrowedResponse:
    return replace(response, facts=None)


SPOILED: dict[str, tuple[Callable[[NarrowedResponse, Any], NarrowedResponse], tuple[str, ...]]] = {
    "not narrowed": (_whole, ("mask-not-seniors",)),
    "the complement": (_complement, ("authorship-replay-differs",)),
    "no facts": (
        _without_facts,
        ("row-without-authorship", "authorship-fields-differ", "trl-sample-without-authorship"),
    ),
}
"""What a defect does to narrowed responses, and the codes of the errors that stop a batch."""


class HeldToTheDuties(ABC):
    """An adapter over a trainer of two prompts with two samples each."""

    absent: ClassVar[Mapping[str, str]] = {}
    """The duties that the trainer has no place for, by the test's name without ``test_``, and why.
    """
    foreign_part: ClassVar[str] = "trainer-class-replaced"
    """The code of the error for a part of the trainer's that is not tandem's."""
    term_missing: ClassVar[str] = ""
    """The code of the error for an update without the term of ``lambda_jun``."""
    turns: ClassVar[int] = 2
    """The calls of a response."""
    extra: ClassVar[Mapping[str, Any]] = {"mine": 1}
    """Extra arguments that the loop itself gives its calls; the request is added to them."""
    accuracy: float = 1.0
    """The mean reward of a validation."""

    @abstractmethod
    def begin(self, step: int = 1, model: str = MODEL, **tandem: Any) -> None:
        """Start or resume a run before ``step``; tandem: settings that override SETTINGS."""

    @abstractmethod
    def generate(self) -> list[Written]:
        """The responses of the next step, in the order of prompts and samples."""

    @abstractmethod
    def admit(self) -> None:
        """Let the adapter check them, before the trainer computes anything from them."""

    @abstractmethod
    def update(self, *, is_changed: bool = False) -> None:
        """Update on them; is_changed: with a changed bit in a mask."""

    @abstractmethod
    def metrics(self) -> Mapping[str, Any]:
        """What the trainer logs of the last step."""

    @abstractmethod
    def dumped(self) -> list[Mapping[str, Any]]:
        """The rows that were written of the last step."""

    @abstractmethod
    def validate(self) -> Mapping[str, Any]:
        """A validation and its metrics."""

    @abstractmethod
    def update_without_term(self) -> None:
        """Update with ``lambda_jun`` in a trainer that leaves the term out."""

    @abstractmethod
    def save(self) -> list[Path]:
        """Save a checkpoint; the folders of it and of its exports."""

    @abstractmethod
    def resume(self, model: str = MODEL, **tandem: Any) -> None:
        """Resume the saved checkpoint in a new run, until both are compared."""

    @abstractmethod
    def engine_settings(self) -> Mapping[str, Any]:
        """Tandem's settings as the trainer's engine gets them."""

    @abstractmethod
    def meet_plain_engine(self) -> None:
        """Begin a run with an engine that is not in tandem."""

    @abstractmethod
    def meet_foreign_part(self) -> None:
        """Begin a run with a part of the trainer's that is not tandem's."""

    @pytest.fixture(autouse=True)
    def _played(
        self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        name = request.node.originalname.removeprefix("test_")
        if name in self.absent:
            pytest.skip(self.absent[name])
        monkeypatch.setattr(Vocabulary, "from_tokenizer", lambda tokenizer: VOCABULARY)
        self.patched, self.folder, self.engine = monkeypatch, tmp_path, Engine()

    def train(self) -> list[Written]:
        """One whole step."""
        responses = self.generate()
        self.admit()
        self.update()
        return responses

    def senior_bits(self, prompt: Sequence[int], response: Sequence[int]) -> list[int]:
        """1 where the senior wrote, by Algorithm 1 with the seeds that the engine was sent."""
        bits: list[int] = []
        while len(bits) < len(response):
            before, following = [*prompt, *response[: len(bits)]], [*response[len(bits) :]]
            (call,) = (
                call
                for call in self.engine.calls
                if call.prompt == before and following[: len(call.tokens)] == call.tokens
            )
            noise = draws(call.request["seed"], len(call.tokens) + 1)
            bits += algorithm_1(call.tokens, BOUNDARIES, CAP, P, noise)
            bits += [0] * len(following[len(call.tokens) :][: len(FEEDBACK)])
        return bits

    def seeds(self) -> list[int]:
        """Those of all calls, in the order of their prompts and tokens."""
        return sorted(call.request["seed"] for call in self.engine.calls)

    @contextmanager
    def spoiled(self, spoil: Callable[[NarrowedResponse, Any], NarrowedResponse]) -> Iterator[None]:
        """Let narrowed responses have a defect."""
        narrow = Trajectory.narrow

        def spoiling(trajectory: Trajectory, responses: Any) -> list[NarrowedResponse]:
            narrowed = narrow(trajectory, responses)
            return [
                spoil(*each) for each in zip(narrowed, (r.mask for r in responses), strict=True)
            ]

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Trajectory, "narrow", spoiling)
            yield

    def test_announce(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.begin()
        self.generate()
        assert f"tandem is on: schedule=word p={P} cap={CAP}" in capsys.readouterr().out

    def test_engine_in_tandem(self) -> None:
        settings = {**self.engine_settings(), "require": False}
        assert TandemConfig.from_mapping(settings) == TandemConfig.from_mapping(SETTINGS)

    def test_engine_is_proved(self) -> None:
        with refused("engine-not-in-tandem", "server-not-in-tandem"):
            self.meet_plain_engine()

    def test_place(self) -> None:
        def seeds_of(steps: int, **begun: Any) -> list[int]:
            self.engine = Engine()
            self.begin(**begun)
            for _ in range(steps):
                self.train()
            return self.seeds()

        both = seeds_of(2)
        assert len({*both}) == len(both) == 2 * self.turns * PROMPTS * SAMPLES
        first, second = seeds_of(1), seeds_of(1, step=2)
        assert sorted([*first, *second]) == both
        assert not {*seeds_of(1, seed=4)} & {*both}

    def test_call(self) -> None:
        self.begin()
        self.generate()
        rule = TandemRules(TandemConfig.from_mapping(SETTINGS), VOCABULARY).default
        assert len(self.engine.calls) == self.turns * PROMPTS * SAMPLES
        for call in self.engine.calls:
            assert call.request == rule.request(call.request["seed"], len(call.prompt)).to_wire()
            assert {**call.extra, **self.extra} == call.extra

    def test_narrow(self) -> None:
        self.begin()
        responses = self.generate()
        for written in responses:
            bits = self.senior_bits(written.prompt, written.response)
            assert written.mask == bits
            assert list(written.log_probs) == [-1.0 if bit else 0.0 for bit in bits]
        assert len(responses) == PROMPTS * SAMPLES
        trained = [bit for written in responses for bit in written.mask]
        assert 0.2 < sum(trained) / len(trained) < 0.8

    @pytest.mark.parametrize("defect", SPOILED)
    def test_admit(self, defect: str) -> None:
        spoil, codes = SPOILED[defect]
        self.begin()
        with refused(*codes), self.spoiled(spoil):
            self.generate()
            self.admit()

    def test_update(self) -> None:
        self.begin()
        self.train()
        self.generate()
        self.admit()
        with refused("mask-changed-after-check", "row-not-checked"):
            self.update(is_changed=True)

    def test_log_metrics(self) -> None:
        self.begin(measure_every=1)
        responses = self.train()
        metrics = self.metrics()
        written = sum(len(r.response) - len(FEEDBACK) * (self.turns - 1) for r in responses)
        share = sum(sum(r.mask) for r in responses) / written
        assert metrics["tandem/senior_share"] == pytest.approx(share)
        assert metrics["tandem/junior_cross_entropy"] == 1.0

    def test_log_rows(self) -> None:
        self.begin(**self.dumping)
        responses = {tuple(written.response): written for written in self.train()}
        rows = self.dumped()
        assert len(rows) == len(responses)
        for row in rows:
            written = responses[tuple(row["response_ids"])]
            assert row["authorship"] == written.mask
            assert row["tandem_segments"][0][0] == row["tandem_seed"]
            assert {"input", "output", "score"} <= row.keys()

    @property
    def dumping(self) -> Mapping[str, Any]:
        """The settings by which rows are written."""
        return {"rollouts": str(self.folder / "rollouts")}

    @pytest.mark.parametrize("validation", ["senior", "team"])
    def test_validate(self, validation: str) -> None:
        self.begin(validation=validation)
        self.validate()
        assert {call.request == OFF for call in self.engine.calls} == {validation == "senior"}

    def test_validate_both(self) -> None:
        self.begin(validation="both")
        names = {*self.validate()}
        answered = [call.request == OFF for call in self.engine.calls]
        half = len(answered) // 2
        assert answered == [True] * half + [False] * half
        assert half == self.turns * PROMPTS
        alone = {name for name in names if not name.startswith("team/")} - {CHANGE}
        assert {f"team/{name}" for name in alone} <= names
        assert any(name.startswith("team/") for name in names)

    def test_validate_all(self) -> None:
        """The junior, which is frozen, answers once, and its accuracy is logged ever after."""
        self.begin(validation="all")
        self.accuracy = 0.75
        metrics = self.validate()
        calls = self.turns * PROMPTS
        answered = [
            call.request if call.request == OFF else call.request["schedule"]
            for call in self.engine.calls
        ]
        assert answered == [OFF] * calls + ["word"] * calls + ["junior"] * calls
        alone = {name for name in metrics if "/" not in name or name.startswith(("val", "eval"))}
        assert {f"junior/{name}" for name in alone} <= {*metrics}
        assert metrics[JUNIOR_ALONE] == 0.75
        self.accuracy = 0.5
        metrics = self.validate()
        assert len(self.engine.calls) == (3 + 2) * calls
        assert (metrics[CHANGE], metrics[JUNIOR_ALONE]) == (-0.25, 0.75)

    def test_fall_of_the_senior_alone_is_reported(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.begin()
        assert self.validate()[CHANGE] == 0
        assert "WARNING" not in capsys.readouterr().err
        self.accuracy = 0.0
        assert self.validate()[CHANGE] == -1
        said = capsys.readouterr().err
        assert "WARNING: the senior alone solves 0.0% of the validation problems, 100.0" in said

    def test_validation_is_checked(self) -> None:
        self.begin(validation="team")
        with refused(*SPOILED["no facts"][1]), self.spoiled(_without_facts):
            self.validate()

    def test_validation_is_not_measured(self) -> None:
        self.begin(measure_every=1, validation="team")
        self.engine.cross_entropy = 100.0
        self.validate()
        self.engine.cross_entropy = 1.0
        self.train()
        assert self.metrics()["tandem/junior_cross_entropy"] == 1.0

    def test_imitate(self) -> None:
        self.begin(lambda_jun=0.1)
        self.generate()
        self.admit()
        with refused(self.term_missing):
            self.update_without_term()

    def test_note(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.begin()
        self.train()
        folders = self.save()
        assert folders
        for folder in folders:
            note = json.loads((folder / NOTE).read_text())
            assert (note["start"], note["settings"]["p"]) == (MODEL, P)
        capsys.readouterr()
        self.resume()
        assert "with changes" not in capsys.readouterr().out
        self.resume(p=0.25)
        assert f"with changes: p=0.25 (was {P}); fingerprint=" in capsys.readouterr().out
        with refused("checkpoint-tandem-dropped"):
            self.resume("a/later/model")

    def test_hook(self) -> None:
        with refused(self.foreign_part):
            self.meet_foreign_part()
