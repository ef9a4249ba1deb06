"""Quantised forms of a small checkpoint, and what Hugging Face computes with the same weights.

Each form writes a checkpoint as its format has it, and gives the matrices that it stands for. The
reference is Hugging Face's model with these matrices; where an engine quantises activations token
by token, so does the reference, before each of its linear layers.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

GROUP = 32
"""Weights of a row that share a scale, in the forms of 4 bits."""
Parts: TypeAlias = tuple[dict[str, Tensor], Tensor]
"""The tensors of a quantised layer by their names, and the matrix that they stand for."""


def _by_row(weight: Tensor, largest: float) -> Tensor:
    return weight.abs().amax(-1, keepdim=True).clamp(min=1e-8) / largest


def to_int8(values: Tensor) -> Tensor:
    """The nearest values of 8-bit integers with one scale per row, in fp32."""
    scale = _by_row(values, 127)
    return (values / scale).round().clamp(-128, 127) * scale


def to_fp8(values: Tensor) -> Tensor:
    """The nearest values of ``float8_e4m3fn`` with one scale per row, in fp32."""
    scale = _by_row(values, torch.finfo(torch.float8_e4m3fn).max)
    return (values / scale).to(torch.float8_e4m3fn).float() * scale


def _int8(weight: Tensor) -> Parts:
    scale, matrix = _by_row(weight, 127), to_int8(weight)
    return {"weight": (matrix / scale).round().to(torch.int8), "weight_scale": scale}, matrix


def _fp8(weight: Tensor) -> Parts:
    scale = _by_row(weight, torch.finfo(torch.float8_e4m3fn).max)
    stored = (weight / scale).to(torch.float8_e4m3fn)
    return {"weight": stored, "weight_scale": scale}, stored.float() * scale


def _int4(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Whole numbers from -8 to 7, a scale per group, and the matrix: ``[out, in]`` each."""
    rows, columns = weight.shape
    groups = weight.view(rows, columns // GROUP, GROUP)
    scale = _by_row(groups, 7).to(torch.bfloat16).float()
    numbers = (groups / scale).round().clamp(-8, 7)
    return numbers.view(rows, columns), scale.squeeze(-1), (numbers * scale).view(rows, columns)


def _packed(numbers: Tensor) -> Tensor:
    """Eight numbers from 0 to 15 of a row in an int32, the first in the lowest bits."""
    eights = numbers.to(torch.int64).unflatten(-1, (-1, 8)) << (4 * torch.arange(8))
    words = eights.sum(-1)
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def _packed_int4(weight: Tensor) -> Parts:
    numbers, scale, matrix = _int4(weight)
    shape = torch.tensor(weight.shape)
    parts = {"weight_packed": _packed(numbers + 8), "weight_scale": scale, "weight_shape": shape}
    return parts, matrix


def _gptq(weight: Tensor) -> Parts:
    numbers, scale, matrix = _int4(weight)
    rows, columns = weight.shape
    zeros = torch.full((columns // GROUP, rows), 7)  # GPTQ stores them less one
    return {
        "qweight": _packed(numbers + 8).T,
        "qzeros": _packed(zeros),
        "scales": scale.T,
        "g_idx": (torch.arange(columns) // GROUP).to(torch.int32),
    }, matrix


_AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def _awq(weight: Tensor) -> Parts:
    numbers, scale, matrix = _int4(weight)

    def words(values: Tensor) -> Tensor:
        return _packed(values.unflatten(-1, (-1, 8))[..., _AWQ_ORDER].flatten(-2))

    zeros = torch.full_like(scale.T, 8)
    return {"qweight": words(numbers.T + 8), "qzeros": words(zeros), "scales": scale.T}, matrix


def _compressed(form: str, weights: Mapping[str, Any], inputs: bool) -> dict[str, Any]:
    of_inputs = {**weights, "strategy": "token", "dynamic": True} if inputs else None
    group = {"targets": ["Linear"], "weights": weights, "input_activations": of_inputs}
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "config_groups": {"group_0": group},
    }


def _kind(bits: int, kind: str, **more: Any) -> dict[str, Any]:
    return {"num_bits": bits, "type": kind, "symmetric": True, "dynamic": False, **more}


@dataclass(frozen=True, slots=True)
class Form:
    """One way to store, or to make, a quantised model."""

    quantise: Callable[[Tensor], Parts]
    config: Mapping[str, Any]
    """``quantization_config`` of its checkpoint."""
    inputs: Callable[[Tensor], Tensor] | None = None
    """What the engine does to the inputs of a linear layer."""
    online: str | None = None
    """The name by which vLLM makes it of a plain checkpoint."""
    dtype: str = "float32"
    """The engine's, in which vLLM's CPU build has kernels for it."""


FORMS = {
    "int8": Form(
        _int8, _compressed("int-quantized", _kind(8, "int", strategy="channel"), True), to_int8
    ),
    "fp8": Form(
        _fp8, _compressed("float-quantized", _kind(8, "float", strategy="channel"), True), to_fp8
    ),
    "int4": Form(
        _packed_int4,
        _compressed("pack-quantized", _kind(4, "int", strategy="group", group_size=GROUP), False),
        dtype="bfloat16",
    ),
    "GPTQ": Form(
        _gptq,
        {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False, "sym": True},
        dtype="bfloat16",
    ),
    "AWQ": Form(
        _awq,
        {
            "quant_method": "awq",
            "bits": 4,
            "group_size": GROUP,
            "zero_point": True,
            "version": "gemm",
        },
        dtype="bfloat16",
    ),
}


def _is_linear(name: str) -> bool:
    return name.endswith("_proj.weight")


def write(form: Form, plain: Path, folder: Path, *, reads: torch.dtype = torch.float32) -> Path:
    """The checkpoint of a form. reads: the type of the plain weights that are quantised."""
    shutil.copytree(plain, folder)
    tensors: dict[str, Tensor] = {}
    for name, weight in load_file(plain / "model.safetensors").items():
        parts = {name: weight}
        if _is_linear(name):
            stored, _ = form.quantise(weight.to(reads).float())
            parts = {name.removesuffix("weight") + part: stored[part] for part in stored}
        tensors |= {part: tensor.contiguous() for part, tensor in parts.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((plain / "config.json").read_text())
    config["quantization_config"] = form.config
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def as_stored(form: Form, model: nn.Module) -> None:
    """Give a Hugging Face model the matrices of a form, and its inputs."""
    for name, module in model.named_modules():
        if not isinstance(module, nn.Linear) or not _is_linear(f"{name}.weight"):
            continue
        module.weight.data = form.quantise(module.weight.data.float())[1]
        if form.inputs is not None:
            module.register_forward_pre_hook(lambda _, given: (form.inputs(given[0]),))
