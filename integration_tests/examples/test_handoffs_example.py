"""The example of schedules that the text decides: on both runners, drafted, and trained."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support.calling_models import installed_handoffs, make_calling_model
from support.engine import RUNNERS, tandem_engine
from support.records import recorded

pytestmark = [pytest.mark.timeout(1800), pytest.mark.long]

CALL = {"schedule": "call", "most": 4, "calls": 3}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """Two models that call, in a process that finds the example."""
    folder = tmp_path_factory.mktemp("calling")
    with installed_handoffs(folder):
        yield {
            name: make_calling_model(folder / name, seed)
            for name, seed in (("senior", 1), ("junior", 2))
        }


def authors_by_hand(pieces: list[str]) -> list[int]:
    """Who wrote each token, by the text that the senior wrote until then."""
    authors, left, made, text = [], 0, 0, ""
    for piece in pieces:
        authors.append(int(left == 0))
        if left:
            left -= 1
            continue
        text += piece
        if command := re.search(r"<call>(\d{1,3})</call>\Z", text):
            text = ""
            if int(command[1]) and made < CALL["calls"]:
                left, made = min(int(command[1]), int(CALL["most"])), made + 1
    return authors


def check(rows: list[dict[str, Any]], model: Path) -> int:
    """That rows have the authors of the reading by hand; returns how many calls they hold."""
    from transformers import AutoTokenizer

    tokenizer, calls = AutoTokenizer.from_pretrained(model), 0
    for row in rows:
        pieces = tokenizer.convert_ids_to_tokens(row["response_ids"])
        expected = authors_by_hand([piece.replace("Ġ", " ") for piece in pieces])
        assert row["authorship"] == expected
        spans = "".join(map(str, expected))
        calls += len(re.findall("0+", spans))
        for handoff in re.finditer("10", spans):  # the command's own tokens are the senior's
            assert pieces[handoff.start()] == "</call>"
    return calls


@pytest.mark.parametrize("mode", ["lockstep", "speculative"])
@pytest.mark.parametrize("runner", RUNNERS)
def test_engines_hand_off_where_the_text_calls(
    runner: str, mode: str, models: dict[str, Path], tmp_path: Path
) -> None:
    """More requests than slots, and some responses continue others.

    Rounds of several tokens write beyond a response's end, where they are recorded and dropped.
    """
    if mode == "speculative" and runner == "v1":
        pytest.skip("the speculative mode runs on V2")
    from vllm import SamplingParams

    settings = {**CALL, "mode": mode, "junior": str(models["junior"]), "record": str(tmp_path)}
    begun = [5, 6, 7]
    with tandem_engine(runner, models["senior"], settings, max_num_seqs=16) as llm:

        def generate(requests: list[tuple[list[int], dict[str, Any]]]) -> list[list[int]]:
            params = [
                SamplingParams(
                    temperature=1.0, max_tokens=60, ignore_eos=True, extra_args={"tandem": tandem}
                )
                for _, tandem in requests
            ]
            prompts = [{"prompt_token_ids": begun + prefix} for prefix, _ in requests]
            outputs = llm.generate(prompts, params, use_tqdm=False)
            return [list(output.outputs[0].token_ids) for output in outputs]

        first = generate([([], {"seed": seed}) for seed in range(40)])
        cuts = [response[: 7 + seed % 13] for seed, response in enumerate(first[:12])]
        wire = {"prompt_length": len(begun)}
        generate([(cut, {"seed": 100 + seed, **wire}) for seed, cut in enumerate(cuts)])
    rows = recorded(tmp_path, [*range(40), *range(100, 112)])
    assert [rows[seed]["response_ids"][:60] for seed in range(40)] == first
    for seed, cut in enumerate(cuts):
        assert rows[100 + seed]["response_ids"][: len(cut)] == cut
    assert check(list(rows.values()), models["senior"]) > 20


def test_verl_trains_the_commands_and_not_the_calls(
    models: dict[str, Path], tmp_path: Path
) -> None:
    pytest.importorskip("verl", reason="verl is not installed")
    from support.verl_run import TANDEM, VerlBench

    captured = tmp_path / "captured"
    run = VerlBench.make(tmp_path / "verl", models["senior"]).run(
        *(f"{TANDEM}.{name}={value}" for name, value in CALL.items()),
        f"{TANDEM}.junior={models['junior']}",
        "trainer.total_training_steps=2",
        hook="capture_update",
        environment={"TANDEM_TEST_CAPTURE": str(captured)},
    )
    assert run.exit_code == 0, run.log[-3000:]
    rows = [row for step in (1, 2) for row in run.rollouts(step)]
    calls = check(rows, models["senior"])
    assert calls > 2
    first = run.steps[0]
    spans = sum(
        len(re.findall("0+", "".join(map(str, row["authorship"])))) for row in run.rollouts(1)
    )
    assert first["tandem/junior_spans_per_response"] == pytest.approx(spans / 8)
    authors = sorted(row["authorship"] for row in rows)
    masks = []
    for file in captured.glob("loss-*.pt"):
        loss = torch.load(file)
        mask = loss["response_mask"].int()
        assert loss["gradient"][mask == 0].abs().max() == 0
        masks += mask.tolist()
    # Each trained mask is a row's authorship, padded: the tokens of commands are in it.
    padded = sorted(row + [0] * (len(masks[0]) - len(row)) for row in authors)
    assert sorted(masks) == padded


def test_trl_trains_by_the_same_authors(models: dict[str, Path], tmp_path: Path) -> None:
    pytest.importorskip("trl.scripts", reason="TRL is not installed")
    from support.trl_run import TRLBench

    settings = {**CALL, "junior": str(models["junior"]), "record": str(tmp_path / "record")}
    run = TRLBench.make(tmp_path / "trl", models["senior"]).run(
        settings, max_steps=2, max_completion_length=32, per_device_train_batch_size=8
    )
    assert run.exit_code == 0, run.log[-3000:]
    assert len(run.steps) == 2
    files = sorted((run.folder / "rollouts").glob("*.jsonl"))
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert check(rows, models["senior"]) > 2
    records = recorded(tmp_path / "record", [row["tandem_seed"] for row in rows])
    # An engine records a response at the step after its end: the last ones may have none.
    known = [row for row in rows if row["tandem_seed"] in records]
    assert 2 * len(known) >= len(rows)
    for row in known:
        assert records[row["tandem_seed"]]["authorship"] == row["authorship"]
    assert all(step["tandem/tokens_per_junior_span"] > 0 for step in run.steps)
