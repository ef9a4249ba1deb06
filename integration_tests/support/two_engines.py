"""Two tandem engines in this process, one after the other: what is left of the first one's junior?

``python -m support.two_engines SENIOR JUNIOR MODE``: prints one JSON object.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import weakref
from typing import Any


def main(senior: str, junior: str, mode: str) -> None:
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"
    from vllm import LLM, SamplingParams
    from vllm.distributed import cleanup_dist_env_and_memory

    from support.engine import engine_settings

    tandem = {"schedule": "step", "boundaries": "every", "junior": junior, "mode": mode}
    params = SamplingParams(
        temperature=0, max_tokens=5, ignore_eos=True, extra_args={"tandem": {"seed": 1}}
    )

    def start() -> Any:
        return LLM(senior, **engine_settings(tandem, max_num_seqs=4))

    def write(engine: Any) -> list[int]:
        (output,) = engine.generate({"prompt_token_ids": [5, 6, 7]}, params, use_tqdm=False)
        return list(output.outputs[0].token_ids)

    first = start()
    tokens = [write(first)]
    (left,) = first.collective_rpc(juniors)
    assert left() is not None
    first.llm_engine.engine_core.shutdown()
    del first
    cleanup_dist_env_and_memory()
    second = start()
    gc.collect()
    alive = left() is not None
    tokens.append(write(second))
    print(json.dumps({"first_juniors_alive": alive, "tokens": tokens}), flush=True)
    second.llm_engine.engine_core.shutdown()


def juniors(worker: Any) -> Any:
    """A weak reference to a worker's junior; the worker is in this process."""
    model = worker.model_runner.model
    holder = model if hasattr(model, "junior") else worker.model_runner.get_draft_model()
    return weakref.ref(holder.junior)


if __name__ == "__main__":
    main(*sys.argv[1:])
