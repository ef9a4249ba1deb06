"""``TandemLLM`` on a real engine: every response says who wrote it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from refused import refused
from support.records import recorded

from tandem_plugin import Authorship, TandemConfig, TandemRules, Vocabulary

CAP = 4
PROMPTS = ["import numpy\n", "class Foo(object):\n    def", "return x of the tokens"]


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("record")


@pytest.fixture(scope="module")
def llm(checkpoints: dict[str, Path], record: Path) -> Any:
    from tandem_plugin.engine import TandemLLM

    return TandemLLM(
        str(checkpoints["senior"]),
        tandem={"cap": CAP, "junior": str(checkpoints["other"]), "record": str(record)},
        enforce_eager=True,
        max_model_len=256,
        max_num_seqs=16,
        gpu_memory_utilization=0.1,
        dtype="float32",
    )


@pytest.fixture(scope="module")
def rules(tokenizer: Any) -> TandemRules:
    config = TandemConfig.from_mapping({"cap": CAP})
    return TandemRules(config, Vocabulary.from_tokenizer(tokenizer))


@pytest.fixture
def params() -> Any:
    from vllm import SamplingParams

    return SamplingParams(temperature=1.0, seed=3, max_tokens=30, ignore_eos=True)


def test_every_response_says_who_wrote_it_and_can_be_replayed(
    llm: Any, params: Any, rules: TandemRules, record: Path
) -> None:
    outputs = llm.generate(PROMPTS, params, use_tqdm=False)
    responses = [output.outputs[0] for output in outputs]
    assert len({response.tandem_seed for response in responses}) == len(PROMPTS)
    for response in responses:
        assert isinstance(response.authorship, Authorship)
        assert len(response.authorship) == len(response.token_ids) == 30
        placed = tuple(replace(span, text=None) for span in response.spans)
        assert placed == response.authorship.spans
        assert response.tandem_fingerprint == rules.fingerprint
        assert response.tandem_schedule == rules.default.settings()
        replayed = rules.default.replay(response.token_ids, response.tandem_seed)
        assert response.authorship == replayed
        row = recorded(record, [response.tandem_seed])[response.tandem_seed]
        assert row["response_ids"] == list(response.token_ids)
        assert row["authorship"] == response.authorship.tolist()
    assert any(0 < response.authorship.senior_share < 1 for response in responses)


def test_unseeded_requests_are_fresh_and_a_reported_seed_gives_the_same_again(
    llm: Any, params: Any
) -> None:
    first, second = (
        llm.generate(PROMPTS[0], params, use_tqdm=False)[0].outputs[0] for _ in range(2)
    )
    assert first.tandem_seed != second.tandem_seed
    again = llm.generate(PROMPTS[0], params, tandem=first.tandem_seed, use_tqdm=False)[0].outputs[0]
    assert list(again.token_ids) == list(first.token_ids)
    assert again.authorship == first.authorship


def test_each_prompt_may_ask_for_its_own(llm: Any, params: Any) -> None:
    asked = [5, {"seed": 6, "p": 1.0}, {"schedule": "junior"}, "off"]
    outputs = llm.generate([PROMPTS[0]] * 4, params, tandem=asked, use_tqdm=False)
    seeded, senior, junior, off = (output.outputs[0] for output in outputs)
    assert (seeded.tandem_seed, senior.tandem_seed) == (5, 6)
    assert senior.authorship.senior_share == 1
    assert senior.tandem_schedule["p"] == 1.0
    assert junior.authorship.senior_share == 0
    assert junior.tandem_schedule["schedule"] == "junior"
    assert off.authorship is off.tandem_seed is off.tandem_fingerprint is None
    assert list(off.token_ids) == list(senior.token_ids) != list(junior.token_ids)


def test_chat_is_in_tandem_as_well(llm: Any, params: Any, rules: TandemRules) -> None:
    chats = [[{"role": "user", "content": prompt}] for prompt in PROMPTS]
    one = llm.chat(chats[0], params, use_tqdm=False, tandem=9)[0].outputs[0]
    several = llm.chat(chats, params, use_tqdm=False, tandem=[9, 10, "off"])
    assert list(several[0].outputs[0].token_ids) == list(one.token_ids)
    assert one.authorship == rules.default.replay(one.token_ids, 9)
    assert [output.outputs[0].tandem_seed for output in several] == [9, 10, None]


def test_parameters_may_carry_what_is_asked_as_for_any_engine(llm: Any, params: Any) -> None:
    params.extra_args = {"tandem": {"seed": 12}}
    (output,) = llm.generate(PROMPTS[0], params, use_tqdm=False)
    assert output.outputs[0].tandem_seed == 12
    with refused("request-tandem-twice"):
        llm.generate(PROMPTS[0], params, tandem=12, use_tqdm=False)


def test_a_bad_request_is_refused_and_nothing_of_it_stays(llm: Any, params: Any) -> None:
    with refused("request-rules-differ"):
        llm.generate(PROMPTS, params, tandem={"seed": 1, "fingerprint": "0" * 16}, use_tqdm=False)
    assert not llm.llm_engine.has_unfinished_requests()
    assert len(llm.generate(PROMPTS, params, use_tqdm=False)) == 3


def test_prompts_may_be_token_ids_and_enqueued_ones_are_signed(llm: Any, params: Any) -> None:
    ids = llm.get_tokenizer().encode(PROMPTS[0])
    llm.enqueue(ids, params, tandem=3, use_tqdm=False)
    llm.enqueue([{"prompt_token_ids": ids}], params, tandem="off", use_tqdm=False)
    assert params.extra_args is None
    text, off = llm.wait_for_completion(use_tqdm=False)
    assert (text.outputs[0].tandem_seed, off.outputs[0].tandem_seed) == (3, None)
    assert text.prompt_token_ids == ids


def test_stream_gives_each_as_it_finishes_and_leaves_nothing_behind(llm: Any, params: Any) -> None:
    def requests() -> Any:
        for i in range(40):
            one = params.clone()
            one.max_tokens = 5 + 5 * (i % 4)
            yield i, PROMPTS[i % 3], one, i

    seen = {}
    for key, output in llm.stream(requests(), most=8):
        assert output.outputs[0].tandem_seed == key
        assert len(output.outputs[0].authorship) == 5 + 5 * (key % 4)
        seen[key] = list(output.outputs[0].token_ids)
    assert sorted(seen) == list(range(40))
    assert list(seen) != sorted(seen)
    for key, output in llm.stream(requests(), most=8):
        assert seen[key] == list(output.outputs[0].token_ids)
        break
    assert not llm.llm_engine.has_unfinished_requests()
    assert llm._requests == {}


def test_requests_that_are_aborted_are_forgotten(llm: Any, params: Any) -> None:
    def abort_all() -> None:
        states = llm.llm_engine.output_processor.request_states
        llm.llm_engine.abort_request(list(states), internal=True)

    def requests() -> Any:
        yield "short", PROMPTS[0], SamplingParams(max_tokens=2, ignore_eos=True), 1
        yield "long", PROMPTS[1], SamplingParams(max_tokens=200, ignore_eos=True), 2
        yield "late", PROMPTS[2], SamplingParams(max_tokens=2, ignore_eos=True), 3

    from vllm import SamplingParams

    streamed = []
    for key, output in llm.stream(requests(), most=2):
        streamed.append((key, output.outputs[0].tandem_seed))
        if key == "short":
            abort_all()
    assert streamed == [("short", 1), ("late", 3)]
    assert llm._requests == {}

    llm.enqueue(PROMPTS, params, tandem=7, use_tqdm=False)
    abort_all()
    assert llm.wait_for_completion(use_tqdm=False) == []
    assert llm._requests == {}


def test_example_of_the_documentation_runs(llm: Any, capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
    (example,) = [
        code for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "llm.gen" in code
    ]
    names: dict[str, Any] = {"llm": llm}
    exec(compile(example, "docs/serving.md", "exec"), names)
    assert len(re.findall(r"^\d+ \S+ \(Span\(", capsys.readouterr().out, re.MULTILINE)) == 2
    assert names["weak"][0].outputs[0].tandem_seed == 7
    assert [output.outputs[0].tandem_seed is None for output in names["mixed"]] == [0, 0, 1]


def test_response_that_was_cut_goes_on(llm: Any) -> None:
    from vllm import SamplingParams

    def written(prefix: list[int]) -> Any:
        params = SamplingParams(temperature=0, max_tokens=20 - len(prefix), ignore_eos=True)
        prompt = {"prompt_token_ids": [5, 6, 7, *prefix]}
        tandem_params = {"seed": 7, "prompt_length": 3}
        (output,) = llm.generate(prompt, params, tandem=tandem_params, use_tqdm=False)
        return output.outputs[0]

    whole = written([])
    for cut in (1, 9):
        rest = written(list(whole.token_ids[:cut]))
        assert list(rest.token_ids) == list(whole.token_ids[cut:])
        assert rest.authorship.tolist() == whole.authorship.tolist()[cut:]
        assert rest.tandem_seed == 7


def test_beam_search_of_vllms_own_class_is_refused_in_a_tandem_engine(llm: Any) -> None:
    from vllm import LLM
    from vllm.sampling_params import BeamSearchParams

    with refused("beam-search-unsupported"):
        LLM.beam_search(llm, [{"prompt": "x"}], BeamSearchParams(beam_width=2, max_tokens=2))


def test_what_cannot_be_asked_is_refused(llm: Any) -> None:
    """Counters of drafts in lockstep, and settings given twice."""
    from tandem_plugin.engine import TandemLLM

    with refused("lockstep-without-draft-statistics"):
        llm.draft_stats()
    with refused("tandem-settings-twice"):
        TandemLLM("model", tandem={}, additional_config={"tandem": {}})
