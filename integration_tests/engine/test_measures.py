"""What tandem engines measure while they generate, against the evaluation's own reading."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import worker
from support.engine import engine_settings, on_runner
from support.metrics import metric
from support.reading import Readers
from support.requests import PROMPTS
from support.speculation import ENGINES

from tandem_plugin.engine.wire import MeasureSums
from tandem_plugin.training.metrics import EngineLog

pytestmark = pytest.mark.long

EXACT = 1e-5
# What these requests need at once does not fit into this many blocks.
TIGHT = {"block_size": 32, "num_gpu_blocks_override": 9, "max_num_seqs": 8}


@pytest.fixture(scope="module")
def readers(checkpoints: dict[str, Path]) -> Readers:
    return Readers.of(checkpoints["senior"], checkpoints["other"])


@pytest.fixture(scope="module", params=ENGINES, ids="-".join)
def llm(request: pytest.FixtureRequest, checkpoints: dict[str, Path]) -> Iterator[Any]:
    from tandem_plugin.engine import TandemLLM

    runner, mode = request.param
    tandem = {"cap": 4, "junior": str(checkpoints["other"]), "mode": mode, "partner_logprobs": True}
    with on_runner(runner):
        options = engine_settings(None, disable_log_stats=False, **TIGHT)
        llm = TandemLLM(str(checkpoints["senior"]), tandem=tandem, **options)
        try:
            yield llm
            if mode == "speculative":
                assert llm.draft_stats().rounds > 0
        finally:
            llm.llm_engine.engine_core.shutdown()
            del llm
            gc.collect()


def found_scores(response: Any) -> np.ndarray:
    columns = response.senior_logprobs, response.junior_logprobs, response.overlaps
    return np.stack(columns, axis=1)


def test_every_token_is_scored_as_the_evaluation_scores_it(llm: Any, readers: Readers) -> None:
    """Sampled under parameters of all kinds, which change what is sampled and not what is scored.

    Requests of the senior alone are among them, and are not measured.
    """
    from vllm import SamplingParams

    hot = SamplingParams(temperature=0.6, top_p=0.8, seed=3, max_tokens=12, ignore_eos=True)
    several = SamplingParams(n=2, seed=5, max_tokens=9, ignore_eos=True)
    asked = [(hot, 7), (several, {"seed": 8, "p": 0.9}), (hot, "off"), (hot, {"seed": 9, "p": 0.2})]
    before = llm.measures()
    outputs = llm.generate(
        [PROMPTS[i % 3] for i in range(4)],
        [params for params, _ in asked],
        tandem=[tandem for _, tandem in asked],
        use_tqdm=False,
    )
    off = outputs[2].outputs[0]
    assert off.senior_logprobs is off.junior_logprobs is off.overlaps is None
    read = []
    for output in (outputs[0], outputs[1], outputs[3]):
        for response in output.outputs:
            tokens = output.prompt_token_ids, list(response.token_ids)
            expected = readers.scores(*tokens)[:, :3]
            np.testing.assert_allclose(found_scores(response), expected, atol=EXACT, rtol=0)
            read.append((*tokens, response.authorship.tolist()))
    measured = llm.measures().since(before)
    authors = [author for *_, authorship in read for author in authorship]
    assert 0 < measured.senior_tokens == sum(authors)
    assert 0 < measured.junior_tokens == len(authors) - sum(authors)
    logged = EngineLog(MeasureSums).step([measured.to_row()])
    assert logged == pytest.approx(readers.means(read), abs=EXACT)


def test_preempted_requests_keep_the_scores_of_their_tokens(llm: Any, readers: Readers) -> None:
    from vllm import SamplingParams

    before = metric("vllm:num_preemptions_total")
    params = SamplingParams(seed=3, max_tokens=50, ignore_eos=True)
    outputs = llm.generate(PROMPTS * 2, params, tandem=4, use_tqdm=False)
    assert metric("vllm:num_preemptions_total") > before
    for output in outputs:
        response = output.outputs[0]
        expected = readers.scores(output.prompt_token_ids, list(response.token_ids))[:, :3]
        np.testing.assert_allclose(found_scores(response), expected, atol=EXACT, rtol=0)


def test_nothing_is_kept_of_requests_that_were_taken_or_given_up(llm: Any) -> None:
    from vllm import SamplingParams

    params = SamplingParams(max_tokens=20, ignore_eos=True)
    prompts = [({"prompt_token_ids": [i + 1, 5]}, params) for i in range(4)]
    stream = llm.stream(((i, *one, i) for i, one in enumerate(prompts)), most=2)
    _, first = next(stream)
    assert len(first.outputs[0].overlaps) == 20
    stream.close()
    llm.generate(PROMPTS[0], params, use_tqdm=False)
    (kept,) = llm.collective_rpc(worker.kept_scores)
    assert kept == 0
