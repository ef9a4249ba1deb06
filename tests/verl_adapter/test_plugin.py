"""The entry point: callbacks after imports, and the refusal left where the adapter cannot be."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tandem_plugin.patching.after_import import _finder, after_import
from tandem_verl.switch import FLAG, tandem_node


def tandem_run(settings: Any = None) -> Any:
    node = {"tandem": settings or {}}
    rollout = {"engine_kwargs": {"vllm": {"additional_config": node}}}
    return {"actor_rollout_ref": {"rollout": rollout}}


PLAIN = {"actor_rollout_ref": {"rollout": {"engine_kwargs": {"vllm": {}}}}}


def test_flag_is_found_in_whole_configurations_and_in_rollout_nodes() -> None:
    assert tandem_node(tandem_run({"p": 0.5})) == {"p": 0.5}
    assert tandem_node(tandem_run()["actor_rollout_ref"]["rollout"]) == {}
    text = {"engine_kwargs": {"vllm": {"additional_config": '{"tandem": {"p": 0.5}}'}}}
    assert tandem_node(text) == {"p": 0.5}
    as_attributes = SimpleNamespace(engine_kwargs=tandem_run()["actor_rollout_ref"]["rollout"])
    assert tandem_node(as_attributes) is None
    nested = {"engine_kwargs": {"vllm": {"additional_config": "[" * 100_000}}}
    for nothing in (PLAIN, None, "text", SimpleNamespace(), {"engine_kwargs": None}, nested):
        assert tandem_node(nothing) is None


def test_flag_is_found_in_verls_own_kind_of_configuration() -> None:
    omegaconf = pytest.importorskip("omegaconf", reason="verl's configuration library")
    for config, expected in ((tandem_run({"p": 0.5}), {"p": 0.5}), (PLAIN, None)):
        node = omegaconf.OmegaConf.create(config)
        omegaconf.OmegaConf.set_struct(node, True)
        assert tandem_node(node) == expected


def test_callback_runs_once_after_the_import_and_at_once_when_it_is_past(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "imported_later.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    seen: list[int] = []
    after_import("imported_later", lambda module: seen.append(module.value))
    after_import("imported_later", lambda module: setattr(module, "value", 2))
    assert seen == []
    module = importlib.import_module("imported_later")
    assert (seen, module.value) == ([1], 2)
    importlib.reload(module)
    assert seen == [1]
    after_import("imported_later", lambda module: seen.append(module.value))
    assert seen == [1, 1]
    assert "imported_later" not in _finder().callbacks


def in_a_new_process(code: str, folder: Path) -> str:
    for name in ("verl", "verl/utils"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "verl/__init__.py").write_text("__version__ = '0.9.1'\n")
    (folder / "verl/utils/__init__.py").write_text("")
    (folder / "verl/utils/config.py").write_text(
        "def validate_config(config, **more):\n    return 'validated'\n"
    )
    program = f"import sys; sys.path.insert(0, {str(folder)!r})\n{code}"
    out = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    return out.stdout + out.stderr


BROKEN = f"""
sys.modules['tandem_verl.agent_loop'] = None  # its import fails
import tandem_verl.plugin
from verl.utils.config import validate_config
print(validate_config(config={PLAIN!r}))
"""


def test_adapter_that_cannot_be_imported_leaves_a_refusal(tmp_path: Path) -> None:
    log = in_a_new_process(f"{BROKEN}validate_config(config={tandem_run()!r})", tmp_path)
    assert "validated" in log
    assert "EngineError: The configuration asks for tandem" in log
    assert FLAG in log
    assert "could not be put in place: ModuleNotFoundError: import of tandem_verl.agent_loop" in log


def test_plain_run_imports_nothing_of_the_adapter_but_the_entry_point(tmp_path: Path) -> None:
    code = f"""
import tandem_verl.plugin
from verl.utils.config import validate_config
print(validate_config(config={PLAIN!r}))
print(sorted(name for name in sys.modules if name.startswith("tandem_verl.")))
"""
    log = in_a_new_process(code, tmp_path)
    assert "validated" in log
    assert "['tandem_verl.plugin', 'tandem_verl.switch']" in log


def test_verl_without_the_function_that_is_wrapped_is_left_to_the_engine(tmp_path: Path) -> None:
    """Which starts in a server of ours alone."""
    in_a_new_process("", tmp_path)
    (tmp_path / "verl/utils/config.py").write_text("def validate(config): return 'renamed'\n")
    program = f"""
import sys; sys.path.insert(0, {str(tmp_path)!r})
import tandem_verl.plugin
from verl.utils.config import validate
print(validate(None))
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.stdout == "renamed\n", ran.stderr


def test_broken_core_leaves_a_refusal_as_well(tmp_path: Path) -> None:
    broken = BROKEN.replace("tandem_verl.agent_loop'] ", "tandem_plugin'] ")
    log = in_a_new_process(f"{broken}validate_config(config={tandem_run()!r})", tmp_path)
    assert "validated" in log
    assert "RuntimeError: The configuration asks for tandem" in log


def test_other_version_of_verl_is_refused_only_when_tandem_is_asked_for(tmp_path: Path) -> None:
    in_a_new_process("", tmp_path)
    code = f"""
import verl
verl.__version__ = "0.12.3"
import tandem_verl.plugin
from verl.utils.config import validate_config
print(validate_config(config={PLAIN!r}))
validate_config(config={tandem_run()!r})
"""
    log = in_a_new_process(code, tmp_path)
    assert "validated" in log
    assert "ConfigError: verl 0.12.3 is not a version that this release is made for" in log


V1 = """
TRAINERS = {}
def register_trainer(name):
    return lambda cls: TRAINERS.setdefault(name, cls)
def get_trainer_cls(name):
    return TRAINERS[name]
class PPOTrainer:
    def __init__(self, config): print("began")
for mode in ("sync", "colocate_async", "separate_async"):
    register_trainer(mode)(type(mode, (PPOTrainer,), {}))
"""


def with_trainers(folder: Path) -> None:
    """A verl whose trainers have lost the methods that tandem extends."""
    in_a_new_process("", folder)
    for name in ("verl/trainer", "verl/trainer/ppo"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("")
    (folder / "verl/trainer/ppo/v1.py").write_text(V1)


def test_method_that_moved_stops_the_trainers_of_tandem_runs_and_no_others(tmp_path: Path) -> None:
    with_trainers(tmp_path)
    code = """
import tandem_verl.plugin
from verl.trainer.ppo.v1 import get_trainer_cls
get_trainer_cls("sync")(None)
get_trainer_cls("tandem_separate_async")(None)
"""
    log = in_a_new_process(code, tmp_path)
    assert log.count("began") == 1
    assert "EngineError: verl.trainer.ppo.v1.separate_async has no method " in log
    assert "EngineError: The configuration asks for tandem" in log


def test_trainers_of_a_process_without_the_adapter_say_why(tmp_path: Path) -> None:
    """The driver may have it, and have named them."""
    with_trainers(tmp_path)
    code = """
sys.modules["tandem_verl.agent_loop"] = None
import tandem_verl.plugin
from verl.trainer.ppo.v1 import get_trainer_cls
get_trainer_cls("sync")(None)
get_trainer_cls("tandem_sync")(None)
"""
    log = in_a_new_process(code, tmp_path)
    assert log.count("began") == 1
    assert "could not be put in place: ModuleNotFoundError: import of tandem_verl.agent_loop" in log


def test_module_that_was_renamed_stops_tandem_runs_and_no_others(tmp_path: Path) -> None:
    pytest.importorskip("omegaconf", reason="verl's configuration library")
    in_a_new_process("", tmp_path)
    whole = tandem_run()
    whole["actor_rollout_ref"]["rollout"]["name"] = "vllm"
    whole["actor_rollout_ref"]["model"] = {"path": str(tmp_path)}
    whole["actor_rollout_ref"]["actor"] = {"strategy": "fsdp", "policy_loss": {}}
    whole["algorithm"] = {"adv_estimator": "grpo"}
    whole["trainer"] = {"v1": {"trainer_mode": "sync"}}
    code = f"""
import tandem_verl.plugin
from omegaconf import OmegaConf
from verl.utils.config import validate_config
print(validate_config(config={PLAIN!r}))
config = OmegaConf.create({whole!r})
validate_config(config=config)
"""
    log = in_a_new_process(code, tmp_path)
    assert "validated" in log
    assert "EngineError: This verl has no module verl.experimental.agent_loop.agent_loop" in log


def test_modules_are_looked_for_without_importing_their_packages(tmp_path: Path) -> None:
    (tmp_path / "heavy/inner/leaf").mkdir(parents=True)
    (tmp_path / "heavy/leftover/__pycache__").mkdir(parents=True)
    for package in ("heavy", "heavy/inner"):
        (tmp_path / package / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (tmp_path / "heavy/inner/module.py").write_text("")
    code = """
from tandem_plugin.patching.after_import import missing_modules
print(missing_modules(["heavy", "heavy.inner", "heavy.inner.module", "heavy.leftover",
    "heavy.inner.renamed", "heavy.gone.module", "absent", "absent.module"]))
"""
    missing = ["heavy.leftover", "heavy.inner.renamed", "heavy.gone.module"]
    assert repr([*missing, "absent", "absent.module"]) in in_a_new_process(code, tmp_path)


def test_module_imported_past_its_patches_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "unseen.py").write_text("")
    code = """
import importlib.util
from tandem_plugin.patching.in_place import check_in_place, is_in_place, put_in_place
put_in_place("Framework", [("unseen", lambda module: None)], "Mend it.")
check_in_place("Framework")
spec = importlib.util.spec_from_file_location("unseen", sys.path[0] + "/unseen.py")
sys.modules["unseen"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["unseen"])
print(is_in_place("Framework"), is_in_place("Other"))
check_in_place("Framework")
"""
    log = in_a_new_process(code, tmp_path)
    assert "True False" in log
    assert "EngineError: unseen was imported in this process in a way" in log


def test_importing_the_plugin_is_light(tmp_path: Path) -> None:
    code = """
import tandem_verl.plugin
print([name for name in ("torch", "vllm", "ray", "transformers") if name in sys.modules])
"""
    assert "[]" in in_a_new_process(code, tmp_path)
