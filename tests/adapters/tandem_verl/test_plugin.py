"""The entry point: callbacks after imports, and the refusal left where the adapter cannot be."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf

from tandem_plugin.patching.after_import import _finder, after_import
from tandem_verl.settings import FLAG, names_tandem, tandem_node


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
    nested = {"engine_kwargs": {"vllm": {"additional_config": "[" * 100_000}}}
    for nothing in (PLAIN, None, "text", SimpleNamespace(), {"engine_kwargs": None}, nested):
        assert tandem_node(nothing) is None
    for config, expected in ((tandem_run({"p": 0.5}), {"p": 0.5}), (PLAIN, None)):
        node = OmegaConf.create(config)
        OmegaConf.set_struct(node, True)
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


VALIDATE = "def validate_config(config, **more):\n    return 'validated'\n"
TRAINERS = """
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


@pytest.fixture
def in_a_new_process(tmp_path: Path) -> Callable[..., str]:
    """Runs code beside a verl of a few lines, which lost most of its own; returns its output."""

    def ran(code: str, validate: str = VALIDATE) -> str:
        for name in ("verl", "verl/utils", "verl/trainer", "verl/trainer/ppo"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "__init__.py").write_text("__version__ = '0.9.1'\n")
        (tmp_path / "verl/utils/config.py").write_text(validate)
        (tmp_path / "verl/trainer/ppo/v1.py").write_text(TRAINERS)
        program = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{code}"
        out = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=False
        )
        return out.stdout + out.stderr

    return ran


NAMED = {**PLAIN, "trainer": {"experiment_name": "tandem", "logger": ["tandem"]}}
RUNS = f"""
import tandem_verl.plugin
from verl.utils.config import validate_config
for plain in ({PLAIN!r}, {NAMED!r}):
    print(validate_config(config=plain))
validate_config(config=%s)
"""
"""Plain runs, one with values that contain the name, then one in tandem."""


@pytest.mark.parametrize(
    ("broken", "run"),
    [
        ("tandem_verl.rollouts", tandem_run()),
        ("tandem_plugin", tandem_run()),
        ("tandem_plugin", {"data": {"tandem.schedule": "word"}}),
        ("tandem_plugin", {"rollouts": [{"additional_config": '{"tandem_config": {}}'}]}),
    ],
)
def test_adapter_that_cannot_be_imported_leaves_a_refusal_to_runs_in_tandem_alone(
    broken: str, run: Any, in_a_new_process: Callable[..., str]
) -> None:
    log = in_a_new_process(f"sys.modules[{broken!r}] = None  # its import fails\n{RUNS % run}")
    assert log.count("validated") == 2
    assert f"RuntimeError: The configuration enables tandem ({FLAG})" in log
    assert broken in log


def test_variable_with_settings_counts_where_the_core_cannot_be_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert not names_tandem(OmegaConf.create(NAMED))
    monkeypatch.setenv("TANDEM_CONFIG", "{}")
    assert names_tandem(OmegaConf.create(NAMED))


def test_plain_run_imports_nothing_but_the_entry_point(
    in_a_new_process: Callable[..., str],
) -> None:
    log = in_a_new_process("""
import tandem_verl.plugin
print(sorted(name for name in sys.modules if name.startswith("tandem_verl.")))
print([name for name in ("torch", "vllm", "ray", "transformers") if name in sys.modules])
""")
    assert log == "['tandem_verl.plugin', 'tandem_verl.settings']\n[]\n"


def test_verl_without_the_function_that_is_wrapped_is_left_to_the_engine(
    in_a_new_process: Callable[..., str],
) -> None:
    """Which starts in a server of ours alone."""
    code = (
        "import tandem_verl.plugin\nfrom verl.utils.config import validate\nprint(validate(None))"
    )
    log = in_a_new_process(code, validate="def validate(config): return 'renamed'\n")
    assert log == "renamed\n"


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ("", "EngineError: verl.trainer.ppo.v1.separate_async has no method "),
        # The driver may have the adapter, and have named them.
        (
            'sys.modules["tandem_verl.rollouts"] = None',
            "RuntimeError: The configuration enables tandem",
        ),
    ],
)
def test_trainers_of_tandem_runs_alone_stop_where_a_method_moved_or_the_adapter_is_not(
    broken: str, reason: str, in_a_new_process: Callable[..., str]
) -> None:
    log = in_a_new_process(f"""
{broken}
import tandem_verl.plugin
from verl.trainer.ppo.v1 import get_trainer_cls
get_trainer_cls("sync")(None)
get_trainer_cls("tandem_separate_async")(None)
""")
    assert log.count("began") == 1
    assert reason in log


def test_modules_are_looked_for_without_importing_their_packages(
    tmp_path: Path, in_a_new_process: Callable[..., str]
) -> None:
    (tmp_path / "heavy/inner/leaf").mkdir(parents=True)
    (tmp_path / "heavy/leftover/__pycache__").mkdir(parents=True)
    for package in ("heavy", "heavy/inner"):
        (tmp_path / package / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (tmp_path / "heavy/inner/module.py").write_text("")
    missing = ["heavy.leftover", "heavy.inner.renamed", "heavy.gone.module", "absent.module"]
    there = ["heavy", "heavy.inner", "heavy.inner.module"]
    assert (
        in_a_new_process(f"""
from tandem_plugin.patching.after_import import missing_modules
print(missing_modules({[*there, *missing]}))
""")
        == f"{missing}\n"
    )


def test_module_imported_past_its_patches_is_noticed(
    tmp_path: Path, in_a_new_process: Callable[..., str]
) -> None:
    (tmp_path / "unseen.py").write_text("")
    log = in_a_new_process("""
import importlib.util
from tandem_plugin.patching.in_place import Framework
framework = Framework("Framework", "Mend it.")
framework.put([("unseen", lambda module: None)])
framework.check()
spec = importlib.util.spec_from_file_location("unseen", sys.path[0] + "/unseen.py")
sys.modules["unseen"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["unseen"])
print(framework.is_in_place, Framework("Other").is_in_place)
framework.check()
""")
    assert "True False" in log
    assert "EngineError: unseen was imported in this process in a way" in log
