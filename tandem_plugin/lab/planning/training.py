"""What training takes of the GPUs that the engine is on: states, and what a micro-batch needs."""

from __future__ import annotations

from dataclasses import dataclass

from tandem_plugin.lab.planning.engine import layer_width
from tandem_plugin.lab.planning.parameters import layer_parameters, root_parameters
from tandem_plugin.lab.planning.wanted import Offload, Wanted

__all__ = ["FORMULAS", "States", "TrainingMemory", "states", "training_memory"]

FORMULAS = {
    "gathered parameters (verl)": "2 bytes x (embeddings + two layers) + 4 bytes x the larger of "
    "embeddings and a layer, for the gradient that is being reduced",
    "gathered parameters (OpenRLHF)": "2 bytes x up to 1e9 parameters (stage3_max_live_parameters) "
    "+ 4 bytes x up to 5e8 (reduce_bucket_size, in and out)",
    "training activations": "tokens of a micro-batch x (2 bytes x layers x hidden, what gradient "
    "checkpointing keeps + 4 bytes x (4 x hidden + the layer that is computed anew, values and "
    "gradients) + token ids x 8 bytes of logits and their gradients in verl, 12 in OpenRLHF, whose "
    "logits are float32)",
}
_LOGITS = {"verl": 8, "openrlhf": 12}
_BUCKET = {"verl": 2 * 2**30, "openrlhf": 0}
"""verl's buffer of a weight sync (``update_weights_bucket_megabytes``)."""
_LIVE, _REDUCED = 10**9, 5 * 10**8
"""DeepSpeed's ``stage3_max_live_parameters`` and ``reduce_bucket_size``."""


@dataclass(frozen=True, slots=True)
class States:
    """Bytes of the training's states on one GPU, sharded over all of them."""

    weights: int
    gradients: int
    optimizer: int
    """Adam's two moments, and where weights are bfloat16 their copies in float32."""
    reference: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.gradients + self.optimizer + self.reference


@dataclass(frozen=True, slots=True)
class TrainingMemory:
    """Bytes on one GPU, phase by phase."""

    update: States
    """While it trains."""
    resting: States
    """While the engine generates."""
    host: int
    """In the host's memory, for each GPU, all phases together."""
    gathered: int
    """An estimate: :data:`FORMULAS`."""
    per_token: int
    """For each token of a micro-batch. An estimate: :data:`FORMULAS`."""
    sync: int
    """Beside the resting weights, while they are sent to the engine."""


def training_memory(wanted: Wanted, offload: Offload) -> TrainingMemory:
    """verl with FSDP, or OpenRLHF with ZeRO-3 and ``--ds.enable_sleep``, on the engine's GPUs."""
    update, resting, host = states(wanted, offload)
    model = wanted.senior.geometry
    root = root_parameters(model)
    layer = layer_parameters(wanted.senior.parameters, model)
    table = model.vocabulary * model.hidden
    if wanted.user == "verl":
        gathered = 2 * (root + 2 * layer) + 4 * max(root, layer)
        sync = _BUCKET["verl"] + 6 * table  # one tensor whole, as it is and in the engine's type
    else:
        whole = wanted.senior.parameters
        gathered = 2 * min(whole, _LIVE) + 4 * min(whole, _REDUCED)
        sync = 2 * table
    kept = 2 * model.layers * model.hidden
    computed = 4 * (4 * model.hidden + layer_width(model))
    logits = _LOGITS[wanted.user] * model.vocabulary
    return TrainingMemory(update, resting, host, gathered, kept + computed + logits, sync)


def states(wanted: Wanted, offload: Offload) -> tuple[States, States, int]:
    """States while it trains, while the engine generates, and what is on the host, a GPU's share.

    verl 0.9.1 keeps weights, gradients and both moments in float32 (``fsdp_config.model_dtype``);
    ``param_offload`` and ``optimizer_offload`` move them out between updates, and a reference is
    on the host always. OpenRLHF 0.11.2 keeps weights and gradients in bfloat16, copies and moments
    in float32; ``--ds.enable_sleep`` moves all but the weights out between updates, and
    ``--ds.adam_offload`` keeps gradients, copies and moments there for good.
    """
    share = -(-wanted.senior.parameters // wanted.gpus)
    host = 0
    if wanted.user == "verl":
        update = States(4 * share, 4 * share, 8 * share, 0)
        resting = States(
            0 if offload == "all" else 4 * share, 0, 8 * share if offload == "none" else 0, 0
        )
        host = 12 * share - resting.total + (4 * share if wanted.reference else 0)
        return update, resting, host
    reference = 2 * share if wanted.reference else 0
    on_gpu = 0 if offload == "all" else reference
    host = reference - on_gpu + 14 * share
    if offload == "none":
        return (
            States(2 * share, 2 * share, 12 * share, on_gpu),
            States(2 * share, 0, 0, on_gpu),
            host,
        )
    return States(2 * share, 0, 0, on_gpu), States(2 * share, 0, 0, on_gpu), host
