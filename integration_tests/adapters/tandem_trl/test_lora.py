"""Every option of PEFT's LoraConfig in TRL: the engine's senior is PEFT's, its junior the base.

One engine takes adapters, one merged weights; each option's adapter is updated once and sent to
that of the two to which a trainer would send it.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl.scripts", reason="TRL is not installed")

import peft
import torch
from support.families import make_family
from support.requests import PROMPTS

from tandem_plugin import TandemConfig, TandemRules, Vocabulary
from tandem_trl import engine as adapter

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]
SETTINGS = {"schedule": "word", "cap": 4}
LENGTH = 24
BASES = {
    "plain": "qwen3",
    "tied": "qwen3-tied",
    "biased": "qwen2-biased",
}
"""The families of the bases."""
MODULES = "all-linear"
TOKENS = [5, 17, 40, 90]


@dataclasses.dataclass(frozen=True)
class Case:
    """An adapter: what it sets, on which base, and whether it is sent alone."""

    name: str
    is_sent: bool
    base: str = "plain"
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def sent(name: str, base: str = "plain", **options: Any) -> Case:
    return Case(name, True, base, options)


def merged(name: str, base: str = "plain", **options: Any) -> Case:
    return Case(name, False, base, options)


SOUND = [
    sent("r and lora_alpha", r=12, lora_alpha=30),
    sent("lora_dropout", lora_dropout=0.3),
    sent("use_rslora", use_rslora=True, r=12),
    sent("target_modules as a pattern", target_modules=r".*\.(q_proj|down_proj)"),
    sent("exclude_modules", exclude_modules=["down_proj"]),
    sent("layers_to_transform", target_modules=["q_proj"], layers_to_transform=[1]),
    sent(
        "layers_pattern", target_modules=["q_proj"], layers_to_transform=1, layers_pattern="layers"
    ),
    sent("fan_in_fan_out", fan_in_fan_out=True),
    sent("bias", bias="none"),
    merged("bias of all", "biased", bias="all"),
    merged("bias of LoRA's", "biased", bias="lora_only"),
    merged("lora_bias", "biased", lora_bias=True, target_modules=["q_proj", "v_proj"]),
    merged("modules_to_save of a norm", modules_to_save=["norm"]),
    merged("modules_to_save of both ends", modules_to_save=["embed_tokens", "lm_head"]),
    merged(
        "ensure_weight_tying", "tied", modules_to_save=["embed_tokens"], ensure_weight_tying=True
    ),
    merged("target_modules at the ends", target_modules=["embed_tokens", "lm_head", "q_proj"]),
    merged("rank_pattern", rank_pattern={"q_proj": 4}),
    merged("alpha_pattern", alpha_pattern={"q_proj": 64}),
    merged("trainable_token_indices", trainable_token_indices=TOKENS),
    merged("trainable_token_indices, tied", "tied", trainable_token_indices=TOKENS),
    merged(
        "trainable_token_indices of both ends",
        trainable_token_indices={"embed_tokens": TOKENS, "lm_head": TOKENS[:2]},
    ),
    merged("target_parameters", target_modules=[], target_parameters=["mlp.up_proj.weight"]),
    merged("use_dora", use_dora=True),
    merged("kasa_config", kasa_config={}),
    merged("velora_config", velora_config={}),
    merged("monteclora_config", monteclora_config={}),
    merged(
        "use_bdlora",
        use_bdlora={"target_modules_bd_a": ["q_proj"], "target_modules_bd_b": ["o_proj"]},
        target_modules=["q_proj", "o_proj"],
    ),
    sent("init_lora_weights=False", init_lora_weights=False),
    sent("init_lora_weights=gaussian", init_lora_weights="gaussian"),
    sent("init_lora_weights=orthogonal", init_lora_weights="orthogonal"),
    *(
        merged(f"init_lora_weights={way}", init_lora_weights=way)
        for way in ("mica", "pissa", "pissa_niter_4", "olora", "eva")
    ),
    merged("init_lora_weights=corda", init_lora_weights="corda", target_modules=["q_proj"]),
    sent("init_lora_weights=lora_ga", init_lora_weights="lora_ga"),
    sent("use_qalora", use_qalora=True),  # of GPTQ's layers alone; elsewhere it has no effect
]
"""Adapters whose senior the engine has exactly."""


REJECTED = {
    "layer_replication": "rejected",
    "alora_invocation_tokens": "rejected",
    "arrow_config": "PEFT needs trained adapters to route between",
    "megatron_config": "PEFT needs Megatron",
    "loftq_config": "PEFT needs bitsandbytes",
}
"""Options without a run; ``tests/adapters/tandem_trl/test_lora.py`` tests what is rejected."""

NEUTRAL = {
    *("peft_type", "peft_version", "auto_mapping", "base_model_name_or_path", "revision"),
    *("task_type", "inference_mode", "runtime_config", "megatron_core", "qalora_group_size"),
    *("eva_config", "corda_config", "lora_ga_config"),
}
"""Options that name, or belong to another that was measured."""

EXACT = 2e-5


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory, tokenizer: Any) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("bases")
    return {
        name: make_family(folder / name, family, seed=3, tokenizer=tokenizer)
        for name, family in BASES.items()
    }


def loaded(base: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()


def adapted(base: Path, options: Mapping[str, Any]) -> Any:
    """A base with an adapter of these options, before its first update."""
    settings = {"r": 8, "lora_alpha": 16, "target_modules": MODULES, "task_type": "CAUSAL_LM"}
    model, config = loaded(base), peft.LoraConfig(**{**settings, **options})
    ids = torch.arange(5, 205).reshape(1, -1)
    if config.init_lora_weights == "corda":
        from peft.tuners.lora.corda import preprocess_corda

        preprocess_corda(model, config, run_model=lambda: model(ids))
    torch.manual_seed(0)
    model = peft.get_peft_model(model, config).eval()
    if config.init_lora_weights == "eva":
        peft.initialize_lora_eva_weights(model, [{"input_ids": ids, "attention_mask": ids > 0}] * 8)
    return model


@torch.no_grad()
def update(model: Any) -> None:
    """One update of everything that is trained, large enough to move every distribution."""
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.add_(0.1 * torch.randn_like(parameter))


class Engines:
    """The engines of each base, started when they are first needed."""

    def __init__(self) -> None:
        self._generations: dict[tuple[Path, bool], tuple[Any, Any]] = {}

    def started(self, base: Path, model: Any, is_sent: bool) -> tuple[Any, Any]:
        """TRL's generation with this model, ready to sync, and its engine."""
        if (base, is_sent) not in self._generations:
            self._generations[base, is_sent] = start(model)
        generation, engine = self._generations[base, is_sent]
        generation = copy.copy(generation)
        vars(generation).pop("_iter_named_params", None)  # of the model before
        generation.model = model
        how = {"model": str(base), "quantization": None, "enable_sleep_mode": False}
        send, needed = adapter._how_to_send(generation, how, CONFIG)
        assert bool(needed) == is_sent
        send(engine)
        return generation, engine


CONFIG = TandemConfig.from_mapping(SETTINGS)


def start(model: Any) -> tuple[Any, Any]:
    """TRL's generation in tandem, and its engine."""
    from accelerate import Accelerator
    from trl.generation.vllm_generation import VLLMGeneration

    started: list[Any] = []
    small = {"enforce_eager": True, "dtype": "float32"}
    adapter.start_next_engine_in_tandem(CONFIG, small, started.append)
    generation = VLLMGeneration(
        model,
        Accelerator(cpu=True),
        None,
        mode="colocate",
        gpu_memory_utilization=0.1,
        max_model_length=128,
        max_num_seqs=16,
    )
    return generation, started[0]


@pytest.fixture(scope="module")
def engines() -> Engines:
    return Engines()


@pytest.mark.parametrize("case", SOUND, ids=lambda case: case.name)
def test_engine_has_the_adapters_senior_and_the_checkpoints_junior(
    case: Case, bases: dict[str, Path], engines: Engines, tokenizer: Any
) -> None:
    base = bases[case.base]
    differences = compared(engines, base, adapted(base, case.options), case.is_sent, tokenizer)
    print(f"{case.name} | {'sent' if case.is_sent else 'merged'} | {differences['senior']:.1e}")
    assert max(differences.values()) <= EXACT, differences


def test_base_that_was_changed_in_memory_is_the_seniors_alone(
    bases: dict[str, Path], engines: Engines, tokenizer: Any
) -> None:
    """As by an adapter that was merged into it before, or by LoftQ."""
    model = adapted(bases["plain"], {})
    with torch.no_grad():
        for layer in model.get_base_model().model.layers:
            layer.mlp.up_proj.base_layer.weight.mul_(1.1)
    differences = compared(engines, bases["plain"], model, False, tokenizer)
    assert max(differences.values()) <= EXACT, differences


def test_every_option_of_peft_is_told_of() -> None:
    """A new one fails here: measure it, and add it to the table of docs/trl.md."""
    measured = {name for case in SOUND for name in case.options} | REJECTED.keys() | NEUTRAL
    options = {field.name for field in dataclasses.fields(peft.LoraConfig)}
    assert options <= measured


def compared(
    engines: Engines, base: Path, model: Any, is_sent: bool, tokenizer: Any
) -> dict[str, float]:
    """The largest differences of an engine's log probabilities from both models' own.

    After one update and one sync.
    """
    generation, engine = engines.started(base, model, is_sent)
    update(model)
    generation.sync_weights()
    rows = generated(engine, base, tokenizer)
    senior, junior = scores(model, rows), scores(loaded(base), rows)
    of_engine, by_senior = (torch.cat([row[i] for row in rows]) for i in (2, 3))
    assert (senior - junior).abs().max() > 0.1
    return {
        "senior": float((of_engine - senior)[by_senior].abs().max()),
        "junior": float((of_engine - junior)[~by_senior].abs().max()),
    }


Rollouts = list[tuple[list[int], list[int], torch.Tensor, torch.Tensor]]
"""The prompt, the response, the engine's log probabilities, and which tokens are the senior's."""


def generated(engine: Any, base: Path, tokenizer: Any) -> Rollouts:
    from vllm import SamplingParams

    rule = TandemRules(CONFIG, Vocabulary.from_path(base)).default
    prompts = [tokenizer(text).input_ids for text in PROMPTS]
    params = [
        SamplingParams(
            max_tokens=LENGTH,
            logprobs=0,
            ignore_eos=True,
            extra_args={"tandem": rule.request(seed).to_wire()},
        )
        for seed in range(len(prompts))
    ]
    outputs = engine._target.generate(
        [{"prompt_token_ids": ids} for ids in prompts],
        params,
        use_tqdm=False,
        lora_request=engine.adapter,
    )
    rows = []
    for seed, (prompt, output) in enumerate(zip(prompts, outputs, strict=True)):
        ids = list(output.outputs[0].token_ids)
        logged = [one[i].logprob for one, i in zip(output.outputs[0].logprobs, ids, strict=True)]
        by_senior = torch.from_numpy(rule.replay(ids, seed).senior)
        rows.append((prompt, ids, torch.tensor(logged), by_senior))
    return rows


@torch.no_grad()
def scores(model: Any, rows: Rollouts) -> torch.Tensor:
    """A model's log probability of every response token."""
    found = []
    for prompt, ids, *_ in rows:
        logits = model(torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1]
        found.append(logits.log_softmax(-1).gather(-1, torch.tensor(ids)[:, None])[:, 0])
    return torch.cat(found)
