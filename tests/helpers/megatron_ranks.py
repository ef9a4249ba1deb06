"""verl's real Megatron engine on a CPU: gradients through tandem's masks, and plain loops.

Everything between a batch and its gradients is verl's and Megatron's own: packing, micro-batches,
tensor, pipeline, context and data parallelism, the cross entropy over shards, the loss. Only the
attention kernel is from here, since Megatron's needs a GPU, and the reduction of gradients, which
its optimizer does. Ranks are processes that talk through gloo.
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, product
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import distributed

from tandem_plugin import TandemConfig, TandemRules, Vocabulary
from tandem_plugin.training.calls import Trajectory

VOCABULARY = (
    "Ġa", "Ġb", "Ġc", "Ġd", "x", "y", "z", ".", "Ċ", "Ġthe", "ing", "Ġ1", "2", "t", "u", "q"
)  # fmt: skip
LAYERS, WIDTH, HEADS = 2, 16, 4
KL, ENTROPY, CLIP, DUAL_CLIP, LAMBDA_JUN, REFERENCE = 0.05, 0.07, 0.2, 3.0, 0.3, -2.6
TEACHER = -2.4
"""A teacher's log-probability of every token, where the senior is distilled."""
MODES = ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum")


@dataclass(frozen=True)
class Layout:
    """How a model and its batch are divided. packed: rows stand one after another, unpadded."""

    tp: int = 1
    pp: int = 1
    cp: int = 1
    dp: int = 1
    packed: bool = True

    def __str__(self) -> str:
        sizes = f"TP={self.tp} PP={self.pp} CP={self.cp} DP={self.dp}"
        return f"{sizes} {'packed' if self.packed else 'padded'}"


@dataclass
class Response:
    """One row. senior, junior: the tokens to train and to imitate, bool ``[length]``."""

    prompt: list[int]
    tokens: list[int]
    senior: Any
    junior: Any
    advantage: float
    old: list[float]


def responses() -> list[Response]:
    """Eight responses of random lengths through the adapter, some with a tool's turn.

    The last one has no token of the senior's.
    """
    from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput

    from tandem_verl.rollouts import narrow

    rules = TandemRules(
        TandemConfig.from_mapping({"schedule": "word"}), Vocabulary(VOCABULARY, "tiny")
    )
    chosen = random.Random(3)

    def tokens(most: int) -> list[int]:
        return [chosen.randrange(len(VOCABULARY)) for _ in range(chosen.randint(1, most))]

    found = []
    for number in range(8):
        prompt = tokens(5)
        trajectory = Trajectory(rules.default, partial(lambda row, call: 100 * row + call, number))
        written: list[int] = []
        mask: list[int] = []
        for turn in range(1 + (number % 3 == 1)):
            if turn:
                feedback = tokens(3)
                written, mask = [*written, *feedback], [*mask, *[0] * len(feedback)]
            answer = tokens(12)
            trajectory.call([*prompt, *written]).returned(answer)
            written, mask = [*written, *answer], [*mask, *[1] * len(answer)]
        output = AgentLoopOutput(
            prompt_ids=prompt,
            response_ids=written,
            response_mask=mask,
            metrics=AgentLoopMetrics(),
            extra_fields={},
        )
        narrow([output], trajectory)
        senior = np.array(output.response_mask, dtype=bool)
        junior = np.array(mask, dtype=bool) & ~senior
        old = [chosen.gauss(-2.5, 0.3) for _ in written]
        found.append(Response(prompt, written, senior, junior, chosen.gauss(0, 1), old))
    last = found[-1]
    last.senior, last.junior = np.zeros_like(last.senior), last.senior | last.junior
    return found


class Attention(torch.nn.Module):
    """Causal attention within each row, in Megatron's place of ``core_attention``."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    def forward(
        self, query: Any, key: Any, value: Any, *_: Any, packed_seq_params: Any = None, **__: Any
    ) -> Any:
        """query, key, value: ``[tokens, heads, size]`` if packed, else ``[tokens, rows, ...]``."""
        if packed_seq_params is None:
            tokens, rows = query.shape[:2]
            visible = torch.ones(tokens, tokens).tril().bool()
            scores = torch.einsum("qrhd,krhd->rhqk", query, key)
            return torch.einsum("rhqk,krhd->qrhd", _softmax(scores, visible, query), value).reshape(
                tokens, rows, -1
            )
        from megatron.core import parallel_state

        ranks = parallel_state.get_context_parallel_world_size()
        group = parallel_state.get_context_parallel_group()
        rank = parallel_state.get_context_parallel_rank()
        starts = packed_seq_params.cu_seqlens_q.tolist()
        places = [_places(starts, ranks, one) for one in range(ranks)]
        if ranks > 1:
            key, value = (_Gather.apply(part, group, rank) for part in (key, value))
        rows_of_keys, keys = (torch.cat(parts) for parts in zip(*places, strict=True))
        rows, queries = places[rank]
        visible = (rows[:, None] == rows_of_keys) & (keys <= queries[:, None])
        scores = torch.einsum("qhd,khd->hqk", query, key)
        mixed = torch.einsum("hqk,khd->qhd", _softmax(scores, visible, query), value)
        return mixed.reshape(len(query), -1)


def _softmax(scores: Any, visible: Any, query: Any) -> Any:
    return (scores * query.shape[-1] ** -0.5).masked_fill(~visible, -1e30).softmax(-1)


def _places(starts: Sequence[int], ranks: int, rank: int) -> tuple[Any, Any]:
    """The row and position of a rank's tokens: each row's chunk from its start and from its end."""
    rows, positions = [], []
    for row, (start, stop) in enumerate(pairwise(starts)):
        length, chunk = stop - start, (stop - start) // (2 * ranks)
        own = [*range(rank * chunk, (rank + 1) * chunk)]
        own += range(length - (rank + 1) * chunk, length - rank * chunk)
        own = own if ranks > 1 else list(range(length))
        rows += [row] * len(own)
        positions += own
    return torch.tensor(rows), torch.tensor(positions)


class _Gather(torch.autograd.Function):
    """The parts of all ranks of context parallelism, one after another."""

    @staticmethod
    def forward(context: Any, part: Any, group: Any, rank: int) -> Any:
        context.place = group, rank, len(part)
        parts = [torch.empty_like(part) for _ in range(distributed.get_world_size(group))]
        distributed.all_gather(parts, part.contiguous(), group=group)
        return torch.cat(parts)

    @staticmethod
    def backward(context: Any, gradient: Any) -> Any:  # type: ignore[override]
        group, rank, length = context.place
        gradient = gradient.contiguous()
        distributed.all_reduce(gradient, group=group)
        return gradient[rank * length : (rank + 1) * length], None, None


def initialised(name: str, shape: Sequence[int]) -> Any:
    """A weight by its name alone, the same in every layout."""
    seed = sum(ord(letter) * (place + 7) for place, letter in enumerate(name))
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(*shape, generator=generator, dtype=torch.float64) * 0.25
    return weight + 1 if "norm" in name and "weight" in name else weight


class ValueHead(torch.nn.Linear):
    """A critic's last layer, as Megatron-Bridge puts it in place of the output layer."""

    def forward(self, hidden: Any, *_: Any, **__: Any) -> Any:
        return super().forward(hidden), None


def build(
    layout: Layout, per_token: bool = False, critic: bool = False
) -> tuple[Any, Any, dict[str, Any]]:
    """This rank's part of the model: its configuration, the model, and its parameters by name."""
    from megatron.core import parallel_state
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer import TransformerConfig

    config = TransformerConfig(
        num_layers=LAYERS,
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        ffn_hidden_size=24,
        use_cpu_initialization=True,
        params_dtype=torch.float64,
        pipeline_dtype=torch.float64,
        tensor_model_parallel_size=layout.tp,
        pipeline_model_parallel_size=layout.pp,
        context_parallel_size=layout.cp,
        variable_seq_lengths=True,
        moe_token_dispatcher_type="alltoall",
        add_bias_linear=False,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        bias_activation_fusion=False,
        bias_dropout_fusion=False,
        masked_softmax_fusion=False,
        apply_rope_fusion=False,
        gradient_accumulation_fusion=False,
        calculate_per_token_loss=per_token,
        deallocate_pipeline_outputs=False,
        batch_p2p_comm=False,
    )
    spec = get_gpt_layer_local_spec()
    spec.submodules.self_attention.submodules.core_attention = Attention
    model = GPTModel(
        config,
        spec,
        vocab_size=len(VOCABULARY),
        max_sequence_length=64,
        pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage(),
        parallel_output=True,
        share_embeddings_and_output_weights=False,
        position_embedding_type="rope",
    ).double()
    if critic and model.post_process:
        model.output_layer = ValueHead(WIDTH, 1, bias=False, dtype=torch.float64)
    first = parallel_state.get_pipeline_model_parallel_rank() * (LAYERS // layout.pp)
    parameters = {}
    for local, parameter in model.named_parameters():
        parts = local.split(".")
        if "layers" in parts:
            layer = parts.index("layers") + 1
            parts[layer] = str(int(parts[layer]) + first)
        name = ".".join(parts)
        shape = list(parameter.shape)
        if getattr(parameter, "tensor_model_parallel", False):
            shape[parameter.partition_dim] *= layout.tp
        parameter.data.copy_(own_part(initialised(name, shape), parameter, layout))
        parameters[name] = parameter
    return config, model, parameters


def own_part(whole: Any, parameter: Any, layout: Layout) -> Any:
    """This rank's part of a whole tensor of a parameter's."""
    from megatron.core import parallel_state

    if not getattr(parameter, "tensor_model_parallel", False):
        return whole
    rank = parallel_state.get_tensor_model_parallel_rank()
    return whole.chunk(layout.tp, parameter.partition_dim)[rank]


def plain_gradients(rows: Sequence[Response], mode: str, weight: float) -> dict[str, Any]:
    """The definition: each row by itself, undivided, and a sum over its tokens of the senior's.

    mode: verl's ``loss_agg_mode``. weight: ``lambda_jun``.
    """
    _, model, parameters = build(Layout())
    trained = sum(int(row.senior.sum()) for row in rows)
    imitated = sum(int(row.junior.sum()) for row in rows)
    total = torch.zeros((), dtype=torch.float64)
    for row in rows:
        ids = torch.tensor([[*row.prompt, *row.tokens]])
        logits = model(ids, torch.arange(ids.shape[1])[None], None)[0].double()
        probabilities = torch.log_softmax(logits, -1)[len(row.prompt) - 1 : -1]
        log_probs = probabilities[torch.arange(len(row.tokens)), torch.tensor(row.tokens)]
        entropies = -(probabilities.exp() * probabilities).sum(-1)
        losses = []
        for token, own in enumerate(row.senior):
            if not own:
                continue
            loss = surrogate(log_probs[token] - row.old[token], row.advantage)
            gap = REFERENCE - log_probs[token]
            losses.append(loss + KL * (gap.exp() - gap - 1) - ENTROPY * entropies[token])
        junior = torch.from_numpy(row.junior)
        total = total - weight * log_probs[junior].sum() / imitated
        if losses:
            of_row = torch.stack(losses)
            total = (
                total
                + {
                    "token-mean": of_row.sum() / trained,
                    "seq-mean-token-mean": of_row.mean() / len(rows),
                    "seq-mean-token-sum": of_row.sum() / len(rows),
                }[mode]
            )
    total.backward()
    return {name: parameter.grad.clone() for name, parameter in parameters.items()}


def surrogate(gap: Any, advantage: float) -> Any:
    """PPO's loss of one token; gap: its log-probability less the old one."""
    ratio = gap.exp()
    loss = torch.maximum(-advantage * ratio, -advantage * ratio.clamp(1 - CLIP, 1 + CLIP))
    return loss.clamp(max=-advantage * DUAL_CLIP) if advantage < 0 else loss


def plain_gradients_of_distillation(rows: Sequence[Response]) -> dict[str, Any]:
    """The definition with a teacher: its log-probability less the senior's is the advantage."""
    _, model, parameters = build(Layout())
    losses = []
    for row in rows:
        ids = torch.tensor([[*row.prompt, *row.tokens]])
        logits = model(ids, torch.arange(ids.shape[1])[None], None)[0].double()
        probabilities = torch.log_softmax(logits, -1)[len(row.prompt) - 1 : -1]
        for token in np.flatnonzero(row.senior):
            log_prob = probabilities[token, row.tokens[token]]
            losses.append(surrogate(log_prob - row.old[token], TEACHER - float(log_prob.detach())))
    torch.stack(losses).mean().backward()
    return {name: parameter.grad.clone() for name, parameter in parameters.items()}


def plain_gradients_of_critic(rows: Sequence[Response]) -> dict[str, Any]:
    """The definition of the critic's loss: a mean over the senior's tokens of all rows."""
    _, model, parameters = build(Layout(), critic=True)
    losses = []
    for row in rows:
        ids = torch.tensor([[*row.prompt, *row.tokens]])
        values = model(ids, torch.arange(ids.shape[1])[None], None)[0, len(row.prompt) - 1 : -1, 0]
        old = torch.tensor(row.old, dtype=torch.float64)
        clipped = torch.minimum(torch.maximum(values, old - CLIP), old + CLIP)
        errors = torch.maximum((values - row.advantage) ** 2, (clipped - row.advantage) ** 2)
        losses.append(0.5 * errors[torch.from_numpy(row.senior)])
    torch.cat(losses).mean().backward()
    return {name: parameter.grad.clone() for name, parameter in parameters.items()}


def engine_of(layout: Layout, config: Any, model: Any, critic: bool = False) -> Any:
    """verl's engine with this rank's part, as far as its forward and backward passes read it."""
    from verl.workers.engine.megatron import transformer_impl as engines

    kind = engines.MegatronEngineWithValueHead if critic else engines.MegatronEngineWithLMHead
    engine = object.__new__(kind)
    engine.engine_config = SimpleNamespace(
        context_parallel_size=layout.cp,
        dynamic_context_parallel=False,
        use_remove_padding=layout.packed,
        use_fused_kernels=False,
        pad_to_length=False,
        pad_to_length_bucket=None,
        pad_bshd_to_minibatch_max=False,
        router_replay=SimpleNamespace(mode="disabled"),
        entropy_from_logits_with_chunking=False,
    )
    engine.model_config = SimpleNamespace(
        hf_config=SimpleNamespace(architectures=["Qwen2ForCausalLM"]),
        mtp=SimpleNamespace(enable=False, enable_train=False),
        tokenizer=SimpleNamespace(pad_token_id=0),
    )
    engine.tf_config, engine.module, engine.enable_routing_replay = config, [model], False
    routed = engine._routed_num_tokens
    # On a CPU verl's sum over ranks would change the batch's own offsets, which a GPU copies.
    engine._routed_num_tokens = lambda data: routed(data).clone()
    return engine


def finalizing(layout: Layout, parameters: Mapping[str, Any]) -> Callable[..., None]:
    """Megatron's reduction of gradients over ranks of data and context parallelism."""
    from megatron.core import parallel_state

    def finalize(_: Any, num_tokens: Any = None, **__: Any) -> None:
        group = parallel_state.get_data_parallel_group(with_context_parallel=True)
        divisor: Any = layout.dp * layout.cp
        if num_tokens is not None:
            divisor = num_tokens.clone().double()
            if layout.pp > 1:
                last = parallel_state.get_pipeline_model_parallel_last_rank()
                pipeline = parallel_state.get_pipeline_model_parallel_group()
                distributed.broadcast(divisor, src=last, group=pipeline)
            distributed.all_reduce(divisor, group=group)
        for parameter in parameters.values():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            distributed.all_reduce(parameter.grad, group=group)
            parameter.grad /= divisor

    return finalize


def batch_of(rows: Sequence[Response], every: int, dynamic: bool) -> Any:
    """A rank's mini-batch as it arrives at the engine. every: the rows of all ranks."""
    from tensordict import TensorDict
    from verl.utils import tensordict_utils

    def column(of: Callable[[Response], Any], dtype: torch.dtype = torch.int64) -> Any:
        values = [torch.as_tensor(of(row)).to(dtype) for row in rows]
        return torch.nested.as_nested_tensor(values, layout=torch.jagged)

    def floats(of: Callable[[Response], Any]) -> Any:
        return column(of, torch.float64)

    batch = TensorDict(
        {
            "input_ids": column(lambda row: [*row.prompt, *row.tokens]),
            "prompts": column(lambda row: row.prompt),
            "responses": column(lambda row: row.tokens),
            "response_mask": column(lambda row: row.senior),
            "loss_mask": column(lambda row: row.senior),
            "junior_mask": column(lambda row: row.junior),
            "old_log_probs": floats(lambda row: row.old),
            "ref_log_prob": floats(lambda row: [REFERENCE] * len(row.tokens)),
            "advantages": floats(lambda row: [row.advantage] * len(row.tokens)),
            "values": floats(lambda row: row.old),
            "teacher_logprobs": floats(
                lambda row: [[TEACHER]] * (len(row.prompt) + len(row.tokens))
            ),
            "returns": floats(lambda row: [row.advantage] * len(row.tokens)),
        },
        batch_size=len(rows),
    )
    tensordict_utils.assign_non_tensor(
        batch,
        temperature=1.0,
        use_dynamic_bsz=dynamic,
        max_token_len_per_gpu=24,
        micro_batch_size_per_gpu=2,
        global_batch_size=every,
        calculate_entropy=True,
    )
    return batch


def actor_of(mode: str) -> Any:
    """verl's configuration of an actor's loss; mode: its ``loss_agg_mode``."""
    from verl.workers.config import FSDPActorConfig

    return FSDPActorConfig(
        strategy="fsdp",
        ppo_micro_batch_size_per_gpu=1,
        ppo_mini_batch_size=8,
        rollout_n=4,
        use_kl_loss=True,
        kl_loss_coef=KL,
        kl_loss_type="low_var_kl",
        entropy_coeff=ENTROPY,
        loss_agg_mode=mode,
    )


def run_update(engine: Any, batch: Any, mode: str, weight: float) -> None:
    """One mini-batch through verl's engine and loss, with the adapter's term if it has a weight."""
    from verl.utils import tensordict_utils
    from verl.workers.utils.losses import ppo_loss

    from tandem_verl import loss as adapters

    loss, run = partial(ppo_loss, actor_of(mode)), engine.forward_backward_batch
    if weight:
        tensordict_utils.assign_non_tensor(batch, **{adapters.LAMBDA_JUN: weight})
        loss, run = partial(adapters.imitating, loss), partial(adapters.counting, run, engine)
    run(batch, loss)


def run_distillation(engine: Any, batch: Any) -> None:
    """One mini-batch through verl's engine, its loss with a teacher, and the adapter's guard."""
    from verl.trainer.distillation import distillation_ppo_loss
    from verl.workers.config import DistillationLossConfig

    from tandem_verl.loss import distilling

    loss = DistillationLossConfig(
        loss_mode="k1",
        use_task_rewards=False,
        use_policy_gradient=True,
        loss_max_clamp=None,
    )
    distillation = SimpleNamespace(distillation_loss=loss)
    verls = partial(distillation_ppo_loss, actor_of("token-mean"), distillation_config=distillation)
    engine.forward_backward_batch(batch, partial(distilling, verls))


def run_critics_update(engine: Any, batch: Any) -> None:
    """One mini-batch of the critic through verl's engine and loss."""
    from verl.workers.utils.losses import value_loss

    config = SimpleNamespace(
        cliprange_value=CLIP, loss_agg_mode="token-mean", loss_scale_factor=None
    )
    engine.forward_backward_batch(batch, partial(value_loss, config))


def relative_error(parameters: Mapping[str, Any], expected: Mapping[str, Any], of: Layout) -> float:
    """Of all parameters of all ranks together."""
    sums = torch.zeros(2, dtype=torch.float64)
    for name, parameter in parameters.items():
        part = own_part(expected[name], parameter, of)
        sums += torch.stack([(parameter.grad - part).norm() ** 2, part.norm() ** 2])
    distributed.all_reduce(sums)
    return float((sums[0] / sums[1]).sqrt())


def measure(rank: int, layouts: Sequence[Layout], port: int, results: Any) -> None:
    """One rank: every layout, micro-batching, aggregation mode and weight of the junior's term."""
    first = layouts[0]
    world = first.tp * first.pp * first.cp * first.dp
    _on_a_cpu()
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world)
    )
    distributed.init_process_group("gloo", rank=rank, world_size=world)
    from megatron.core import parallel_state

    rows = responses()
    cases = list(product(MODES, (0.0, LAMBDA_JUN)))
    parallel_state.initialize_model_parallel()
    plain = {case: plain_gradients(rows, *case) for case in cases}
    plain_others = {
        run_critics_update: plain_gradients_of_critic(rows),
        run_distillation: plain_gradients_of_distillation(rows),
    }
    parallel_state.destroy_model_parallel()
    for layout in layouts:
        parallel_state.initialize_model_parallel(
            layout.tp, layout.pp, context_parallel_size=layout.cp
        )
        own = rows[parallel_state.get_data_parallel_rank() :: layout.dp]
        # With context parallelism verl rounds a micro-batch's tokens down in this mode.
        per_tokens = (False, True) if layout.packed and layout.cp == 1 else (False,)
        for per_token, dynamic, case in product(per_tokens, (False, True), cases):
            config, model, parameters = build(layout, per_token)
            config.finalize_model_grads_func = finalizing(layout, parameters)
            batch = batch_of(own, len(rows), dynamic)
            run_update(engine_of(layout, config, model), batch, *case)
            error = relative_error(parameters, plain[case], layout)
            if rank == 0:
                named = f"{layout} per_token={per_token} dynamic={dynamic} {case[0]} {case[1]}"
                results[named] = error
        for dynamic, (update, expected) in product((False, True), plain_others.items()):
            critic = update is run_critics_update
            config, model, parameters = build(layout, critic=critic)
            config.finalize_model_grads_func = finalizing(layout, parameters)
            engine = engine_of(layout, config, model, critic=critic)
            update(engine, batch_of(own, len(rows), dynamic))
            error = relative_error(parameters, expected, layout)
            if rank == 0:
                results[f"{layout} dynamic={dynamic} {update.__name__}"] = error
        parallel_state.destroy_model_parallel()
    distributed.destroy_process_group()


def _on_a_cpu() -> None:
    """What verl and Megatron ask of CUDA, answered for a CPU in this process."""
    torch.set_num_threads(1)
    cpu = torch.device("cpu")
    torch.cuda.current_device = lambda: cpu  # type: ignore[assignment]
    torch.cuda.synchronize = lambda *_, **__: None  # type: ignore[assignment]
    torch.cuda.current_stream = lambda *_, **__: None  # type: ignore[assignment]
    zeros = torch.zeros

    def zeros_on_cpu(*args: Any, **options: Any) -> Any:
        if options.get("device") == "cuda":
            options["device"] = "cpu"
        return zeros(*args, **options)

    torch.zeros = zeros_on_cpu
    from verl.utils import device, seqlen_balancing
    from verl.workers.engine.megatron import transformer_impl

    transformer_impl.get_device_id = lambda: cpu
    seqlen_balancing.get_device_name = lambda: "cpu"
    device.get_device_id = lambda: cpu


def errors_of(layouts: Sequence[Layout]) -> dict[str, float]:
    """The relative errors of the gradients of layouts that need the same number of ranks."""
    import torch.multiprocessing

    first = layouts[0]
    world = first.tp * first.pp * first.cp * first.dp
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with torch.multiprocessing.Manager() as manager:
        results = manager.dict()
        torch.multiprocessing.spawn(measure, (layouts, port, results), nprocs=world)
        return dict(results)
