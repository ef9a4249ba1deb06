"""An OpenRLHF run that asks for tandem and cannot have it stops, says why, updates nothing."""

from __future__ import annotations

import pytest

pytest.importorskip("openrlhf", reason="OpenRLHF is not installed: make test-openrlhf")

from support.openrlhf_run import OpenRLHFBench
from support.trainer_run import assert_stopped

pytestmark = pytest.mark.timeout(1200)
BENCH = OpenRLHFBench
FLAGS = ["--tandem.schedule", "word"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--algo.advantage.estimator", "gae"], "estimator gae does not work with tandem"),
        (["--algo.kl.target", "6"], "--algo.kl.target 6.0 does not go with tandem"),
        (["--tandem.p", "1.5"], "p=1.5"),
        (["--ds.lora.rank", "8"], "--ds.lora.rank 8 does not go with tandem"),
    ],
)
def test_setting_that_does_not_go_with_tandem(
    bench: OpenRLHFBench, arguments: list[str], sentence: str
) -> None:
    run = bench.run(*FLAGS, *arguments, watch=sentence, name="setting")
    assert_stopped(run, sentence)
    assert "RolloutRayActor" not in run.log


def test_engine_plugin_disabled(bench: OpenRLHFBench) -> None:
    sentence = "the vLLM engine does not run in tandem"
    run = bench.run(*FLAGS, environment={"VLLM_PLUGINS": "none"}, watch=sentence, name="engine")
    assert_stopped(run, sentence)


def test_requests_that_the_engine_refuses(bench: OpenRLHFBench) -> None:
    sentence = "The request was made for the rules"
    run = bench.run(*FLAGS, hooks="foreign_openrlhf", watch=sentence, name="refused")
    assert_stopped(run, sentence)


def test_mask_cut_short_on_its_way(bench: OpenRLHFBench) -> None:
    sentence = "entries of response_mask"
    run = bench.run(*FLAGS, hooks="cut_openrlhf", watch=sentence, name="short")
    assert_stopped(run, sentence)


def test_engine_that_cannot_start(bench: OpenRLHFBench) -> None:
    """OpenRLHF's trainer alone would wait five minutes for it."""
    sentence = "is not a checkpoint: there is no config.json there"
    run = bench.run(*FLAGS, f"--tandem.junior={bench.folder}", watch=sentence, name="start")
    assert_stopped(run, sentence)


def test_settings_for_openrlhfs_own_command(bench: OpenRLHFBench) -> None:
    """Whoever sets the variable alone is told of the command that reads it."""
    sentence = "OpenRLHF's own command does not read that variable"
    run = bench.run(
        command="openrlhf.cli.train_ppo_ray",
        environment={"TANDEM_CONFIG": '{"schedule": "word"}'},
        watch=sentence,
        name="command",
    )
    assert_stopped(run, sentence)


LOSES = {"RAY_RUNTIME_ENV_HOOK": "support.ray_hooks.lose"}
NOT_READY = "was not made ready for it: Ray did not call the job's worker_process_setup_hook"


def test_workers_that_were_not_made_ready(bench: OpenRLHFBench) -> None:
    run = bench.run(*FLAGS, environment=LOSES, watch=NOT_READY, name="workers")
    assert_stopped(run, NOT_READY)


def test_workers_of_a_running_cluster_that_were_not_made_ready(bench: OpenRLHFBench) -> None:
    with bench.cluster(hooks="", environment={}) as address:
        run = bench.run(
            *(*FLAGS, "--train.async_enable"),
            environment={**LOSES, "RAY_ADDRESS": address},
            watch=NOT_READY,
            name="cluster",
        )
    assert_stopped(run, NOT_READY)
