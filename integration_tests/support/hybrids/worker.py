"""vLLM's CPU worker, whose layers with recurrent states compute in float32.

Mamba 2 and short convolutions take vLLM's plain PyTorch path where a CPU seems to lack AVX-512
BF16. The gated delta rule has none, so it is written out here, over vLLM's own caches and metadata.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
import vllm.model_executor.layers.mamba.ops.cpu.gdn_attention as gdn
from vllm.forward_context import get_forward_context
from vllm.model_executor.models import lfm2
from vllm.utils.torch_utils import LayerNameType
from vllm.v1.worker.cpu_worker import CPUWorker


class ExactWorker(CPUWorker):
    """As vLLM's own; importing this module puts the stand-ins in place."""


def delta_rule(
    mixed_qkv: torch.Tensor,
    b: torch.Tensor,
    a: torch.Tensor,
    core_attn_out: torch.Tensor,
    layer_name: LayerNameType,
) -> None:
    """Gated delta net, token by token. Source: section 3 of arXiv:2412.06464."""
    context = get_forward_context()
    layer = context.no_compile_layers[gdn._resolve_layer_name(layer_name)]
    metadata = (context.attn_metadata or {}).get(layer.prefix)
    if metadata is None:  # a run that only profiles
        return
    assert metadata.spec_sequence_masks is None
    starts = metadata.non_spec_query_start_loc.tolist()
    slots = metadata.non_spec_state_indices_tensor.tolist()
    resumed = [True] * metadata.num_decodes
    if metadata.num_prefills:
        resumed = metadata.has_initial_state.tolist()
    for row, continues in enumerate(resumed[: metadata.num_decodes + metadata.num_prefills]):
        tokens = slice(starts[row], starts[row + 1])
        if tokens.start < tokens.stop:
            inputs = mixed_qkv[tokens], a[tokens], b[tokens]
            core_attn_out[tokens] = _sequence(layer, slots[row], continues, *inputs)


def _sequence(
    layer: Any, slot: int, continues: bool, x: torch.Tensor, a: torch.Tensor, b: torch.Tensor
) -> torch.Tensor:
    """One sequence's next tokens, from the states in its slot, which are replaced."""
    conv_state, ssm_state = (cache[slot] for cache in layer.kv_cache)
    if not continues:
        conv_state.zero_()
        ssm_state.zero_()
    window = torch.cat([conv_state.to(x.dtype), x])
    conv_state.copy_(window[-len(conv_state) :])
    weight = layer.conv1d.weight
    mixed = F.silu(F.conv1d(window.T[None], weight, layer.conv1d.bias, groups=len(weight)))[0].T
    query, key, value = (part[0].float() for part in layer.rearrange_mixed_qkv(mixed))
    copies = value.shape[1] // key.shape[1]
    query, key = (
        (part * torch.rsqrt(part.square().sum(-1, keepdim=True) + 1e-6)).repeat_interleave(
            copies, 1
        )
        for part in (query, key)
    )
    query = query * query.shape[-1] ** -0.5
    decay = torch.exp(-layer.A_log.float().exp() * F.softplus(a.float() + layer.dt_bias.float()))
    strength = b.float().sigmoid()
    state, outputs = ssm_state.float(), []  # [heads, value, key]
    for t in range(len(x)):
        state = state * decay[t, :, None, None]
        missing = value[t] - torch.einsum("hvk,hk->hv", state, key[t])
        state = state + torch.einsum("h,hv,hk->hvk", strength[t], missing, key[t])
        outputs.append(torch.einsum("hvk,hk->hv", state, query[t]))
    ssm_state.copy_(state)
    return torch.stack(outputs).to(x.dtype)


def _flat_rope(*arguments: Any, **options: Any) -> Any:
    """vLLM's CPU kernel reads queries and keys as rows; LFM2 sends them by heads."""
    rope = make_rope(*arguments, **options)

    def rotate(positions: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> Any:
        rotated = rope(positions, query.flatten(1), key.flatten(1))
        return tuple(new.view_as(old) for new, old in zip(rotated, (query, key), strict=True))

    return rotate


make_rope = lfm2.get_rope
lfm2.get_rope = _flat_rope
gdn.cpu_gdn_attention_core = delta_rule
torch.cpu._is_avx512_bf16_supported = lambda: False
