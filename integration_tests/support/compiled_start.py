"""Starts an engine whose models vLLM compiles as on a GPU, and says what that took, as JSON.

``VLLM_COMPILE`` with Inductor and its cache of whole models, on a CPU: without CUDA graphs, and
without the pass that names kernels of a GPU. Arguments: senior, junior and a tandem seed.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

PROMPT, LENGTH = [5, 6, 7], 12


def counters(worker: Any) -> dict[str, int]:
    """Of this process: what was compiled, and what was saved and loaded of whole models."""
    from vllm.compilation.counter import compilation_counter as counted

    return {
        "compiled": counted.num_inductor_compiles,
        "saved": counted.num_aot_artifacts_saved,
        "loaded": counted.num_aot_artifacts_loaded,
    }


def main(senior: str, junior: str, seed: int) -> None:
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    from vllm import SamplingParams
    from vllm.compilation.passes.utility.fix_functionalization import FixFunctionalizationPass

    from support.engine import tandem_engine
    from support.graphs.front import platform_has_graphs

    FixFunctionalizationPass.__call__ = lambda self, graph: None
    tandem = {"junior": junior, "cap": 4, "seed": seed, "p": 0.5 + seed / 100}
    compilation = {"mode": 3, "backend": "inductor", "cudagraph_mode": "NONE"}
    options = {"enforce_eager": False, "optimization_level": 0, "compilation_config": compilation}
    begun = time.monotonic()
    with (
        platform_has_graphs(),
        tandem_engine("v1", Path(senior), tandem, **options) as engine,
    ):
        seconds = time.monotonic() - begun
        asked = {"tandem": {"seed": 1, "p": 0.5}}
        params = SamplingParams(temperature=0, max_tokens=LENGTH, ignore_eos=True, extra_args=asked)
        (output,) = engine.generate({"prompt_token_ids": PROMPT}, params, use_tqdm=False)
        (counts,) = engine.collective_rpc(counters)
    tokens = list(output.outputs[0].token_ids)
    print(json.dumps({"tokens": tokens, "seconds": seconds, **counts}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
