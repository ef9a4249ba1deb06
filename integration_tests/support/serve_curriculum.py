"""Generates with a schedule of an installed plugin, in the environment it is installed in.

python serve_curriculum.py SENIOR JUNIOR FOLDER: the engine records into FOLDER, and what each
request was and returned is written to FOLDER/responses.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(senior: str, junior: str, folder: str) -> None:
    from vllm import LLM, SamplingParams

    from tandem_plugin import TandemConfig, TandemRules, Vocabulary

    settings = {
        "schedule": "curriculum",
        "p_start": 0.9,
        "p_end": 0.1,
        "warmup_steps": 4,
        "cap": 4,
        "junior": junior,
        "record": folder,
    }
    llm = LLM(
        senior,
        enforce_eager=True,
        max_model_len=256,
        max_num_seqs=32,
        gpu_memory_utilization=0.1,
        dtype="float32",
        additional_config={"tandem": settings},
    )
    rules = TandemRules(TandemConfig.from_mapping(settings), Vocabulary.from_path(senior))
    asked = [{"seed": 100 + i, "training_step": i % 6} for i in range(30)]
    asked += [rules.at(3).request(200 + i).to_wire() for i in range(4)]
    params = [
        SamplingParams(temperature=1.0, max_tokens=60, ignore_eos=True, extra_args={"tandem": one})
        for one in asked
    ]
    prompt = {"prompt_token_ids": [5, 6, 7]}
    outputs = llm.generate([prompt] * len(asked), params, use_tqdm=False)
    try:
        refused = SamplingParams(extra_args={"tandem": {"seed": 1, "training_step": -1}})
        llm.generate([prompt], refused, use_tqdm=False)
        refusal = ""
    except ValueError as error:
        refusal = str(error)
    responses = [
        {**one, "response_ids": list(output.outputs[0].token_ids)}
        for one, output in zip(asked, outputs, strict=True)
    ]
    result = {"responses": responses, "refusal": refusal}
    (Path(folder) / "responses.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
