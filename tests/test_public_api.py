from __future__ import annotations

import pkgutil
import subprocess
import sys

import pytest

import tandem_plugin
import tandem_plugin.training


@pytest.mark.parametrize("name", tandem_plugin.__all__)
def test_public_name_exists_and_has_a_docstring(name: str):
    public = getattr(tandem_plugin, name)
    assert name == "__version__" or (public.__doc__ or "").strip()


def test_public_names_are_sorted_and_listed_once():
    assert sorted(set(tandem_plugin.__all__)) == tandem_plugin.__all__


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
