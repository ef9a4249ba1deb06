"""verl's loss in the actor: the junior-imitation term, and distillation through empty masks.

Imported in runs with ``lambda_jun`` or distillation. A subclass of the training workers wraps
verl's loss; nothing of verl is patched.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from verl.single_controller.base.decorator import Dispatch, register
from verl.utils import tensordict_utils
from verl.utils.metric import AggregationType, Metric
from verl.workers.utils.padding import no_padding_2_padding

from tandem_plugin.patching.subclasses import Mixin
from tandem_plugin.training.imitation import imitation_loss
from tandem_plugin.training.rows import Row

if TYPE_CHECKING:
    from tensordict import TensorDict
    from transfer_queue import KVBatchMeta
    from verl.workers.engine import BaseEngine

JUNIOR_MASK = "junior_mask"
"""The column with the junior's tokens to imitate, 0 or 1."""

LAMBDA_JUN = "tandem_lambda_jun"
"""The weight of the junior-imitation term, among a batch's settings on its way to the workers."""

JUNIOR_TOKENS = "tandem_junior_tokens"
"""The number of tokens to imitate in a mini-batch, over all ranks."""


def replace_workers(roles: dict[Any, Any]) -> None:
    """Let the workers that train the senior wrap their loss.

    roles: a trainer's ``role_worker_mapping``, which changes.
    """
    for role, worker in roles.items():
        if "actor" in str(role):
            roles[role] = WrappingWorker.tandem_over(worker)


class WrappingWorker(Mixin):
    """Before verl's ``ActorRolloutRefWorker``."""

    role: str
    actor: Any
    distillation_enabled: bool

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)  # type: ignore[untyped-decorator]
    def init_model(self) -> None:
        super().init_model()
        if "actor" in self.role:
            loss = self.actor.loss_fn
            if self.distillation_enabled:
                loss = functools.partial(distilling, loss)
            self.actor.set_loss_fn(functools.partial(imitating, loss))
            engine = self.actor.engine
            engine.forward_backward_batch = functools.partial(
                counting, engine.forward_backward_batch, engine
            )


def distilling(
    loss_function: Callable[..., Any], *, data: Any, model_output: Any = None, **options: Any
) -> Any:
    """verl's distillation loss of a micro-batch; 0, with a graph, where no token is trained.

    verl takes minima over a micro-batch's trained tokens, and raises where there is none. Such a
    micro-batch lends it one token for its metrics: minima, maxima and means may contain that
    token's, sums do not. Called without ``model_output``, verl's function computes its top-k
    losses from logits.
    """
    mask = data["response_mask"]
    if model_output is None or (mask.values() if mask.is_nested else mask).any():
        return loss_function(model_output=model_output, data=data, **options)
    lent_mask = mask.clone()
    (lent_mask.values() if lent_mask.is_nested else lent_mask.view(-1))[0] = 1
    lent = data.copy()
    lent["response_mask"] = lent_mask
    _, metrics = loss_function(model_output=model_output, data=lent, **options)
    tensors = [tensor.values() if tensor.is_nested else tensor for tensor in model_output.values()]
    zero = sum(0.0 * tensor.sum() for tensor in tensors if tensor.requires_grad)
    summed = {
        name: Metric(value=0.0, aggregation=AggregationType.SUM)
        for name, metric in metrics.items()
        if isinstance(metric, Metric) and metric.aggregation == AggregationType.SUM
    }
    return zero, {**metrics, **summed}


def imitating(
    loss_function: Callable[..., Any],
    *,
    data: TensorDict,
    model_output: Mapping[str, Any] | None = None,
    **options: Any,
) -> Any:
    """verl's loss and metrics of a micro-batch, with the term if its batch carries the weight."""
    computed = loss_function(model_output=model_output, data=data, **options)
    weight = tensordict_utils.get_non_tensor_data(data, LAMBDA_JUN, 0.0)
    if model_output is None or not weight:
        return computed
    loss, metrics = computed
    log_probs = no_padding_2_padding(model_output["log_probs"], data)
    mask = data[JUNIOR_MASK]
    if mask.is_nested:
        mask = mask.to_padded_tensor(0, (len(log_probs), log_probs.shape[1]))
    term, logged = imitation_loss(log_probs, mask, data[JUNIOR_TOKENS], data["dp_size"])
    for name, value in logged.items():
        metrics[name] = Metric(value=value, aggregation=AggregationType.SUM)
    return loss + weight * term, metrics


def counting(
    run: Callable[..., Any], engine: BaseEngine, data: TensorDict, *arguments: Any, **options: Any
) -> Any:
    """Count a mini-batch's tokens to imitate, over all ranks, before it is split and ``run``."""
    if tensordict_utils.get_non_tensor_data(data, LAMBDA_JUN, 0.0):
        from verl.utils.device import get_device_id

        mask = data[JUNIOR_MASK]
        count = (mask.values() if mask.is_nested else mask).sum().to(get_device_id())
        torch.distributed.all_reduce(count, group=engine.get_data_parallel_group())
        tensordict_utils.assign_non_tensor(data, **{JUNIOR_TOKENS: count.item()})
    return run(data, *arguments, **options)


def send_to_workers(
    batch: KVBatchMeta, rows: Sequence[Row], tq: ModuleType, lambda_jun: float
) -> KVBatchMeta:
    """A V1 batch that carries what is to be imitated, and with which weight.

    rows: the batch's, which were admitted; padding imitates nothing. tq: TransferQueue, where the
    batch gets a column more.
    """
    from tensordict import TensorDict

    masks = torch.nested.as_nested_tensor(
        [
            _to_imitate(row, bool(tag.get("is_padding")))
            for row, tag in zip(rows, batch.tags, strict=True)
        ],
        layout=torch.jagged,
    )
    column = TensorDict({JUNIOR_MASK: masks}, batch_size=len(rows))
    meta = tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=column)
    meta.tags = batch.tags
    meta.extra_info = {**batch.extra_info, LAMBDA_JUN: lambda_jun}
    return meta


def _to_imitate(row: Row, is_padding: bool) -> torch.Tensor:
    """The tokens of an admitted row to imitate, 0 or 1 ``[length]``; padding has none."""
    if is_padding or row.facts is None:
        return torch.zeros(len(row.response_ids), dtype=torch.int64)
    return torch.from_numpy(row.facts.junior_mask.astype("int64"))
