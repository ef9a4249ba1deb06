"""Functions that run inside the engine's worker process."""

from __future__ import annotations

import hashlib
import itertools
import random
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from support.drafting import has_drafting


def digest(tensors: Any) -> str:
    """A hash of named tensors, bit by bit."""
    hasher = hashlib.sha256()
    for name, tensor in sorted(tensors, key=lambda pair: pair[0]):
        hasher.update(name.encode())
        hasher.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return hasher.hexdigest()


def holder(worker: Any) -> Any:
    """The model that holds the junior: the composite, or the draft model."""
    runner = worker.model_runner
    return runner.model if hasattr(runner.model, "junior") else runner.get_draft_model()


def junior_digest(worker: Any) -> str:
    """A hash of the junior's parameters, wherever the mode holds it."""
    return digest(holder(worker).junior.named_parameters())


def senior_digest(worker: Any) -> str:
    return digest(worker.model_runner.model.named_parameters())


def weight_bytes(worker: Any) -> tuple[int, int]:
    """Bytes of the senior's and the junior's parameters."""
    model = worker.model_runner.model
    senior, junior = (
        sum(p.numel() * p.element_size() for p in each.parameters())
        for each in (model, model.junior)
    )
    return senior, junior


def cache_groups(worker: Any) -> list[tuple[str, int]]:
    """Of each group of layers: the kind of its cache, and the tokens of a block."""
    specs = [group.kv_cache_spec for group in worker.model_runner.kv_cache_config.kv_cache_groups]
    return [(type(spec).__name__, spec.block_size) for spec in specs]


def bytes_of_the_juniors_own(worker: Any) -> int:
    """Of the junior's parameters, those that are not the senior's as well."""
    model = worker.model_runner.get_model()
    of_senior = {parameter.data_ptr() for parameter in model.parameters()}
    own = (p for p in model.junior.parameters() if p.data_ptr() not in of_senior)
    return sum(p.numel() * p.element_size() for p in own)


def rank(worker: Any) -> int:
    return int(worker.rank)


def warm_up_as_on_a_gpu(worker: Any) -> None:
    """What Model Runner V2 runs before the first request, and its worker on a CPU leaves out."""
    from vllm.v1.worker.gpu.warmup import run_mixed_prefill_decode_warmup, warmup_kernels

    runner = worker.model_runner
    runner.profile_run()
    worker.execute_dummy_batch()
    steps = worker.execute_model, worker.sample_tokens
    warmup_kernels(runner, *steps)
    assert run_mixed_prefill_decode_warmup(runner, *steps, 12)


def parameter_names(worker: Any) -> list[str]:
    return [name for name, _ in worker.model_runner.model.named_parameters()]


def junior_buffer_names(worker: Any) -> list[str]:
    """The tensors of the junior among the buffers of the model that holds it.

    What a deep sleep saves and restores, as vLLM's worker finds it.
    """
    held = holder(worker)
    own = {parameter.data_ptr() for parameter in held.junior.parameters()}
    return [name for name, buffer in held.named_buffers() if buffer.data_ptr() in own]


def sync(
    worker: Any, checkpoint: str, bucket: int, processed: bool = True, shuffled: bool = False
) -> int:
    """A weight sync as trainers do it: plain names, in buckets, then processing once, or never."""
    from vllm.model_executor.model_loader.utils import process_weights_after_loading

    model = worker.model_runner.model
    tensors = load_file(Path(checkpoint) / "model.safetensors")
    weights = list(tensors.items())
    if "lm_head.weight" not in tensors:  # tied: verl sends it under both names
        (tied,) = [name for name in tensors if name.endswith("embed_tokens.weight")]
        weights.append(("lm_head.weight", tensors[tied]))
    if shuffled:
        random.Random(checkpoint).shuffle(weights)
    for start in range(0, len(weights), bucket):
        model.load_weights(weights[start : start + bucket])
    if processed:
        process_weights_after_loading(model, worker.model_config, worker.device)
    return len(tensors)


def reload(worker: Any, checkpoint: str) -> None:
    """vLLM's own reloading in place, from tensors that a trainer hands over."""
    weights = load_file(Path(checkpoint) / "model.safetensors")
    worker.reload_weights(weights_iterator=iter(weights.items()))


def break_speculation(worker: Any, fault: str) -> None:
    """Make the engine wrong: no rule for the token behind the drafts, or first tokens always the
    senior's."""
    from tandem_plugin.engine.speculative.samplers import AuthorRejectionSampler
    from tandem_plugin.engine.speculative.state import SpeculativeState

    def no_rule(self: Any, output: Any, *rest: Any) -> Any:
        return output

    def no_junior(self: Any, logits: Any, *rest: Any) -> Any:
        return logits

    target, name, wrong = {
        "bonus": (AuthorRejectionSampler, "_without_juniors_bonus", no_rule),
        "first token": (SpeculativeState, "fill_undrafted_rows", no_junior),
    }[fault]
    _broken[target, name] = getattr(target, name)
    setattr(target, name, wrong)


def vary_drafts(worker: Any, seed: int = 0) -> None:
    """Let each round have another length of the engine's table, drawn anew at every step.

    Of the scheduler, which lives in the worker's process here.
    """
    import random

    from vllm.v1.core.sched.scheduler import Scheduler

    drawn, before = random.Random(seed), [0]
    theirs = Scheduler.schedule

    def schedule(self: Any, *args: Any, **options: Any) -> Any:
        own = self.dynamic_sd_lookup
        # Now and then the same once more: rounds without drafts follow each other, too.
        if drawn.random() > 0.4:
            before[0] = drawn.choice(sorted(set(own[1:])))
        self.dynamic_sd_lookup = [before[0]] * len(own)
        try:
            return theirs(self, *args, **options)
        finally:
            self.dynamic_sd_lookup = own

    _broken.setdefault((Scheduler, "schedule"), theirs)
    Scheduler.schedule = schedule


def preempt_all_every(worker: Any, steps: int) -> None:
    """Let the scheduler preempt all running requests every so many steps."""
    from vllm.v1.core.sched.scheduler import Scheduler

    theirs, taken = Scheduler.schedule, itertools.count(1)

    def schedule(self: Any, *args: Any, **options: Any) -> Any:
        if next(taken) % steps == 0:
            self.reset_prefix_cache(reset_running_requests=True)
        return theirs(self, *args, **options)

    _broken.setdefault((Scheduler, "schedule"), theirs)
    Scheduler.schedule = schedule


def note_steps(worker: Any) -> None:
    """Let the scheduler's steps be noted: :func:`noted_steps`."""
    from vllm.v1.core.sched.scheduler import Scheduler

    theirs = Scheduler.schedule

    def schedule(self: Any, *args: Any, **options: Any) -> Any:
        output = theirs(self, *args, **options)
        if output.num_scheduled_tokens:
            drafted = {len(drafts) for drafts in output.scheduled_spec_decode_tokens.values()}
            scheduled, asked = len(output.num_scheduled_tokens), output.num_spec_tokens_to_schedule
            _steps.append((len(self.running), scheduled, asked, sorted(drafted)))
        return output

    _broken.setdefault((Scheduler, "schedule"), theirs)
    Scheduler.schedule = schedule


def drafts_by_size(worker: Any) -> list[int]:
    """The scheduler's number of drafts for each batch size, from one request on."""
    lookup: list[int] = _core().scheduler.dynamic_sd_lookup
    return lookup[1:]


def choose_drafts_by(worker: Any, seconds: dict[int, dict[int, float]]) -> dict[int, int]:
    """Let the engine choose its drafts anew, by these times of steps instead of its own."""
    from tandem_plugin.engine.speculative.step_timing import choose_drafts

    return choose_drafts(_core(), lambda size, drafts: seconds.get(size, {}).get(drafts))  # type: ignore[arg-type]


def _core() -> Any:
    """The engine core in whose process this worker is: it has called."""
    from vllm.v1.engine.core import EngineCore

    frame = sys._getframe()
    while frame is not None:
        if isinstance(core := frame.f_locals.get("self"), EngineCore):
            return core
        frame = frame.f_back  # type: ignore[assignment]
    raise AssertionError("the worker is in a process of its own")


def noted_steps(worker: Any) -> list[tuple[int, int, int, list[int]]]:
    """Of each step: the requests that ran, those that it took in, the drafts that it asked for, and
    the numbers of drafts that it checked."""
    return _steps


_steps: list[tuple[int, int, int, list[int]]] = []


def mend_speculation(worker: Any) -> None:
    while _broken:
        (target, name), right = _broken.popitem()
        setattr(target, name, right)


_broken: dict[tuple[type, str], Any] = {}


def kept_scores(worker: Any) -> int:
    """Of how many requests the scores of tokens are kept."""
    return len(worker.model_runner.get_model().tandem_measures.token_log._tokens)


def drafts_bytes(worker: Any) -> tuple[int, int, bool]:
    """What drafting keeps on the device: as it is, and as it was computed.

    And whether what a round needs was set aside.
    """
    from tandem_plugin.engine.speculative.memory import draft_memory

    runner = worker.model_runner
    kept = runner.speculator.draft_logits.nbytes + runner.speculator.hidden.nbytes
    return kept, draft_memory(runner.vllm_config).kept, runner.sampler._is_profiled


def graph_replays(worker: Any) -> dict[str, int]:
    """How many CUDA graphs of each mode an engine with the stand-in for them has asked for."""
    from support.graphs.worker import replays

    return {mode: replays[mode] for mode in ("FULL", "PIECEWISE", "ROUND")}


def forked_captures(worker: Any) -> int:
    """How many graphs of an engine with the stand-in for them run the junior on its own stream."""
    from support.graphs.streams import forks

    return forks["all"]


def has_junior_stream(worker: Any) -> bool:
    held = worker.model_runner.get_model()
    return (held.unwrap() if hasattr(held, "unwrap") else held).tandem_junior_stream is not None


def join_afterwards(worker: Any) -> None:
    """Make lockstep wrong: both models run, and then their hidden states are read."""
    held = worker.model_runner.get_model()
    # On V1 a wrapper that captures whole steps holds the model.
    model = type(held.unwrap() if hasattr(held, "unwrap") else held)

    def forward(self: Any, input_ids: Any, positions: Any, *rest: Any, **options: Any) -> Any:
        senior = self._senior.forward(self, input_ids, positions, *rest, **options)
        return torch.cat([senior, self.junior(input_ids, positions)], dim=-1)

    _broken[model, "forward"] = model.forward
    model.forward = forward


join_as_before = mend_speculation


def wait_for_the_authors(worker: Any) -> None:
    """Let each step look on the host at what decides its logits."""
    from tandem_plugin.engine.heads import Heads
    from tandem_plugin.engine.speculative.draft_model import TandemJunior

    for kind, name in (Heads, "_of_senior"), (Heads, "_of_junior"), (TandemJunior, "logits"):
        original = getattr(kind, name)

        def looking(self: Any, hidden: Any, original: Any = original) -> Any:
            assert hidden.sum().item() is not None
            return original(self, hidden)

        setattr(kind, name, looking)
    if has_drafting():
        _wait_for_the_rounds_slots()


def _wait_for_the_rounds_slots() -> None:
    """The rest of a round lies in a graph, captured by now."""
    from tandem_plugin.engine.speculative.speculator import JuniorSpeculator

    fill = JuniorSpeculator._fill_with_padding

    def looking(self: Any) -> None:
        assert self.idx_mapping.sum().item() is not None
        fill(self)

    JuniorSpeculator._fill_with_padding = looking


def ban(worker: Any, ids: list[int]) -> None:
    """Mask ids as verl's worker extension does, around the logits of the engine's own model.

    Source: verl 0.9.1's ``monkey_patch_compute_logits``, which puts a method on the instance.
    """
    model = worker.model_runner.model
    original = model.compute_logits

    def compute_logits(*arguments: Any, **options: Any) -> torch.Tensor:
        logits: torch.Tensor = original(*arguments, **options)
        return logits.index_fill_(-1, torch.tensor(ids), -torch.inf)

    model.compute_logits = compute_logits


def lift_ban(worker: Any) -> None:
    del worker.model_runner.model.compute_logits
