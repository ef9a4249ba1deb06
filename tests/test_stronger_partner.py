"""The example with a stronger partner: its loss against a plain loop, and its command."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
sys.path += [str(EXAMPLES / name) for name in ("", "study")]

torch = pytest.importorskip("torch", reason="the loop is PyTorch")
pytest.importorskip("transformers", reason="its tokenizer is Hugging Face's")

from light.generate import generate  # noqa: E402
from light.model import LanguageModel, Shape  # noqa: E402
from light.task import LONGEST, Task  # noqa: E402
from stronger_partner import methods, run, training  # noqa: E402


def test_loss_is_that_of_a_plain_loop_over_the_seniors_and_the_partners_tokens() -> None:
    task = Task()
    senior, partner = (LanguageModel(Shape(task.size)).eval() for _ in range(2))
    rule = training._rules(task, methods.METHODS[1]).default  # type: ignore[union-attr]
    prompts = task.prompts(list(training.held_out(6)))
    noise = torch.Generator().manual_seed(0)
    made = generate(senior, partner, prompts, LONGEST, task.end, noise, rule, list(range(6)))
    weights = torch.randn(made.written.shape, generator=noise)
    chosen = torch.tensor([4, 0, 3])
    method = methods.Method("both", imitation=0.3)
    got = training._loss(senior, made, chosen, weights[chosen], method, 0.2)

    own, others = [], []
    for row in chosen.tolist():
        ids = made.ids[row]
        log_probs = senior(ids[None, :-1])[0].log_softmax(-1)
        for place in range(int(made.lengths[row])):
            at = made.prompt_length + place
            log_prob = log_probs[at - 1, ids[at]]
            if made.senior[row, place]:
                ratio = (log_prob - made.log_probs[row, place]).exp()
                assert float(ratio.detach()) == pytest.approx(1, abs=1e-4)  # as it sampled
                own.append(-ratio * weights[row, place])
            else:
                others.append(-log_prob)
    expected = sum(own) / len(own) + 0.3 * sum(others) / len(others)
    assert float(got.detach()) == pytest.approx(float(expected.detach()), rel=1e-4)


def test_smallest_run_ends_with_the_table_and_trains_nothing_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = torch.get_num_threads()
    arguments = ["--quick", "--seeds", "2", "--out", str(tmp_path)]
    run.main(arguments)
    said = capsys.readouterr().out
    for method in methods.METHODS:
        assert f"\n| {method.name} | " in said

    def again(*_: Any, **__: Any) -> None:
        raise AssertionError("trained twice")

    monkeypatch.setattr(run, "train", again)
    run.main(arguments)
    torch.set_num_threads(threads)
    assert capsys.readouterr().out == said[said.index("| | step 0") :]
