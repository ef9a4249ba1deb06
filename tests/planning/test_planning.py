"""Plans: what is planned fits the GPU in every phase, and what does not fit is said."""

from __future__ import annotations

import dataclasses
import importlib.util
import shlex
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planned_models import LLAMA_8B, QWEN3_2B, QWEN3_4B, checkpoint

from tandem_plugin import ConfigError
from tandem_plugin.lab.planning import Checkpoint, Plan, Wanted, make_plan, read_checkpoint
from tandem_plugin.lab.planning.flags import flags
from tandem_plugin.lab.planning.geometry import Geometry
from tandem_plugin.lab.planning.parameters import count_parameters
from tandem_plugin.lab.planning.wanted import GIB, Offload, User


def model(name: str, config: dict[str, Any]) -> Checkpoint:
    geometry = Geometry.of(config, name)
    return Checkpoint(name, geometry, count_parameters(config, geometry) or 0, None, "config.json")


QWEN_4B, QWEN_2B = model("Qwen/Qwen3-4B", QWEN3_4B), model("Qwen/Qwen3-1.7B", QWEN3_2B)


def wanted(**changes: Any) -> Wanted:
    """The paper's run on its machine: two GPUs of 80 GB, the senior its own junior."""
    paper = {
        "senior": QWEN_4B,
        "junior": QWEN_4B,
        "user": "verl",
        "nodes": 1,
        "gpus": 2,
        "memory": 79 * GIB,
        "reserve": 2 * GIB,
        "prompt": 1024,
        "response": 3000,
        "batch": 16,
        "mini_batch": 8,
        "samples": 8,
        "drafts": 0,
        "requests": 256,
        "batched_tokens": 8192,
        "block_size": 16,
        "width": 2,
        "reference": False,
        "tensor_parallel": None,
        "offload": None,
        "kv_memory": None,
    }
    return Wanted(**(paper | changes))


def phases(plan: Plan) -> dict[str, int]:
    """Bytes of one GPU, added up anew."""
    kept, engine = plan.wanted.reserve, plan.engine
    generating = plan.blocks * plan.kv.bytes_per_block + engine.weights + engine.activations
    generating += engine.drafts + kept
    training = plan.training
    if training is None:
        return {"generating": generating}
    batch = plan.micro_batch * plan.wanted.length * training.per_token
    return {
        "generating": generating + training.resting.total + kept,
        "sync": plan.sync,
        "training": training.update.total + training.gathered + batch + kept,
    }


@settings(max_examples=200, deadline=None)
@given(
    memory=st.integers(8, 200),
    gpus=st.sampled_from([1, 2, 4, 8]),
    user=st.sampled_from(get_args(User)),
    response=st.integers(1, 30_000),
    drafts=st.integers(0, 8),
    junior=st.sampled_from([QWEN_4B, QWEN_2B]),
    offload=st.sampled_from([None, *get_args(Offload)]),
    reference=st.booleans(),
)
def test_what_fits_is_within_the_gpu_in_every_phase(
    memory: int, response: int, gpus: int, **changes: Any
) -> None:
    plan = make_plan(wanted(memory=memory * GIB, response=response, gpus=gpus, **changes))
    if not plan.lacks:
        assert max(phases(plan).values()) <= memory * GIB
        assert plan.longest >= plan.wanted.length
        assert plan.at_once >= 1
        assert plan.training is None or plan.micro_batch >= 1
    else:
        assert plan.longest < plan.wanted.length or plan.sync > memory * GIB


def test_the_papers_machine_holds_the_papers_run() -> None:
    plan = make_plan(wanted())
    assert not plan.lacks
    assert (plan.offload, plan.tensor_parallel, plan.engines) == ("none", 1, 2)
    assert plan.training is not None
    share = QWEN_4B.parameters / 2
    states = plan.training.update
    assert states.total == pytest.approx(16 * share, rel=1e-6), "FSDP in float32, with Adam"
    assert plan.training.resting.total == pytest.approx(12 * share, rel=1e-6), "no gradients"
    # Two models of 36 layers, 8 KV heads of 128, keys and values, bfloat16, blocks of 16.
    assert plan.kv.bytes_per_block == 2 * 36 * 2 * 8 * 128 * 2 * 16


def test_states_move_to_the_host_only_where_they_must() -> None:
    assert make_plan(wanted(gpus=1)).offload == "optimizer"
    assert make_plan(wanted(gpus=1, offload="all")).offload == "all"
    crowded = make_plan(wanted(gpus=2, memory=48 * GIB))
    assert crowded.offload != "none"
    assert not crowded.lacks


@pytest.mark.parametrize("gpus", [1, 2, 8])
@pytest.mark.parametrize("user", ["verl", "openrlhf"])
def test_states_are_sharded_over_all_gpus(user: str, gpus: int) -> None:
    plan = make_plan(wanted(user=user, gpus=gpus, offload="none"))
    assert plan.training is not None
    assert plan.training.update.total == pytest.approx(16 * QWEN_4B.parameters / gpus, rel=1e-6)


def test_adam_in_the_hosts_memory_leaves_weights_alone_on_the_gpu() -> None:
    plan = make_plan(wanted(user="openrlhf", gpus=1, offload="optimizer", reference=True))
    assert plan.training is not None
    assert plan.training.update.total == 4 * QWEN_4B.parameters, "the actor's and the reference's"
    assert plan.host == (14 + 2 + 2) * QWEN_4B.parameters, "and both models of a sleeping engine"


def test_a_reference_of_verls_is_on_the_host() -> None:
    without, with_one = make_plan(wanted()), make_plan(wanted(reference=True))
    assert phases(without) == phases(with_one)
    assert with_one.host - without.host == 4 * QWEN_4B.parameters // 2


def test_an_engine_is_spread_where_one_gpu_is_too_small() -> None:
    eight = model("meta/8B", LLAMA_8B)
    plan = make_plan(wanted(senior=eight, junior=eight, user="rollout", gpus=4, memory=40 * GIB))
    assert not plan.lacks
    assert plan.tensor_parallel == 2
    assert plan.engine.senior == eight.parameters
    assert plan.kv.bytes_per_block == 2 * 32 * 2 * 4 * 128 * 2 * 16, "four of eight KV heads"


def test_the_longest_sequence_fits_and_a_longer_one_does_not() -> None:
    plan = make_plan(wanted(offload="none", tensor_parallel=1, mini_batch=1, samples=2))
    for more, fits in ((0, True), (16, False)):
        changed = dataclasses.replace(plan.wanted, response=plan.longest - 1024 + more)
        assert (not make_plan(changed).lacks) is fits, more


def test_all_responses_of_a_step_are_held_at_once_up_to_the_length_that_is_said() -> None:
    plan = make_plan(wanted(tensor_parallel=1, offload="none"))
    assert plan.longest_of_all > 1024
    for more, held in ((0, True), (16, False)):
        changed = dataclasses.replace(plan.wanted, response=plan.longest_of_all - 1024 + more)
        same = dataclasses.replace(plan, wanted=changed)
        assert (same.at_once >= plan.requests) is held


def test_drafts_take_what_the_engine_sets_aside_for_them() -> None:
    torch = pytest.importorskip("torch")
    from types import SimpleNamespace

    from tandem_plugin.engine.speculative.memory import draft_memory

    asked = wanted(drafts=4, junior=QWEN_2B)
    draft = SimpleNamespace(get_hidden_size=lambda: 2048, dtype=torch.bfloat16)
    config = SimpleNamespace(
        scheduler_config=SimpleNamespace(max_num_seqs=256, max_num_batched_tokens=8192),
        model_config=SimpleNamespace(get_vocab_size=lambda: 151_936, head_dtype=torch.bfloat16),
        speculative_config=SimpleNamespace(num_speculative_tokens=4, draft_model_config=draft),
    )
    theirs = draft_memory(config)
    assert make_plan(asked).engine.drafts == theirs.kept + theirs.a_round - theirs.logits
    assert make_plan(wanted()).engine.drafts == 0


def test_what_does_not_fit_is_said_with_numbers() -> None:
    plan = make_plan(wanted(gpus=1, memory=40 * GIB))
    assert any("An update with one sequence of 4,024 tokens needs" in why for why in plan.lacks)
    alone = make_plan(wanted(user="rollout", gpus=1, memory=16 * GIB))
    assert any("does not hold one sequence of 4,024 tokens" in why for why in alone.lacks)


def test_micro_batches_divide_an_updates_responses() -> None:
    for samples in (3, 8, 12):
        plan = make_plan(wanted(samples=samples, mini_batch=2))
        assert plan.micro_batch >= 1
        assert plan.wanted.per_update() % plan.micro_batch == 0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"gpus": 3}, "64 responses an update, which do not divide over 3 GPUs"),
        ({"mini_batch": 5, "gpus": 1}, "does not divide into updates of 5"),
        ({"tensor_parallel": 3}, "give one of 1, 2"),
        ({"gpus": 8, "nodes": 3}, "do not divide over 3 machines"),
        ({"response": 300_000}, "more than the 262,144 that 'Qwen/Qwen3-4B' reads"),
        ({"response": 50_000, "junior": QWEN_2B}, "more than the 40,960 that 'Qwen/Qwen3-1.7B'"),
    ],
)
def test_what_cannot_be_together_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        wanted(**changes)


def test_an_engine_does_not_leave_its_machine() -> None:
    assert wanted(gpus=16, nodes=4, batch=64, mini_batch=64).groups() == [1, 2, 4]


def verls_configuration(overrides: list[str]) -> Any:
    """verl's own, with overrides of its command line; nothing of verl is imported."""
    verl = importlib.util.find_spec("verl")
    if verl is None or verl.origin is None:
        pytest.skip("verl is not installed")
    from hydra import compose, initialize_config_dir

    folder = str(Path(verl.origin).parent / "trainer" / "config")
    with initialize_config_dir(folder, version_base=None):
        return compose("ppo_trainer", overrides=overrides)


def test_verl_takes_the_flags_of_a_plan() -> None:
    asked = wanted(junior=QWEN_2B, drafts=3, reference=True, gpus=8, nodes=2, mini_batch=16)
    plan = make_plan(asked)
    config = verls_configuration(flags(plan))
    worker = config.actor_rollout_ref
    assert (config.trainer.nnodes, config.trainer.n_gpus_per_node) == (2, 4)
    assert config.data.max_prompt_length + config.data.max_response_length == 4024
    assert worker.rollout.gpu_memory_utilization == plan.utilization
    assert worker.actor.ppo_micro_batch_size_per_gpu == plan.micro_batch
    tandem = worker.rollout.engine_kwargs.vllm.additional_config.tandem
    assert dict(tandem) == {
        "mode": "speculative",
        "drafts": 3,
        "junior": "Qwen/Qwen3-1.7B",
    }


def test_verl_takes_a_folder_with_any_name(tmp_path: Path) -> None:
    place = checkpoint(tmp_path / "step=10, it's (best)", QWEN3_2B)
    plan = make_plan(wanted(senior=read_checkpoint(str(place)), gpus=1))
    config = verls_configuration(shlex.split(flags(plan)[0]))
    assert config.actor_rollout_ref.model.path == str(place)
