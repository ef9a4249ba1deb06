"""Tiny models that write ``<call>n</call>`` often, and an installed plugin of schedules by text."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from unittest import mock

import torch
from safetensors.torch import load_file, save_file

from support.models import make_model, make_tokenizer

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "tandem-plugin-handoffs"
OFTEN = ("<call>", "</call>", "3", "5", "e")


def make_calling_model(folder: Path, seed: int) -> Path:
    """A random checkpoint whose tokens are mostly those of commands.

    Its embeddings share a direction, which the head's rows of these tokens read.
    """
    tokenizer = make_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<call>", "</call>"]})
    make_model(folder, seed=seed, tokenizer=tokenizer)
    (file,) = folder.glob("*.safetensors")
    weights = load_file(file)
    weights["model.embed_tokens.weight"][:, 0] += 60.0
    ids = tokenizer.convert_tokens_to_ids(list(OFTEN))
    weights["lm_head.weight"][:, 0] = 0.0
    weights["lm_head.weight"][ids, 0] = 1.2
    weights["lm_head.weight"][ids, 1:] *= 1.5
    save_file(
        {name: torch.clone(tensor) for name, tensor in weights.items()}, file, {"format": "pt"}
    )
    return folder


def installed_handoffs(folder: Path) -> AbstractContextManager[None]:
    """Within, this process and those it starts find the example's entry point."""
    return installed_plugin(folder, "tandem_plugin_handoffs", [folder, EXAMPLE])


@contextmanager
def installed_plugin(folder: Path, module: str, paths: list[Path]) -> Iterator[None]:
    """Within, this process and those it starts find a module as a plugin.

    folder: where its metadata is written. paths: this folder, and that of the module. Benchmarks
    use it too, where there is no pytest.
    """
    info = folder / f"{module}-0.1.0.dist-info"
    info.mkdir()
    name = module.replace("_", "-")
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text(f"[tandem_plugin]\nown = {module}\n")
    own = [str(path) for path in paths]
    searched = os.pathsep.join(filter(None, [*own, os.environ.get("PYTHONPATH")]))
    with (
        mock.patch.dict(os.environ, PYTHONPATH=searched),
        mock.patch.object(sys, "path", [*own, *sys.path]),
        mock.patch("tandem_plugin.plugins.loading._catalogue", None),
    ):
        importlib.invalidate_caches()
        yield
