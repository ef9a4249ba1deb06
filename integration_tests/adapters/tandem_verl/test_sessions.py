"""A loop of the user's that returns two outputs per session, below a manager of the user's own."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("verl", reason="verl is not installed")

from support import agent_loops
from support.verl_run import TANDEM, VerlBench, VerlRun

from tandem_plugin import Rule

pytestmark = [pytest.mark.timeout(1200), pytest.mark.long]
STEPS, SESSIONS = 2, 8


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, checkpoints: dict[str, Path]) -> VerlRun:
    folder = tmp_path_factory.mktemp("verl")
    bench = VerlBench.make(folder, checkpoints["senior"], agents=("two_outputs",))
    loops = folder / "loops.yaml"
    loops.write_text(agent_loops.CONFIG)
    agent = "actor_rollout_ref.rollout.agent"
    done = bench.run(
        *(f"{TANDEM}.schedule=word", f"{TANDEM}.cap=6"),
        f"{TANDEM}.junior={checkpoints['junior']}",
        f"{agent}.agent_loop_config_path={loops}",
        f"+{agent}.agent_loop_manager_class=support.own_manager.OwnManager",
        f"trainer.total_training_steps={STEPS}",
        name="sessions",
    )
    assert done.exit_code == 0, done.log[-3000:]
    return done


def test_users_own_manager_sent_the_prompts(run: VerlRun) -> None:
    assert run.log.count("OwnManager sends 4 prompts") == STEPS


def test_both_outputs_are_trained_on_with_their_own_authors(run: VerlRun, rule: Rule) -> None:
    assert len(run.steps) == STEPS
    assert all(step["actor/grad_norm"] > 0 for step in run.steps)
    for step in range(1, STEPS + 1):
        rows = run.rollouts(step)
        assert len(rows) == 2 * SESSIONS
        assert len({row["tandem_seed"] for row in rows}) == len(rows)
        for row in rows:
            replayed = rule.replay(row["response_ids"], row["tandem_seed"]).tolist()
            assert row["authorship"] == replayed
        # Each session's grade is on both of its outputs.
        assert all(count % 2 == 0 for count in Counter(row["score"] for row in rows).values())
