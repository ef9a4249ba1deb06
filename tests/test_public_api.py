from __future__ import annotations

import ast
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import tandem_plugin
import tandem_plugin.training


@pytest.mark.parametrize("name", tandem_plugin.__all__)
def test_public_name_exists_and_has_a_docstring(name: str):
    public = getattr(tandem_plugin, name)
    assert name == "__version__" or (public.__doc__ or "").strip()


def test_public_names_are_sorted_and_listed_once():
    assert sorted(set(tandem_plugin.__all__)) == tandem_plugin.__all__


ROOT = Path(tandem_plugin.__file__).parents[1]
PACKAGES = sorted(
    file
    for folder in ("tandem_plugin", "adapters")
    for file in (ROOT / folder).rglob("__init__.py")
)


@pytest.mark.parametrize("file", PACKAGES, ids=lambda file: str(file.parent.relative_to(ROOT)))
def test_no_function_of_a_package_hides_its_module_of_that_name(file: Path):
    """``import package.replay as r`` is the module, whatever the package itself imports."""
    modules = {other.stem for other in file.parent.iterdir() if other != file}
    hiding = [
        alias.asname or alias.name
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module != ".".join(package_of(file))
        for alias in node.names
        if (alias.asname or alias.name) in modules
    ]
    assert hiding == []


def package_of(file: Path) -> tuple[str, ...]:
    parts = file.parent.relative_to(ROOT).parts
    return parts[1:] if parts[0] == "adapters" else parts


@pytest.mark.parametrize(
    "module",
    [
        "tandem_plugin",
        "tandem_plugin.plugins",
        "tandem_plugin.cli",
        "tandem_plugin.cli.doctor",
        "tandem_plugin.engine",
        "tandem_plugin.engine.wire",
        *(
            f"tandem_plugin.training.{module.name}"
            for module in pkgutil.iter_modules(tandem_plugin.training.__path__)
        ),
        "tandem_plugin.lab.evaluation",
    ],
)
def test_import_is_light(module: str):
    code = (
        f"import sys, {module}; "
        "heavy = {'torch', 'vllm', 'verl', 'transformers', 'ray', 'tokenizers', 'rich.console'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
