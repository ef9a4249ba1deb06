"""verl's tool loop and a user's own loops in tandem: several generate calls in one trajectory."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl", reason="verl is not installed")

import torch
from support import agent_loops, tool
from support.records import all_records
from support.verl_run import TANDEM, VerlBench, VerlRun

from tandem_plugin import Rule
from tandem_plugin.seeds import derive_seed

pytestmark = [pytest.mark.timeout(1200), pytest.mark.long]
STEPS, SEED, LENGTH = 2, 7, 96
AGENTS = ("tool_agent", "two_calls")


@pytest.fixture(scope="module")
def run(
    tmp_path_factory: pytest.TempPathFactory, checkpoints: dict[str, Path], captured: Path
) -> VerlRun:
    """Every step's four prompts: two through the tool loop, two through a loop of the user's."""
    folder = tmp_path_factory.mktemp("verl")
    bench = VerlBench.make(folder, checkpoints["senior"], agents=AGENTS)
    loops = folder / "loops.yaml"
    loops.write_text(agent_loops.CONFIG)
    rollout = "actor_rollout_ref.rollout"
    done = bench.run(
        f"{TANDEM}.schedule=word",
        f"{TANDEM}.cap=6",
        f"{TANDEM}.seed={SEED}",
        f"{TANDEM}.junior={checkpoints['junior']}",
        f"{TANDEM}.record={captured / 'engine'}",
        f"{rollout}.agent.agent_loop_config_path={loops}",
        f"{rollout}.multi_turn.function_tool_path={tool.__file__}",
        f"{rollout}.multi_turn.format={agent_loops.PARSER}",
        f"{rollout}.multi_turn.max_assistant_turns={agent_loops.TURNS}",
        "data.shuffle=False",
        f"data.max_response_length={LENGTH}",
        f"{rollout}.max_model_len=192",
        f"trainer.total_training_steps={STEPS}",
        hook=["capture_update", "agent_loops"],
        environment={"TANDEM_TEST_CAPTURE": str(captured)},
        name="loops",
    )
    assert done.exit_code == 0, done.log[-3000:]
    return done


@pytest.fixture(scope="module")
def rows(run: VerlRun) -> dict[int, list[dict[str, Any]]]:
    """The dumped rows of every step."""
    return {step: run.rollouts(step) for step in range(1, STEPS + 1)}


def places(number: int) -> dict[int, tuple[str, int]]:
    """The agent loop and number of every generate call of a step, by its seed."""
    return {
        derive_seed(SEED, "training", number, "row", row, session, call): (AGENTS[row % 2], call)
        for row in range(4)
        for session in range(2)
        for call in range(3)
    }


def test_every_call_has_a_seed_of_its_own(rows: dict[int, list[dict[str, Any]]]) -> None:
    for step, dumped in rows.items():
        known = places(step)
        calls = [[known[seed] for seed, *_ in row["tandem_segments"]] for row in dumped]
        counts = Counter(tuple(call) for call in calls)
        # The draft of two_calls was dropped, and its seed with it.
        assert counts.pop((("two_calls", 1), ("two_calls", 2))) == 4
        assert {len(calls) for calls in counts} <= {1, 2, 3}
        assert max(len(calls) for calls in counts) == 3
        for calls_of_tool in counts:
            expected = [("tool_agent", call) for call in range(len(calls_of_tool))]
            assert list(calls_of_tool) == expected
        assert [row["tandem_seed"] for row in dumped] == [
            row["tandem_segments"][0][0] for row in dumped
        ]


def test_every_segment_replays_and_nobody_wrote_the_rest(
    rows: dict[int, list[dict[str, Any]]], rule: Rule, captured: Path
) -> None:
    records = all_records(captured / "engine")
    recorded = {record["tandem_seed"]: record["authorship"] for record in records}
    for row in (row for dumped in rows.values() for row in dumped):
        rest = row["authorship"].copy()
        for seed, start, stop in row["tandem_segments"]:
            replayed = rule.replay(row["response_ids"][start:stop], seed).tolist()
            assert row["authorship"][start:stop] == replayed
            assert recorded[seed][: stop - start] == replayed
            rest[start:stop] = [0] * (stop - start)
        assert not any(rest)
    assert any(
        sum(stop - start for _, start, stop in row["tandem_segments"]) < len(row["response_ids"])
        for row in rows[1]
    )


def test_rollout_and_actor_agree_on_every_trained_token(run: VerlRun) -> None:
    differences = [step["training/rollout_probs_diff_max"] for step in run.steps]
    assert len(differences) == STEPS
    assert max(differences) <= 1e-6


def test_tool_outputs_and_the_juniors_tokens_contribute_exactly_zero(
    rows: dict[int, list[dict[str, Any]]], captured: Path
) -> None:
    def padded(bits: list[int]) -> tuple[int, ...]:
        return tuple(bits + [0] * (LENGTH - len(bits)))

    # verl fills batches with rows that train nothing: only what is trained on is compared.
    wanted = Counter(padded(row["authorship"]) for row in rows[1] if any(row["authorship"]))
    masks: Counter[tuple[int, ...]] = Counter()
    files = sorted(captured.glob("loss-*.pt"), key=lambda file: int(file.stem.split("-")[1]))
    for file in files:
        loss = torch.load(file)
        mask = loss["response_mask"].bool()
        assert not loss["gradient"][~mask].any()
        if sum(masks.values()) < sum(wanted.values()):  # those of the first step
            masks.update(padded(bits) for bits in mask.int().tolist() if any(bits))
    assert masks == wanted
