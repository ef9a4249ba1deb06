"""Loops of the user's that return several outputs per session, below a manager of the user's own.

One rewrites its history; the other is the gateway that verl documents for agent frameworks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl", reason="verl is not installed")

import torch
from support import agent_loops
from support.verl_run import TANDEM, VerlBench, VerlRun

from tandem_plugin import Rule

pytestmark = [pytest.mark.timeout(1200), pytest.mark.long]
STEPS, SESSIONS = 2, 8


@pytest.fixture(scope="module")
def run(
    tmp_path_factory: pytest.TempPathFactory, checkpoints: dict[str, Path], captured: Path
) -> VerlRun:
    folder = tmp_path_factory.mktemp("verl")
    bench = VerlBench.make(folder, checkpoints["senior"], agents=("two_outputs", "gateway"))
    loops = folder / "loops.yaml"
    loops.write_text(agent_loops.CONFIG)
    agent = "actor_rollout_ref.rollout.agent"
    done = bench.run(
        *(f"{TANDEM}.schedule=word", f"{TANDEM}.cap=6"),
        f"{TANDEM}.junior={checkpoints['junior']}",
        f"{agent}.agent_loop_config_path={loops}",
        f"+{agent}.agent_loop_manager_class=support.own_manager.OwnManager",
        "data.shuffle=False",  # prompts go through both loops in turn
        f"trainer.total_training_steps={STEPS}",
        hook="capture_update",
        environment={"TANDEM_TEST_CAPTURE": str(captured)},
        name="sessions",
    )
    assert done.exit_code == 0, done.log[-3000:]
    return done


def test_users_own_manager_sent_the_prompts(run: VerlRun) -> None:
    assert run.log.count("OwnManager sends 4 prompts") == STEPS


def mask_of(row: dict[str, Any], rule: Rule) -> tuple[int, ...]:
    """The senior's tokens of an output's calls by their replay, up to the last of them."""
    mask = [0] * len(row["response_ids"])
    for seed, start, stop in row["tandem_segments"]:
        mask[start:stop] = rule.replay(row["response_ids"][start:stop], seed).tolist()
    return tuple(mask[: 1 + max((place for place, bit in enumerate(mask) if bit), default=-1)])


def test_every_output_is_trained_on_with_its_own_authors(run: VerlRun, rule: Rule) -> None:
    assert len(run.steps) == STEPS
    assert all(step["actor/grad_norm"] > 0 for step in run.steps)
    for step in range(1, STEPS + 1):
        sessions: dict[str, list[dict[str, Any]]] = defaultdict(list)
        seeds = []
        for row in run.rollouts(step):
            sessions[row["uid"].rpartition("_")[0]].append(row)
            for seed, start, stop in row["tandem_segments"]:
                part = row["response_ids"][start:stop]
                assert row["authorship"][start:stop] == rule.replay(part, seed).tolist()
                seeds.append(seed)
        assert len(set(seeds)) == len(seeds)
        sizes = Counter(len(outputs) for outputs in sessions.values())
        assert sizes == {2: SESSIONS // 2, 3: SESSIONS // 2}
        for outputs in sessions.values():
            assert len({row["score"] for row in outputs}) == 1
            calls = sorted(len(row["tandem_segments"]) for row in outputs)
            assert calls == ([1, 1] if len(outputs) == 2 else [1, 1, 2])


def test_every_output_learns_from_its_sessions_reward(
    run: VerlRun, rule: Rule, captured: Path
) -> None:
    """Its senior's tokens have the advantage of the session among those of the prompt."""
    rows = run.rollouts(1)
    scores: dict[str, dict[str, float]] = defaultdict(dict)
    for row in rows:
        prompt, session, _ = row["uid"].rsplit("_", 2)
        scores[prompt][session] = row["score"]
    expected = []
    for row in rows:
        prompt, session, _ = row["uid"].rsplit("_", 2)
        others = torch.tensor(list(scores[prompt].values()), dtype=torch.float64)
        advantage = float((scores[prompt][session] - others.mean()) / (others.std() + 1e-6))
        if mask := mask_of(row, rule):
            expected.append((mask, advantage))

    files = sorted(captured.glob("loss-*.pt"), key=lambda file: int(file.stem.split("-")[1]))
    losses = [torch.load(file) for file in files[: len(files) // STEPS]]
    found = []
    for loss in losses:
        for mask, advantages in zip(loss["response_mask"].int(), loss["advantages"], strict=True):
            if mask.any():
                bits = tuple(mask[: int(mask.nonzero()[-1]) + 1].tolist())
                (advantage,) = set(advantages[mask.bool()].tolist())
                found.append((bits, advantage))
    assert [mask for mask, _ in sorted(found)] == [mask for mask, _ in sorted(expected)]
    assert [one for _, one in sorted(found)] == pytest.approx([one for _, one in sorted(expected)])
    assert any(advantage for _, advantage in found)

    first = losses[:2]  # the mini-batch before the first update
    tokens = sum(int(loss["response_mask"].sum()) for loss in first)
    for loss in first:
        gradient = -loss["advantages"] * loss["response_mask"] / tokens
        torch.testing.assert_close(loss["gradient"], gradient, rtol=1e-5, atol=1e-8)
