"""What an engine would reject, seen in a trainer's driver: before a model is loaded, without vLLM.

Only files of this machine are read. What they do not show is left to the engine.
"""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tandem_plugin.config import TandemConfig
from tandem_plugin.engine.refusals import ModelKind, check_options, check_states
from tandem_plugin.engine.speculative.configure import check_drafting_options
from tandem_plugin.engine.wire import without_prefix
from tandem_plugin.errors import ConfigError, EngineError
from tandem_plugin.files.checkpoints import check_model, may_be_on_hub
from tandem_plugin.files.unified import text_architecture, text_config
from tandem_plugin.patching.versions import running_version

_OVERRIDES = ("hf_overrides", "hf_config_path")
"""Options that give an engine another configuration of the senior than its checkpoint's."""


def check_before_start(
    tandem: TandemConfig, senior: str | None, option: Callable[[str], Any]
) -> None:
    """Raise what an engine of this run would raise, as far as this machine's files show it.

    senior: its checkpoint, None if it is not known. option: an argument of vLLM by its name, None
    if it is not set. Raises :class:`ConfigError` and :class:`EngineError`.
    """
    check_options(option)
    version = running_version("vllm")
    if tandem.max_drafts and version is not None:
        check_drafting_options(option, version)
    kind = kind_of_junior = None
    if tandem.junior is not None:
        check_junior(tandem.junior)
        check_model(tandem.junior, "junior")
        kind_of_junior = _check_kind(tandem.junior, _local_config(tandem.junior))
    if senior is not None and not any(map(option, _OVERRIDES)):
        if os.path.isdir(os.path.expanduser(senior)):
            check_model(senior, "senior")
        config = _local_config(senior, option("revision"))
        _check_senior(senior, config)
        kind = _check_kind(senior, config)
    check_states(tandem, kind, kind if tandem.junior is None else kind_of_junior, option, version)


def check_junior(junior: str) -> None:
    """Raise :class:`ConfigError` for a path of this machine that is no checkpoint's."""
    looks_local = os.path.isabs(junior) or junior.startswith((".", "~")) or os.path.isdir(junior)
    path = os.path.expanduser(junior)
    if looks_local and not os.path.isfile(os.path.join(path, "config.json")):
        raise ConfigError("junior-not-checkpoint", junior=junior)


def _local_config(model: str, revision: str | None = None) -> Mapping[str, Any] | None:
    """A checkpoint's config.json, from its folder or the Hub's cache; None if it is not here."""
    file: Any = Path(os.path.expanduser(model)) / "config.json"
    with suppress(ImportError, OSError, ValueError, RecursionError):
        if not file.parent.is_dir() and may_be_on_hub(model):
            from huggingface_hub import try_to_load_from_cache

            file = try_to_load_from_cache(model, "config.json", revision=revision)
        # Of a name that is not in the cache, the file is None or another object.
        if isinstance(file, str | Path):
            config = json.loads(Path(file).read_text(encoding="utf-8"))
            return config if isinstance(config, dict) else None
    return None


def _check_senior(model: str, config: Mapping[str, Any] | None) -> None:
    """Raise :class:`EngineError` if the engine would not find the senior's architecture."""
    if config is None:
        return
    if not config.get("architectures"):
        raise EngineError("senior-architecture-missing", model=model)
    architecture = _architecture(config)
    others = {one.name for one in entry_points(group="vllm.general_plugins")} - _KNOWN_PLUGINS
    known = VLLMSource.tables().get("_VLLM_MODELS")
    if known and not others and architecture is not None and architecture not in known:
        raise EngineError("senior-architecture-unknown", architecture=architecture)


_KNOWN_PLUGINS = frozenset({"tandem", "lora_filesystem_resolver", "lora_hf_hub_resolver"})
"""Ours and vLLM's own: any other may register further architectures."""


def _check_kind(model: str, config: Mapping[str, Any] | None) -> ModelKind | None:
    """The kind of a model, None if it is not known.

    Raises :class:`EngineError` for a kind that tandem does not support.
    """
    architecture = _architecture(config or {})
    if config is None or architecture is None:
        return None
    config, architecture = text_config(config), text_architecture(architecture)
    if architecture in VLLMSource.tables().get("_MULTIMODAL_MODELS", {}):
        raise EngineError("multimodal-model-unsupported", model=model)
    types = config.get("layer_types")
    attends = types is not None and all(one in ("attention", "full_attention") for one in types)
    bases = VLLMSource.bases(architecture)
    if "IsAttentionFree" in bases:
        raise EngineError("attention-free-model-unsupported", model=model)
    if config.get("is_encoder_decoder") is True:
        raise EngineError("encoder-decoder-unsupported", model=model)
    return ModelKind(model, architecture, "IsHybrid" in bases and not attends)


def _architecture(config: Mapping[str, Any]) -> str | None:
    names = config.get("architectures")
    return without_prefix(str(names[0])) if isinstance(names, list) and names else None


class VLLMSource:
    """What vLLM says of its models, read from its source: importing it takes long, and changes the
    environment that a driver's processes inherit.

    Reads: the tables in ``vllm/model_executor/models/registry.py`` and the bases of the classes
    that they name (vLLM 0.24 to 0.32). Where that has changed, nothing is found, and the engine
    decides. Goes when: vLLM lists its models' kinds without being imported.
    """

    @staticmethod
    @cache
    def tables() -> Mapping[str, Mapping[str, ast.expr]]:
        """Each table of models by its name: architectures, and the source of their entries."""
        tables: dict[str, dict[str, ast.expr]] = {}
        for node in _body("vllm.model_executor.models.registry"):
            match node:
                case ast.Assign([ast.Name(name)], ast.Dict(keys, values)):
                    table = tables[name] = {}
                    for key, value in zip(keys, values, strict=True):
                        match key, value:
                            case None, ast.Name(other):
                                table |= tables.get(other, {})
                            case ast.Constant(str(architecture)), _:
                                table[architecture] = value
        return tables

    @staticmethod
    @cache
    def bases(architecture: str) -> frozenset[str]:
        """The names of the classes that an architecture's class derives from in its own module."""
        with suppress(KeyError, ValueError, TypeError):
            module, kind = ast.literal_eval(VLLMSource.tables()["_VLLM_MODELS"][architecture])[:2]
            inside = module.startswith("vllm.")
            body = _body(module if inside else f"vllm.model_executor.models.{module}")
            found, classes = {kind}, [node for node in body if isinstance(node, ast.ClassDef)]
            for node in reversed(classes):  # a class comes after its bases
                if node.name in found:
                    found |= {ast.unparse(base).rpartition(".")[2] for base in node.bases}
            return frozenset(found)
        return frozenset()


def _body(module: str) -> list[ast.stmt]:
    """The statements of a module of an installed package, which is not imported; or none."""
    package, _, rest = module.partition(".")
    with suppress(ImportError, ValueError, OSError, SyntaxError):
        spec = find_spec(package)
        for folder in (spec and spec.submodule_search_locations) or ():
            place = Path(folder, *rest.split("."))
            file = place / "__init__.py" if place.is_dir() else place.with_name(f"{place.name}.py")
            return ast.parse(file.read_text(encoding="utf-8")).body
    return []
