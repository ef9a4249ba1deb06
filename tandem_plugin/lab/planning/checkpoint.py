"""Reads a checkpoint for a plan: its configuration, and the sizes of its weights."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from tandem_plugin.errors import ConfigError
from tandem_plugin.files import check_model, open_file, read_file
from tandem_plugin.files.strict_json import parse_json
from tandem_plugin.lab.planning.geometry import Geometry, count_parameters

__all__ = ["PlannedModel", "read_checkpoint"]

_LONGEST_HEADER = 2**27
_WIDTHS = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True)
class PlannedModel:
    """One model, as a plan knows it."""

    name: str
    geometry: Geometry
    parameters: int
    stored: int | None
    """Bytes of its weights as they lie in the files of a quantised checkpoint; None of another."""
    counted: str
    """What the parameters were counted from: safetensors, or config.json."""

    def weights(self, width: int) -> int:
        """The size of its weights in bytes, in an engine with values of ``width`` bytes."""
        return self.parameters * width if self.stored is None else self.stored


@dataclass(frozen=True, slots=True)
class _Stored:
    parameters: int
    size: int


def read_checkpoint(given: str) -> PlannedModel:
    """Read a checkpoint's folder, a ``config.json``, or a name on the Hugging Face Hub.

    From the Hub only ``config.json`` is downloaded and, for families whose parameters are not
    counted from it, the headers of the weights. Raises :class:`ConfigError` for models that cannot
    be planned.
    """
    check_model(given, "checkpoint")
    place = Path(given).expanduser()
    local = os.path.exists(place)
    file = (place / "config.json" if os.path.isdir(place) else place) if local else _fetched(given)
    try:
        config = parse_json(read_file(file))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError("TP931", given=given, file=file, reason=reason) from error
    if not isinstance(config, dict):
        raise ConfigError("TP932", file=file)
    geometry = Geometry.of(config, given)
    stored = _in_folder(file.parent, config, geometry) if local else None
    counted = count_parameters(config, geometry)
    quantised = config.get("quantization_config") is not None
    if stored is None and not local and (counted is None or quantised):
        stored = _on_hub(given)
    if stored is not None and not quantised:
        return PlannedModel(given, geometry, stored.parameters, None, "safetensors")
    if counted is None or (quantised and stored is None):
        what = "It is quantised" if quantised else f"Models of type {geometry.model_type!r}"
        raise ConfigError("TP933", given=given, what=what)
    size = stored.size if stored is not None else None
    return PlannedModel(given, geometry, counted, size, "config.json")


def _fetched(name: str) -> Path:
    try:
        from huggingface_hub import hf_hub_download

        return Path(hf_hub_download(name, "config.json"))
    except Exception as error:
        first = (str(error).splitlines() or [""])[0][:200]
        raise ConfigError(
            "TP934", name=name, error_type=type(error).__name__, first=first
        ) from error


def _on_hub(name: str) -> _Stored | None:
    try:
        from huggingface_hub import get_safetensors_metadata

        found = get_safetensors_metadata(name)
    except Exception:  # offline, or no safetensors there: then the configuration must be enough
        return None
    tensors = [t for file in found.files_metadata.values() for t in file.tensors.values()]
    return _Stored(
        sum(t.parameter_count for t in tensors),
        sum(t.data_offsets[1] - t.data_offsets[0] for t in tensors),
    )


def _in_folder(folder: Path, config: Mapping[str, Any], geometry: Geometry) -> _Stored | None:
    """What the weights beside a configuration say: their headers, or their index alone."""
    index = folder / "model.safetensors.index.json"
    files = sorted(folder.glob("*.safetensors"))
    listed: dict[str, Any] = {}
    if index.is_file():
        listed = parse_json(read_file(index))
        named = {folder / str(file) for file in listed.get("weight_map", {}).values()}
        files = sorted(named) if all(file.is_file() for file in named) else []
    if files:
        return _headers(files, geometry)
    size = listed.get("metadata", {}).get("total_size")
    width = _WIDTHS.get(str(config.get("dtype") or config.get("torch_dtype")))
    if not isinstance(size, int) or width is None:
        return None
    return _Stored(size // width, size)


def _headers(files: list[Path], geometry: Geometry) -> _Stored:
    tensors: dict[str, Any] = {}
    for file in files:
        with open_file(file) as stream:
            length = int.from_bytes(stream.read(8), "little")
            if length > _LONGEST_HEADER:
                raise ConfigError("TP935", file=file)
            try:
                tensors |= json.loads(stream.read(length))
            except ValueError as error:
                raise ConfigError("TP935", file=file) from error
    tensors.pop("__metadata__", None)
    if geometry.tied:  # some checkpoints hold the one tensor under both names
        tensors.pop("lm_head.weight", None)
    return _Stored(
        sum(prod(tensor["shape"]) for tensor in tensors.values()),
        sum(tensor["data_offsets"][1] - tensor["data_offsets"][0] for tensor in tensors.values()),
    )
