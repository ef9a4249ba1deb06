"""What tests of OpenRLHF's trainer share: tiny models, the rule they follow, what was captured."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from readme import command_with_flag

from support.models import make_model
from support.openrlhf_run import OpenRLHFBench
from tandem_plugin import Rule, TandemConfig, TandemRules, Vocabulary
from tandem_plugin.seeds import derive_seed

_, _, COMMAND, *FLAGS = command_with_flag("openrlhf")
"""README's: the module of ``python -m``, and its flags."""

SEED, STEPS, PROMPTS, SAMPLES = 7, 2, 4, 4
"""Of every run unless it says otherwise."""

NOISE = 1e-4
"""How far ``vllm_kl`` may be from zero: trainer and engine compute in bfloat16."""


@dataclass(frozen=True)
class OpenRLHFSetup:
    """A senior and a junior, the bench they are trained on, and the rule that they follow."""

    bench: OpenRLHFBench
    flags: list[str]
    """Tandem's own flags."""
    junior: str
    rule: Rule

    @classmethod
    def make(cls, folder: Path, tokenizer: Any, device: str = "cpu") -> OpenRLHFSetup:
        """Models less peaked than the engine's tests have them, since bfloat16 rounds logits."""
        for seed, name in enumerate(("senior", "junior")):
            make_model(folder / name, seed=seed, tokenizer=tokenizer, spread=0.01)
        junior = f"--tandem.junior={folder / 'junior'}"
        flags = [*FLAGS, "--tandem.cap", "6", f"--tandem.seed={SEED}", junior]
        config = TandemConfig.from_mapping({"schedule": "word", "cap": 6})
        rule = TandemRules(config, Vocabulary.from_path(folder / "senior")).default
        bench = OpenRLHFBench.make(folder / "bench", folder / "senior", device)
        return cls(bench, flags, junior, rule)


def batches(captured: Path) -> list[list[dict[str, Any]]]:
    """The responses of each step, as the trainer admitted them."""
    count = len(list(captured.glob("rows-*.json")))
    return [json.loads((captured / f"rows-{step}.json").read_text()) for step in range(count)]


def imitations(captured: Path) -> list[dict[str, torch.Tensor]]:
    """What the term that imitates the junior was of each micro-batch."""
    count = len(list(captured.glob("imitation-*.pt")))
    return [torch.load(captured / f"imitation-{i}.pt") for i in range(count)]


def losses(captured: Path) -> list[dict[str, torch.Tensor]]:
    """What reached the loss, one entry a micro-batch."""
    count = len(list(captured.glob("loss-*.pt")))
    return [torch.load(captured / f"loss-{i}.pt") for i in range(count)]


def differences(captured: Path) -> torch.Tensor:
    """By how much the actor's log p of each trained token is above the engine's: float32, nats."""
    found = []
    for loss in losses(captured):
        mask = loss["mask"][0].bool()
        found.append((loss["log_probs"].float() - loss["rollout_log_probs"].float())[0][mask])
    return torch.cat(found)


def advantages(captured: Path) -> list[list[dict[str, torch.Tensor]]]:
    """What the responses of each step were worth, in the order of the prompts."""
    count = len(list(captured.glob("advantages-*.pt")))
    return [torch.load(captured / f"advantages-{step}.pt") for step in range(count)]


def replayed(row: dict[str, Any], rule: Rule) -> list[int]:
    """The mask that the row must have: one bit for each token but the first."""
    mask = [0] * len(row["tokens"])
    for seed, start, stop in row["segments"]:
        mask[start:stop] = rule.replay(row["tokens"][start:stop], seed).tolist()
    return mask[1:]


def assert_masks_are_the_replay(captured: Path, rule: Rule) -> None:
    """Every mask that reached the loss, in any order, has the bits of some response's replay."""
    rows = itertools.chain.from_iterable(batches(captured))
    masks = [loss["mask"][0].int().tolist() for loss in losses(captured)]
    assert Counter(map(tuple, masks)) == Counter(tuple(replayed(row, rule)) for row in rows)


def seeds_of(numbers: range) -> set[int]:
    """The seeds of the first calls for these prompts of a run."""
    places = itertools.product(numbers, range(SAMPLES))
    return {derive_seed(SEED, "training", number, sample, 0) for number, sample in places}
