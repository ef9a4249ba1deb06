"""What vLLM is told by name, and what the patches of vLLM say of themselves."""

from __future__ import annotations

import ast
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tandem_plugin.engine import wire
from tandem_plugin.engine.wire import DraftStats

ENGINE = Path(__file__).resolve().parents[2] / "tandem_plugin/engine"
PATCHES = [
    *ENGINE.glob("patches/[!_]*.py"),
    ENGINE / "speculative/patches.py",
    ENGINE / "plugin.py",
]
ENTRY_POINT = "register"


def patches() -> Iterator[tuple[str, str]]:
    """The public functions of every area, each with its docstring; not the entry point itself."""
    for file in sorted(PATCHES):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if not isinstance(node, ast.FunctionDef) or node.name == ENTRY_POINT:
                continue
            if not node.name.startswith("_"):
                yield f"{file.stem}.{node.name}", " ".join((ast.get_docstring(node) or "").split())


@pytest.mark.parametrize(("name", "said"), [pytest.param(*one, id=one[0]) for one in patches()])
def test_patch_says_what_it_touches_in_which_versions_why_and_when_it_can_go(
    name: str, said: str
) -> None:
    missing = [
        word for word in ("touches:", "versions", "why", "goes when:") if word not in said.lower()
    ]
    assert not missing, f"{name} does not say: {missing}"


@pytest.mark.parametrize(
    "name",
    [
        wire.AUTHORS_PROCESSOR,
        f"{wire.COMPOSITE}:{wire.PREFIX}Qwen3ForCausalLM",
        f"{wire.COMPOSITE}:{wire.SPECULATIVE_PREFIX}Qwen3ForCausalLM",
    ],
)
def test_what_vllm_looks_up_by_name_in_another_process_is_a_class_there(name: str) -> None:
    pytest.importorskip("vllm")
    found = pkgutil.resolve_name(name)
    assert isinstance(found, type)
    assert found.__name__ == name.rpartition(":")[2]


@pytest.mark.parametrize("additional", [object(), None, {"other": 1}])
def test_what_another_plugin_puts_into_additional_config_asks_for_nothing(additional: object):
    assert not wire.asks_for_tandem(additional)
    assert wire.asks_for_tandem({"tandem": {}, "other": additional})


def test_one_counter_that_fell_shows_that_the_engine_was_restarted() -> None:
    before, after = DraftStats(rounds=3, drafts=9, tokens=4), DraftStats(rounds=5, drafts=2)
    assert after.since(before) == after
