"""SkyRL's own trainer in tandem: one command, and what it then trains on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("skyrl", reason="SkyRL is not installed")

import torch
from readme import command_with_flag
from support.reading import Readers
from support.records import all_records, recorded
from support.skyrl_run import SkyRLBench, SkyRLRun
from support.trainer_run import assert_stopped

from tandem_plugin import Rule, TandemConfig, TandemRules, Vocabulary
from tandem_plugin._draws import response_draws
from tandem_plugin.seeds import derive_seed
from tandem_plugin.training.checkpoint_note import NOTE
from tandem_plugin.training.command import split_arguments

pytestmark = pytest.mark.timeout(900)
BENCH, STEPS, SEED, LEARNING_RATE, ALONE = SkyRLBench, 2, 7, 1e-3, 0.25
UPDATES = {"trainer__policy_mini_batch_size": 2, "trainer__eval_interval": STEPS}
ASYNCHRONOUS = {
    "trainer__fully_async__enabled": True,
    "trainer__fully_async__max_staleness_steps": 1,
    "trainer__fully_async__num_parallel_generation_workers": 8,
    "trainer__algorithm__policy_loss_type": "rollout_is",
    "trainer__ckpt_interval": 1,
}


@pytest.fixture(scope="module")
def settings(checkpoints: dict[str, Path]) -> dict[str, Any]:
    junior = str(checkpoints["junior"])
    of_readme, _ = split_arguments(command_with_flag("skyrl")[3:])
    return {**of_readme, "cap": 6, "seed": SEED, "junior": junior, "measure_every": 1}


@dataclass(frozen=True)
class Trained:
    """A run, and what its engine recorded."""

    run: SkyRLRun
    record: Path

    def check(self, rule: Rule, calls: int) -> None:
        """Every token of every trained row is what the engine wrote by whom it says.

        calls: how many there were.
        """
        rows = self.run.rollouts()
        segments = [segment for row in rows for segment in row["tandem_segments"]]
        assert len(segments) == calls
        assert len({seed for seed, _, _ in segments}) == len(segments)
        records = recorded(self.record, [seed for seed, _, _ in segments])
        written: list[int] = []
        for row in rows:
            for seed, start, stop in row["tandem_segments"]:
                tokens, authors = row["response_ids"][start:stop], row["authorship"][start:stop]
                assert records[seed]["response_ids"][: stop - start] == tokens
                assert records[seed]["authorship"][: stop - start] == authors
                assert rule.replay(tokens, seed).tolist() == authors
                written += authors
        assert 0.25 < sum(written) / len(written) < 0.8

    def check_batches(self, steps: Iterable[int] = range(1, STEPS + 1)) -> None:
        """What was trained is what was dumped."""
        for step in steps:
            batch = self.run.batch(step)
            rows = [row for row in self.run.rollouts() if row["step"] == step]
            assert len(rows) == len(batch["loss_mask"])
            for number, row in enumerate(rows):
                length = len(row["response_ids"])
                mask = batch["loss_mask"][number]
                assert mask[-length:].int().tolist() == row["authorship"]
                assert not mask[:-length].any()
                assert batch["sequences"][number][-length:].tolist() == row["response_ids"]

    @torch.no_grad()
    def check_log_probs(self, models: Mapping[int, Path]) -> None:
        """The engine's log-probabilities at the senior's tokens are those of Hugging Face.

        models: the policy at each step. SkyRL asks each call for a token (min_tokens=1): its first
        is drawn without the end.
        """
        from transformers import AutoModelForCausalLM

        for step, model in models.items():
            policy = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
            batch = self.run.batch(step)
            own = batch["loss_mask"] > 0
            told, drawn = torch.zeros_like(own, dtype=torch.float32), 0
            rows = [row for row in self.run.rollouts() if row["step"] == step]
            for number, row in enumerate(rows):
                ids = batch["sequences"][number][batch["attention_mask"][number] == 1]
                length = len(row["response_ids"])
                every = policy(ids[None]).logits[0, -length - 1 : -1].log_softmax(-1)
                told[number, -length:] = every.gather(1, ids[-length:, None])[:, 0]
                for _, start, _ in row["tandem_segments"]:
                    end = every[start, policy.config.eos_token_id].exp()
                    told[number, start - length] -= torch.log1p(-end)
                    drawn += int(own[number, start - length])
            assert drawn >= 8
            furthest = float((batch["rollout_logprobs"] - told)[own].abs().max())
            print(f"step {step}: {len(rows)} rows, {int(own.sum())} tokens, {furthest:.1e}")
            assert furthest <= 1e-4
            assert not batch["rollout_logprobs"][~own].any()


@pytest.fixture(scope="module")
def made(
    bench: SkyRLBench, settings: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> Any:
    def run(name: str, tandem: Mapping[str, Any] = {}, **own: Any) -> Trained:
        record = tmp_path_factory.mktemp("record")
        done = bench.run({**settings, "record": str(record), **tandem}, name=name, **own)
        assert done.exit_code == 0, done.log[-5000:]
        return Trained(done, record)

    return run


@pytest.fixture(scope="module")
def trained(made: Any) -> Trained:
    """Two steps of two updates each, and an evaluation by the senior and by the team."""
    rate = {"trainer__policy__optimizer_config__lr": LEARNING_RATE}
    return made("trained", {"validation": "both"}, **UPDATES, **rate)


def test_trained_tokens_are_the_engines_record(trained: Trained, rule: Rule) -> None:
    trained.check(rule, calls=STEPS * 16 * 2)
    trained.check_batches()
    assert "tandem is on: schedule=word" in trained.run.log


def test_engine_and_policy_agree_on_the_seniors_tokens(
    trained: Trained, checkpoints: dict[str, Path]
) -> None:
    assert len(trained.run.steps) == STEPS
    trained.check_log_probs({1: checkpoints["senior"], 2: trained.run.exported(1)})


def test_after_a_sync_the_engine_has_the_policy_and_the_junior(
    trained: Trained, checkpoints: dict[str, Path]
) -> None:
    """What the engine measured in the second step is what Hugging Face computes."""
    readers = Readers.of(trained.run.exported(1), checkpoints["junior"])
    batch = trained.run.batch(2)
    texts = []
    for number, row in enumerate(one for one in trained.run.rollouts() if one["step"] == 2):
        ids = batch["sequences"][number][batch["attention_mask"][number] == 1].tolist()
        for _, start, stop in row["tandem_segments"]:
            first = len(ids) - len(row["response_ids"]) + start
            last = first + stop - start
            texts.append((ids[:first], ids[first:last], row["authorship"][start:stop]))
    expected = readers.means(texts)
    found = trained.run.steps[1]
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, abs=1e-4), name
    before = Readers.of(checkpoints["senior"], checkpoints["junior"]).means(texts)
    assert abs(before["tandem/kl_to_junior"] - expected["tandem/kl_to_junior"]) > 1e-3


def loop_of_updates(batch: Mapping[str, Any], model: Path, whole: bool) -> tuple[Any, list[float]]:
    """The same two updates: a plain loop over the senior's tokens, AdamW, and a clipped norm.

    whole: over all tokens of the responses instead.
    """
    from transformers import AutoModelForCausalLM

    policy = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=LEARNING_RATE, weight_decay=0.01)
    mask = batch["response_mask" if whole else "loss_mask"]
    norms = []
    for rows in (range(8), range(8, 16)):
        count = mask[list(rows)].sum()
        total: Any = 0
        for i in rows:
            ids = batch["sequences"][i][batch["attention_mask"][i] == 1]
            length, padding = int(batch["response_mask"][i].sum()), mask.shape[1]
            logits = policy(ids[None]).logits[0, -length - 1 : -1].log_softmax(-1)
            for j in range(length):
                at = padding - length + j
                if mask[i, at]:
                    now = logits[j, ids[-length + j]]
                    ratio = (now - batch["action_log_probs"][i, at]).exp()
                    gain = batch["advantages"][i, at]
                    total = total - torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain) / count
        optimizer.zero_grad()
        total.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)))
        optimizer.step()
    return policy, norms


def test_a_step_is_that_of_a_loop_over_the_seniors_tokens(
    trained: Trained, checkpoints: dict[str, Path]
) -> None:
    from transformers import AutoModelForCausalLM

    batch = trained.run.batch(1)
    policy = AutoModelForCausalLM.from_pretrained(trained.run.exported(1), dtype=torch.float32)

    def furthest(other: Any) -> float:
        pairs = zip(policy.parameters(), other.parameters(), strict=True)
        return max(float((a - b).detach().abs().max()) for a, b in pairs)

    own, norms = loop_of_updates(batch, checkpoints["senior"], whole=False)
    assert trained.run.steps[0]["policy/grad_norm"] == pytest.approx(sum(norms) / 2, rel=1e-4)
    assert furthest(own) <= 1e-4
    assert furthest(loop_of_updates(batch, checkpoints["senior"], whole=True)[0]) > 1e-3


def test_log_has_the_teams_metrics(trained: Trained) -> None:
    (first, _) = trained.run.steps
    rows = [row for row in trained.run.rollouts() if row["step"] == 1]
    written = sum(stop - start for row in rows for _, start, stop in row["tandem_segments"])
    bits = sum(bit for row in rows for bit in row["authorship"])
    assert first["tandem/senior_share"] == pytest.approx(bits / written)
    assert first["tandem/junior_cross_entropy"] > 0
    mean = sum(row["score"] for row in rows) / len(rows)
    assert mean == pytest.approx(first["reward/avg_raw_reward"])


def test_senior_and_team_answer_the_evaluation(trained: Trained) -> None:
    (last,) = [one for one in trained.run.metrics if "eval/all/avg_score" in one]
    assert last["step"] == STEPS
    assert last["eval/all/avg_score"] != last["team/eval/all/avg_score"]
    lines = [one for f in trained.record.glob("*.jsonl") for one in f.read_text().splitlines()]
    proof = 1
    assert len(lines) == STEPS * 16 * 2 + 16 * 2 + proof  # none of the senior's alone


def test_exported_policy_says_how_it_was_made(
    trained: Trained, checkpoints: dict[str, Path]
) -> None:
    note = json.loads((trained.run.exported(STEPS) / NOTE).read_text())
    assert note["start"] == str(checkpoints["senior"])


@pytest.mark.long
def test_step_wise_rows_with_a_share_alone_are_the_engines_record(
    made: Any, checkpoints: dict[str, Path]
) -> None:
    """A row for each turn, of which the senior writes a quarter from beginning to end."""
    config = TandemConfig.from_mapping({"schedule": "word", "cap": 6, "alone": ALONE})
    rule = TandemRules(config, Vocabulary.from_path(checkpoints["senior"])).default
    done = made(
        "stepwise",
        {"alone": ALONE},
        generator__step_wise_trajectories=True,
        trainer__algorithm__advantage_estimator="rloo",
        trainer__algorithm__loss_reduction="prompt_mean",
    )
    done.check(rule, calls=STEPS * 16 * 2)
    done.check_batches()
    rows = done.run.rollouts()
    assert all(len(row["tandem_segments"]) == 1 for row in rows)
    alone = [row for row in rows if response_draws([row["tandem_segments"][0][0]])[0] < ALONE]
    assert 0 < len(alone) < len(rows)
    for row in alone:
        ((_, start, stop),) = row["tandem_segments"]
        assert all(row["authorship"][start:stop])
    done.check_log_probs({1: checkpoints["senior"], 2: done.run.exported(1)})


@pytest.mark.long
def test_dynamic_sampling_with_importance_correction_trains_the_engines_record(
    made: Any, bench: SkyRLBench, rule: Rule, checkpoints: dict[str, Path]
) -> None:
    """Of every four prompts, one asks for what no response has."""
    rows = [json.loads(line) for line in (bench.folder / "train.jsonl").read_text().splitlines()]
    for row in rows[::4]:
        row["letter"] = "\N{SNOWMAN}"
    file = bench.folder / "some_unsolved.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = made(
        "dynamic",
        data__train_data=f"['{file}']",
        trainer__algorithm__dynamic_sampling__type="filter",
        trainer__algorithm__off_policy_correction__tis_ratio_type="token",
        trainer__algorithm__loss_reduction="sequence_mean",
        trainer__algorithm__advantage_estimator="reinforce++",
    )
    assert all(prompt_of(row) % 4 for row in done.run.rollouts())
    done.check(rule, calls=STEPS * 16 * 2)
    done.check_batches()
    done.check_log_probs({1: checkpoints["senior"], 2: done.run.exported(1)})
    proof = 1
    assert len(all_records(done.record)) > STEPS * 16 * 2 + proof


def prompt_of(row: Mapping[str, Any]) -> int:
    """The number of a row's prompt, which SkyRL knows it by as well."""
    return int(re.findall(r"Write of the \w+ (\d+)\.", row["input"])[0])


@pytest.mark.long
def test_asynchronous_trainer_trains_the_engines_record_and_resumes_its_seeds(
    made: Any, bench: SkyRLBench, rule: Rule, checkpoints: dict[str, Path]
) -> None:
    """The last two steps are a second run's, which resumes the first as if it had been killed.

    Where ``max_training_steps`` ends a run, SkyRL's last checkpoint is named after the next step.
    """
    folder = bench.folder / "resumed"
    first = made("asynchronous", folder=folder, **ASYNCHRONOUS)
    more = {
        "trainer__max_training_steps": 2 * STEPS,
        "trainer__resume_mode": "from_path",
        "trainer__resume_path": folder / "checkpoints" / f"global_step_{STEPS}",
    }
    second = made("resumed", folder=folder, **{**ASYNCHRONOUS, **more})
    for done, steps in ((first, [1, 2]), (second, [3, 4])):
        done.check(rule, calls=STEPS * 16 * 2)
        done.check_batches(steps)
        assert [one["step"] for one in done.run.steps] == steps
    first.check_log_probs({1: checkpoints["senior"]})
    second.check_log_probs({3: first.run.exported(STEPS)})
    seen = set()
    for row in [*first.run.rollouts(), *second.run.rollouts()]:
        seeds = [seed for seed, _, _ in row["tandem_segments"]]
        places = [("training", "epoch", 0, str(prompt_of(row)), sample) for sample in range(4)]
        (place,) = [p for p in places if derive_seed(SEED, *p, 0) == seeds[0]]
        assert seeds == [derive_seed(SEED, *place, call) for call in range(2)]
        seen.add(place)
    assert len(seen) == 2 * STEPS * 16


SABOTAGES = {
    "without_narrowing": "mask-changed-after-check",
    "complemented": "mask-changed-after-check",
    "responses_from_elsewhere": "row-without-authorship",
    "loop_moved": "patched-symbol-changed",
    "update_moved": "patched-symbol-changed",
    "generator_not_asked_for": "skyrl-hook-moved",
    "trainer_not_asked_for": "skyrl-trainer-not-in-tandem",
    "plain_engines": "server-not-in-tandem",
    "foreign_rules": "server-rejects-tandem",
}


@pytest.mark.parametrize(
    ("sabotage", "code"),
    [
        pytest.param(*one, marks=() if one[0] == "complemented" else pytest.mark.long)
        for one in SABOTAGES.items()
    ],
)
def test_run_stops_before_the_first_update(
    bench: SkyRLBench, settings: dict[str, Any], sabotage: str, code: str
) -> None:
    run = bench.run(settings, sabotage=sabotage, name=sabotage, watch=f"[{code}]")
    assert_stopped(run, f"[{code}]")
