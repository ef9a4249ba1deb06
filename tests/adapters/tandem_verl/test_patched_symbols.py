"""The two symbols of verl that a run in tandem finds changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from omegaconf import OmegaConf
from verl_hooks import EVERY
from verl_stand_ins import IMITATING

PROGRAM = """
import importlib, json, sys
from omegaconf import OmegaConf

modules, run = json.loads(sys.stdin.read())
for module in modules:
    importlib.import_module(module)

def symbols():
    found = {}
    for name, module in list(sys.modules.items()):
        if not name.startswith("verl."):
            continue
        for key, value in list(vars(module).items()):
            found[f"{name}.{key}"] = value
            if isinstance(value, type) and value.__module__ == name:
                found |= {f"{name}.{key}.{k}": v for k, v in vars(value).items()}
    return found

def changed(before):
    after = symbols()
    return sorted(name for name, value in before.items() if after[name] is not value)

before = symbols()
from tandem_verl import engine, plugin
from tandem_verl.configuration import trainer_class
from tandem_verl.settings import MODES
from tandem_verl.trainer import TrainerInTandem
from verl.utils.config import validate_config
from verl.trainer.ppo.v1 import get_trainer_cls

def validated(config):
    try:
        validate_config(config, False, False)
    except (AttributeError, AssertionError):
        pass  # verl's own part of it, which comes last, wants a whole configuration

config = OmegaConf.create(run)
validated(config)
assert get_trainer_cls(config.trainer.v1.trainer_mode).__name__ == "TandemTrainer_sync"
for mode in MODES:
    assert issubclass(trainer_class(get_trainer_cls(mode)), TrainerInTandem)
engine.register_replica()
from tandem_verl import loss
print("FOUND", json.dumps(changed(before)))
"""


def test_two_symbols_are_patched() -> None:
    """Whatever of verl was loaded before: compared name by name."""
    modules = [
        *{module for module, _, _ in EVERY},
        "verl.trainer.main_ppo",
        "verl.trainer.ppo.ray_trainer",
        "verl.trainer.ppo.padding_utils",
        "verl.workers.engine_workers",
        "verl.workers.engine.fsdp.transformer_impl",
        "verl.workers.rollout.llm_server",
    ]
    given = [modules, OmegaConf.to_container(IMITATING)]
    environment = {
        "VERL_USE_EXTERNAL_PLUGINS": "none",
        "VERL_USE_EXTERNAL_MODULES": "tandem_verl.on_cpu",
    }
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    (line,) = [one for one in ran.stdout.splitlines() if one.startswith("FOUND")] or [ran.stderr]
    assert json.loads(line.removeprefix("FOUND")) == [
        "verl.trainer.main_ppo.run_ppo",
        "verl.utils.config.validate_config",
    ]
