"""Tokens a round and forward passes a token of the speculative mode, against its cost model.

``python benchmarks/drafting.py --out runs/drafting.json``: vLLM from 0.32. The senior is the junior
with noise on its weights, so that the two agree as a trained senior and its frozen junior do.
Counts do not depend on the machine, so they are measured on small models, and where there is no GPU
in Triton's interpreter; the ratio to a single model that follows is projected, not measured.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

SUPPORT = Path(__file__).resolve().parents[1] / "integration_tests"
sys.path.insert(0, str(SUPPORT))

REQUESTS, LENGTH, P = 24, 48, 0.5


def main() -> None:
    """Measure every pair and draft length that the file does not hold yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/drafting.json"))
    parser.add_argument("--drafts", type=int, nargs="+", default=[2, 4, 6, 8])
    parser.add_argument("--noise", type=float, nargs="+", default=[0.05, 0.02])
    args = parser.parse_args()
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"
    os.environ["PYTHONPATH"] = os.pathsep.join(
        part for part in (str(SUPPORT), os.environ.get("PYTHONPATH")) if part
    )
    found = json.loads(args.out.read_text()) if args.out.exists() else {}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for noise in args.noise:
            pair = make_pair(Path(folder) / str(noise), noise)
            for drafts in args.drafts:
                name = f"noise {noise}, {drafts} drafts"
                if name not in found:
                    found[name] = measure(*pair, drafts)
                    args.out.write_text(json.dumps(found, indent=1))
                print(name, json.dumps(found[name]))


def make_pair(folder: Path, noise: float) -> tuple[Path, Path]:
    """A senior and a junior that agree: the senior's weights are the junior's with noise."""
    import torch
    from support.models import make_model, make_tokenizer
    from transformers import AutoModelForCausalLM

    tokenizer = make_tokenizer(512)
    junior = make_model(folder / "junior", seed=0, tokenizer=tokenizer, layers=1)
    model = AutoModelForCausalLM.from_pretrained(junior, dtype=torch.float32)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                scale = noise * float(parameter.std())
                parameter += scale * torch.randn(parameter.shape, generator=generator)
    model.save_pretrained(folder / "senior")
    tokenizer.save_pretrained(folder / "senior")
    return folder / "senior", junior


def measure(senior: Path, junior: Path, drafts: int) -> dict[str, Any]:
    """Counters of one engine over sampled responses of the schedule ``token``."""
    from support import worker
    from support.engine import tandem_engine
    from vllm import SamplingParams

    from tandem_plugin.engine.speculative.rounds import Drafted

    tandem = {
        "schedule": "token", "p": P, "mode": "speculative", "num_draft_tokens": drafts,
        "junior": junior,
    }  # fmt: skip
    with tandem_engine("v2", senior, tandem, max_num_seqs=REQUESTS) as engine:
        params = [
            SamplingParams(
                temperature=1.0, seed=seed, max_tokens=LENGTH, ignore_eos=True,
                extra_args={"tandem": {"seed": seed}},
            )
            for seed in range(REQUESTS)
        ]  # fmt: skip
        prompts = [{"prompt_token_ids": [5 + seed, 6, 7]} for seed in range(REQUESTS)]
        outputs = engine.generate(prompts, params, use_tqdm=False)
        (counters,) = engine.collective_rpc(worker.drafted)
    responses = [
        (prompt["prompt_token_ids"], list(output.outputs[0].token_ids))
        for prompt, output in zip(prompts, outputs, strict=True)
    ]
    drafted = Drafted(**counters)
    return {
        "alpha": overlap(senior, junior, responses),
        **counters,
        "acceptance": drafted.acceptance,
        "tokens_a_round": drafted.tokens_a_round,
        "tokens_a_round_of_the_cost_model": cost_model(drafted.acceptance, drafts),
        "forwards_a_token": drafted.forwards_a_token,
        "projected_ratio_to_single_equal_sizes": projected(drafted.tokens_a_round, drafts, 1.0),
        "projected_ratio_to_single_junior_a_sixth": projected(
            drafted.tokens_a_round, drafts, 1 / 6
        ),
    }


def overlap(senior: Path, junior: Path, responses: list[tuple[list[int], list[int]]]) -> float:
    """Alpha: the mean over a response's positions of sum of min(senior's p, junior's p)."""
    import torch
    from transformers import AutoModelForCausalLM

    models = [AutoModelForCausalLM.from_pretrained(path) for path in (senior, junior)]
    found = []
    for prompt, response in responses:
        ids = torch.tensor([prompt + response])
        with torch.no_grad():
            p, q = (model(ids).logits[0, len(prompt) - 1 : -1].softmax(-1) for model in models)
        found.append(torch.minimum(p, q).sum(-1))
    return float(torch.cat(found).mean())


def cost_model(acceptance: float, drafts: int) -> float:
    """Expected tokens a round under the schedule ``token``.

    A draft holds with probability s = (1 - p) + p a, where a is the acceptance where the senior
    writes. Every position up to the first that does not hold brings a token, and so does the one
    behind the last draft where the senior writes it: sum of s^i for i < k, and p s^k.
    """
    s = (1 - P) + P * acceptance
    tokens = 0.0
    for i in range(drafts):
        tokens += s**i
    return float(tokens + P * s**drafts)


def projected(tokens_a_round: float, drafts: int, junior: float) -> float:
    """Throughput over a single model's, where a forward pass costs the same for few tokens as one.

    junior: the cost of the junior's forward pass in the senior's. Decoding is so where reading the
    weights takes the time; what is launched beside the two models is not counted.
    """
    return tokens_a_round / (1 + drafts * junior)


if __name__ == "__main__":
    main()
