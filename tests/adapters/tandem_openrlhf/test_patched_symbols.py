"""How much of OpenRLHF the adapter changes: its modules are loaded, patched, and compared."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("openrlhf") is None,
    reason="OpenRLHF is not installed: make test-openrlhf",
)

ROOT = Path(__file__).parents[3]

OF_EVERY_RUN = {
    "openrlhf.models.utils.masked_mean",
    "openrlhf.trainer.ppo_trainer.PPOTrainer",
    "openrlhf.trainer.ppo_trainer.compute_eval_metrics",
    "openrlhf.trainer.ppo_trainer_async.GenerateSamplesActor",
    "openrlhf.trainer.ppo_trainer_async.PPOTrainerAsync.__init__",
    "openrlhf.trainer.ppo_trainer_async.TrainingActor",
    "openrlhf.trainer.ppo_trainer_async.VLLMLock.__init__",
    "openrlhf.trainer.ppo_utils.experience_maker.RemoteExperienceMaker",
    "openrlhf.trainer.ppo_utils.samples_generator.SamplesGenerator",
    "openrlhf.trainer.ray.ppo_actor.ActorPPOTrainer",
    "openrlhf.trainer.ray.ppo_actor.PolicyModelActor",
    "openrlhf.trainer.ray.ppo_critic.CriticModelActor",
    "openrlhf.trainer.ray.ppo_critic.CriticPPOTrainer",
    "openrlhf.trainer.ray.vllm_engine.RolloutRayActor",
}

OF_THE_IMITATION_TERM = {
    "openrlhf.trainer.ppo_utils.experience.Experience",
    "openrlhf.trainer.ray.ppo_actor.iter_grad_accum_global_norm",
}

PROGRAM = """
import importlib, json, sys

def symbols():
    found = {}
    for module in [m for name, m in sys.modules.items() if name.startswith("openrlhf")]:
        for name, value in vars(module).items():
            found[f"{module.__name__}.{name}"] = value
            actor = getattr(value, "__ray_metadata__", None)
            kind = value if actor is None else actor.modified_class
            if isinstance(kind, type) and kind.__module__ == module.__name__:
                for member, its in vars(kind).items():
                    found[f"{module.__name__}.{name}.{member}"] = its
    return found

from tandem_openrlhf.patches import apply, patches_of
from tandem_plugin.training.command import running_config

for module, _ in patches_of(running_config()):
    importlib.import_module(module)
loaded = {name for name in sys.modules if name.startswith("tandem_openrlhf")}
before = symbols()
apply()
apply()  # once more: nothing is put in place twice
after = symbols()
changed = {name for name, value in after.items() if before.get(name, after) is not value}
of_classes = {name for name in changed if name.rpartition(".")[0] in changed}
print(json.dumps({"changed": sorted(changed - of_classes), "loaded": sorted(loaded)}))
"""


def patched(**settings: object) -> tuple[set[str], list[str]]:
    """The symbols that a run with these settings changes, and the adapter's modules it loads."""
    on_cpu = ROOT / "examples" / "openrlhf" / "on_cpu"
    without_flash_attn = ROOT / "adapters" / "tandem_openrlhf" / "without_flash_attn"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                [str(on_cpu), str(without_flash_attn), str(ROOT), str(ROOT / "adapters")]
            ),
            "TANDEM_CONFIG": json.dumps({"schedule": "word", **settings}),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    return set(said["changed"]), said["loaded"]


def test_a_run_changes_fourteen_symbols_of_openrlhf() -> None:
    changed, loaded = patched()
    assert changed == OF_EVERY_RUN
    assert len(changed) <= 14
    assert "tandem_openrlhf.patches.loss" not in loaded


def test_imitation_of_the_junior_changes_two_more() -> None:
    assert patched(lambda_jun=0.1)[0] == OF_EVERY_RUN | OF_THE_IMITATION_TERM
