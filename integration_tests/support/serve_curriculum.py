"""Generates with a schedule of an installed plugin, in the environment it is installed in.

python serve_curriculum.py RUNNER SENIOR JUNIOR FOLDER: the engine records into FOLDER, and what
each request was and returned is written to FOLDER/responses.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).parents[1])  # not this folder, whose requests.py is not PyPI's

SETTINGS: dict[str, Any] = {
    "schedule": "curriculum",
    "p_start": 0.9,
    "p_end": 0.1,
    "warmup_steps": 4,
    "cap": 4,
}


def main(runner: str, senior: str, junior: str, folder: str) -> None:
    from support.engine import tandem_engine

    settings = SETTINGS | {"junior": junior, "record": folder}
    with tandem_engine(runner, Path(senior), settings, max_num_seqs=32) as llm:
        result = generate(llm, senior)
    (Path(folder) / "responses.json").write_text(json.dumps(result))


def generate(llm: Any, senior: str) -> dict[str, Any]:
    from vllm import SamplingParams

    from tandem_plugin import TandemConfig, TandemRules, Vocabulary

    rules = TandemRules(TandemConfig.from_mapping(SETTINGS), Vocabulary.from_path(senior))
    asked = [{"seed": 100 + i, "training_step": i % 6} for i in range(30)]
    asked += [rules.for_step(3).request(200 + i).to_wire() for i in range(4)]
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
    return {"responses": responses, "refusal": refusal}


if __name__ == "__main__":
    main(*sys.argv[1:])
