"""What legibility needs in memory: a long response at a large vocabulary, beside the weights."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

VOCABULARY, TOKENS = 150_000, 32_000
LIMIT = 2 * 2**30

_PROGRAM = """
import json, re, sys, time
import torch
from tandem_plugin.lab.evaluation.checkpoint import Checkpoint
from tandem_plugin.lab.evaluation.legibility import chunk_length, score_response
from tandem_plugin.lab.evaluation.hf_model import HFModel

def memory(name):
    return 1024 * int(re.search(name + r":\\s+(\\d+)", open("/proc/self/status").read())[1])

models = [HFModel(Checkpoint(name, name, ""), "float32", "cpu") for name in sys.argv[1:3]]
vocabulary, tokens = models[0].vocabulary, int(sys.argv[3])
generator = torch.Generator().manual_seed(0)
response = torch.randint(0, vocabulary, (tokens,), generator=generator).tolist()
score_response(*(x for m in models for x in (m.states([1], response[:9]), m.head)), response[:9], 4)
open("/proc/self/clear_refs", "w").write("5")  # what was needed most so far is forgotten
before, began = memory("VmRSS"), time.perf_counter()
states = [model.states([1, 2], response) for model in models]
read = memory("VmHWM") - before
score = score_response(
    states[0], models[0].head, states[1], models[1].head, response, chunk_length(vocabulary)
)
print(json.dumps({
    "read": read, "peak": memory("VmHWM") - before, "seconds": time.perf_counter() - began,
    "tokens": score.tokens, "nats": score.cross_entropy / score.tokens,
    "overlap": score.overlap / score.tokens,
}))
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    from support.models import make_model, make_tokenizer

    folder = tmp_path_factory.mktemp("large-vocabulary")
    size = {"vocab_size": VOCABULARY, "max_position_embeddings": TOKENS + 100}
    tokenizer = make_tokenizer()
    return [
        make_model(folder / name, seed=seed, tokenizer=tokenizer, **size)
        for seed, name in enumerate(("senior", "junior"))
    ]


def measured(models: list[Path], tokens: int) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *map(str, models), str(tokens)],
        capture_output=True,
        text=True,
        timeout=1500,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(found)
    return found
