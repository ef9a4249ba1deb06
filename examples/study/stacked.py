"""Teaching, writing and GRPO for a stack of models: ``light.grpo`` with the models first."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from chains import Chains, GpuSize, split_chains
from light import study
from light.grpo import Method, advantages, policy_loss
from light.responses import Team
from light.runs import TAUGHT
from light.task import reward
from stack import AdamW, Reader, Stack
from torch import Tensor

from tandem_plugin.rules import Rule
from tandem_plugin.seeds import derive_seed

TEACHING_RATE = 5e-5
WARMUP = 20
"""Steps over which the teaching's rate rises."""


@dataclass(frozen=True, slots=True)
class Run(study.Run):
    """A training of the stack; without a method, the seed's model as it was taught."""

    seed: int
    method: Method | None

    @property
    def stream(self) -> int:
        """What its random numbers are drawn by: the seed, or a repeated training's own."""
        repeat = 0 if self.method is None else self.method.repeat
        return derive_seed(self.seed, "repeat", repeat) if repeat else self.seed

    @property
    def cowritten(self) -> bool:
        """Whether the junior writes in its training."""
        return self.method is not None and self.method.is_cowritten

    @property
    def name(self) -> str:
        return f"seed {self.seed} {TAUGHT if self.method is None else self.method.name}"


class Noise:
    """The random numbers of sampling: each seed its own, shared by its models."""

    def __init__(self, seeds: Sequence[int], device: torch.device, *purpose: str | int) -> None:
        """seeds: of each model."""
        self._places = [list(dict.fromkeys(seeds)).index(seed) for seed in seeds]
        self._generators = [
            torch.Generator(device).manual_seed(derive_seed(seed, *purpose) % 2**63)
            for seed in dict.fromkeys(seeds)
        ]

    def token(self, logits: Tensor) -> Tensor:
        """A sample of each row: int64 ``[M, batch]`` of float32 ``[M, batch, V]``."""
        drawn = [
            torch.empty_like(logits[0]).exponential_(generator=one).log_()
            for one in self._generators
        ]
        return torch.stack(
            [
                (own - drawn[place]).argmax(-1)
                for own, place in zip(logits, self._places, strict=True)
            ]
        )


@dataclass(frozen=True, slots=True)
class Written:
    """Responses of all models. ids: int64 ``[M, batch, longest]``. written, senior: bool of the
    same shape, which of them are the response's and whose."""

    ids: Tensor
    written: Tensor
    senior: Tensor


@torch.no_grad()
def write(
    reader: Reader,
    prompts: Tensor,
    task: Chains,
    team: Team | None,
    cowritten: Tensor,
    noise: Noise,
    temperature: float,
) -> Written:
    """One response to each prompt ``[M, batch, length]``.

    team: whose tokens they are, of ``M * batch`` responses. cowritten: bool ``[M]``, where the
    junior writes its own; elsewhere the senior writes them all. The reader's seniors with a junior
    are at least those.
    """
    models, batch, start = prompts.shape
    shape = models, batch, task.longest
    ids = torch.full(shape, task.end, device=prompts.device)
    written = torch.zeros(shape, dtype=torch.bool, device=prompts.device)
    senior = torch.ones_like(written)
    going = torch.ones(models, batch, dtype=torch.bool, device=prompts.device)
    beside = reader.beside
    logits, others = reader.prompts(prompts)
    for place in range(task.longest):
        chosen = logits.float()
        if team is not None:
            senior[..., place] = team.author.view(models, batch)
            if others is not None:
                by_junior = (~senior[..., place] & cowritten[:, None])[beside, :, None]
                chosen[beside] = torch.where(by_junior, others.float(), chosen[beside])
        token = torch.where(going, noise.token(chosen / temperature), task.end)
        ids[..., place] = token
        written[..., place] = going
        going = going & (token != task.end)
        if place + 1 == task.longest or (place % 8 == 7 and not going.any()):
            break
        if team is not None:
            team.advance(token.flatten(), place + 1)
        logits, others = reader.token(token, start + place)
    return Written(ids, written, senior)


def teach(task: Chains, base: Stack, seeds: Sequence[int], size: GpuSize) -> Stack:
    """A start for each seed, taught with worked chains of its own."""
    stack = base.pick([0] * len(seeds))
    optimizer = AdamW(stack, torch.full((len(seeds),), TEACHING_RATE, device=base.device), 0.0)
    chains = [split_chains(size, seed).teaching for seed in seeds]
    for step in range(size.taught):
        parts = [of_seed[16 * step : 16 * step + 16] for of_seed in chains]
        rngs = [random.Random(derive_seed(seed, "wording", step)) for seed in seeds]
        prompts = torch.stack([task.prompts(part) for part in parts])
        answers = [
            [task.answer_ids(one.worked(rng)) for one in part]
            for part, rng in zip(parts, rngs, strict=True)
        ]
        longest = max(len(ids) for of_seed in answers for ids in of_seed)
        padded = torch.full((len(seeds), 16, longest), task.end)
        shown = torch.zeros(padded.shape, dtype=torch.bool)
        for place, of_seed in enumerate(answers):
            for row, ids in enumerate(of_seed):
                padded[place, row, : len(ids)] = torch.tensor(ids)
                shown[place, row, : len(ids)] = True
        padded, shown = padded.to(base.device), shown.to(base.device)
        whole = torch.cat((prompts.to(base.device), padded), 2)
        with _autocast(base.device):
            found = _log_probs(stack, whole, prompts.shape[2], 1.0)
        losses = -(found * shown).sum((1, 2)) / shown.sum((1, 2))
        losses.sum().backward()
        optimizer.step(min(1.0, (step + 1) / WARMUP))
        if step % 20 == 19 or step + 1 == size.taught:
            listed = " ".join(f"{loss:.3f}" for loss in losses.tolist())
            print(f"taught {step + 1} of {size.taught} batches, loss {listed}", flush=True)
    return stack.pick(range(len(seeds)))


def _autocast(device: torch.device) -> torch.autocast:
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda")


def decoding_type(device: torch.device) -> torch.dtype:
    """What is decoded in."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def _log_probs(stack: Stack, ids: Tensor, start: int, temperature: float) -> Tensor:
    """log p of each response token: float32 ``[M, batch, longest]``."""
    logits = stack.response_logits(ids, start).float() / temperature
    return logits.gather(-1, ids[:, :, start:, None]).squeeze(-1) - logits.logsumexp(-1)


@dataclass(frozen=True, slots=True)
class Step:
    """A step of all trainings. rewards, trained: of each, its mean and the tokens of its loss."""

    number: int
    seniors: Stack
    rewards: list[float]
    trained: list[int]


def train(
    task: Chains,
    starts: Stack,
    seeds: Sequence[int],
    runs: Sequence[Run],
    rates: Sequence[float],
    size: GpuSize,
) -> Iterator[Step]:
    """Train a copy of its seed's start for each run, all at once.

    starts: of each of ``seeds``, in order. rates: of each run. GRPO as in ``light.grpo``; runs of
    a seed share prompts, draws and the noise of sampling, but for repeats of a method.
    """
    sizes, device = size.training, starts.device
    homes = [seeds.index(run.seed) for run in runs]
    seniors = starts.pick(homes)
    optimizer = AdamW(seniors, torch.tensor(rates, device=device))
    # ``solo-word`` marks what ``word`` would give the senior.
    schedules = [
        None if run.method is None else (run.method.schedule or "").removeprefix("solo-") or None
        for run in runs
    ]
    rules = {name: task.rule(name) for name in schedules if name}
    if len(rules) > 1:
        raise ValueError(f"A stack has one schedule, not {', '.join(rules)}.")
    rule = next(iter(rules.values()), None)
    solo = torch.tensor([name is None for name in schedules], device=device)[:, None, None]
    shared = [place for place, name in enumerate(schedules) if name]
    cowritten = torch.tensor([run.cowritten for run in runs], device=device)
    beside = [place for place, run in enumerate(runs) if run.cowritten]
    decoding = seniors.pick(range(len(runs)), decoding_type(device))
    juniors = starts.pick([homes[at] for at in beside], decoding_type(device)) if beside else None
    chains = {seed: split_chains(size, seed).training for seed in seeds}
    streams = {run.stream: run.seed for run in runs}
    orders = {stream: random.Random(derive_seed(stream, "order")) for stream in streams}
    batch = sizes.prompts * sizes.group
    noise = Noise([run.stream for run in runs], device, "training")
    reader: Reader | None = None
    for number in range(1, sizes.steps + 1):
        chosen_chains = {
            stream: orders[stream].sample(chains[seed], sizes.prompts)
            for stream, seed in streams.items()
        }
        rows = [
            [one for one in chosen_chains[run.stream] for _ in range(sizes.group)] for run in runs
        ]
        prompts = torch.stack([task.prompts(of_run) for of_run in rows]).to(device)
        start = prompts.shape[2]
        reader = reader or Reader(decoding, juniors, beside, batch, start + task.longest)
        decoding.take(seniors)
        drawn = [derive_seed(run.stream, number, row) for run in runs for row in range(batch)]
        team = None if rule is None else Team(rule, drawn, task.longest, device)
        made = write(reader, prompts, task, team, cowritten, noise, sizes.temperature)
        if rule is not None:
            check_replay(rule, made, drawn, shared)
        texts = task.texts(made.ids.flatten(0, 1), made.written.flatten(0, 1))
        golds = [one.answer for of_run in rows for one in of_run]
        rewards = torch.tensor([reward(*pair) for pair in zip(texts, golds, strict=True)])
        weights = advantages(rewards.view(-1, sizes.group)).view(len(runs), batch).to(device)
        trained = made.written & (made.senior | solo)
        whole = torch.cat((prompts, made.ids), 2)
        old = _old_log_probs(seniors, whole, start, size)
        for part in torch.arange(batch, device=device).chunk(sizes.updates):
            counts = trained[:, part].sum((1, 2)).clamp(min=1)
            for rows_of in part.split(size.micro):
                with _autocast(device):
                    now = _log_probs(seniors, whole[:, rows_of], start, sizes.temperature)
                losses = policy_loss(now, old[:, rows_of], weights[:, rows_of, None], sizes.clip)
                sums = (losses * trained[:, rows_of]).sum((1, 2))
                (sums / counts).sum().backward()
            optimizer.step(min(1.0, number / sizes.warmup))
        means = rewards.view(len(runs), batch).mean(1).tolist()
        yield Step(number, seniors, means, trained.sum((1, 2)).tolist())


def check_replay(rule: Rule, made: Written, seeds: Sequence[int], places: Sequence[int]) -> None:
    """Raise RuntimeError where the models at these places were written by others than replay says.

    seeds: of every response, model by model.
    """
    batch = made.ids.shape[1]
    for place in places:
        lengths = made.written[place].sum(1).tolist()
        ids = [row[:one] for row, one in zip(made.ids[place].tolist(), lengths, strict=True)]
        replayed = rule.replay_batch(ids, list(seeds[place * batch : place * batch + batch]))
        for row, found in enumerate(replayed):
            recorded = made.senior[place, row, : lengths[row]].cpu().numpy()
            if not np.array_equal(recorded, np.array(found.senior)):
                raise RuntimeError("The record of who wrote what differs from its replay.")


@torch.no_grad()
def _old_log_probs(seniors: Stack, ids: Tensor, start: int, size: GpuSize) -> Tensor:
    with _autocast(seniors.device):
        parts = [
            _log_probs(seniors, part, start, size.training.temperature)
            for part in ids.split(size.micro, 1)
        ]
    return torch.cat(parts, 1)
