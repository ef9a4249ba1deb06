"""A trainer trains the command that calls the junior, and none of the tokens that it asks for."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from adapter_of_the_page import adapter_of_the_page  # noqa: E402
from shared_rollouts import tiny_model  # noqa: E402
from toy_trainer import Sample  # noqa: E402

from tandem_plugin import Vocabulary  # noqa: E402
from tandem_plugin.plugins import using_plugins  # noqa: E402
from tandem_plugin.training.authorship_wire import ResponseAuthorship  # noqa: E402

EXAMPLE = Path(__file__).parents[2] / "examples" / "tandem-plugin-handoffs"
PIECES = ("x", "<call>", "2", "</call>", "y", "<", "call", ">", "</")
RESPONSES = (
    ([0, 1, 2, 3, 4, 4, 0, 0], [1, 1, 1, 1, 0, 0, 1, 1]),
    ([5, 6, 7, 2, 8, 6, 7, 4, 1, 0], [1, 1, 1, 1, 1, 1, 1, 0, 0, 1]),
    ([0, 0, 1, 0, 2, 3, 0], [1] * 7),
    ([1, 2, 3, 0, 0, 1, 2, 3, 0, 0, 0], [1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1]),  # calls: 1
)
"""Responses, and who writes each token; the last one calls once more than it may."""


class Scripted:
    """Answers the calls of each step with the responses, in order."""

    def __init__(self, steps: int) -> None:
        self._answers = iter([tokens for tokens, _ in RESPONSES] * steps)

    def generate(self, prompt_ids: Sequence[int], extra: dict[str, Any]) -> list[int]:
        assert extra["tandem"]["schedule"] == "call"
        return list(next(self._answers))


def loop(number: int) -> Any:
    def play(client: Any) -> Sample:
        response = client.generate([0, 4], {})
        return Sample(number % 2, [0, 4], response, [1] * len(response), float(number < 2))

    return play


@pytest.fixture(autouse=True)
def plugged(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(EXAMPLE)
    import tandem_plugin_handoffs

    with using_plugins(tandem_plugin_handoffs):
        yield
    for name in [name for name in sys.modules if name.startswith("tandem_plugin_handoffs")]:
        del sys.modules[name]


def test_two_steps_train_the_commands_and_nothing_that_they_ask_for() -> None:
    settings = {"schedule": "call", "calls": 1}
    vocabulary = Vocabulary(PIECES, "a test", "plain text")
    trainer = adapter_of_the_page().TandemTrainer(
        settings, vocabulary, Scripted(2), tiny_model(), 12
    )
    for _ in range(2):
        loops = [loop(number) for number in range(len(RESPONSES))]
        samples = [trainer.run(one, number, trainer.client) for number, one in enumerate(loops)]
        for sample, (_, authors) in zip(samples, RESPONSES, strict=True):
            assert sample.mask == authors
            facts = ResponseAuthorship.from_wire(sample.extra["tandem"])
            assert facts.junior_mask.astype(int).tolist() == [1 - author for author in authors]
        before = [parameter.detach().clone() for parameter in trainer.model.parameters()]
        metrics = trainer.update(samples)
        trainer.optimizer.step()
        after = [parameter.detach() for parameter in trainer.model.parameters()]
        assert not all(map(torch.equal, after, before))
        trainer.steps += 1
        assert metrics["tandem/junior_spans_per_response"] == 3 / 4
        assert metrics["tandem/tokens_per_junior_span"] == 2
