"""``vllm serve`` and ``AsyncLLM`` in tandem: per-request fields, and reading who wrote what."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.records import recorded
from support.server import Server, vllm_server

from tandem_plugin import AuthorshipError, FingerprintError, TandemConfig, TandemRules, Vocabulary
from tandem_plugin.client import AuthorshipReader
from tandem_plugin.seeds import sample_seed

SETTINGS = {"schedule": "word", "cap": 4}
PROMPT = "class Foo(object):\n    def"
SAMPLING = {"temperature": 1.0, "seed": 3, "max_tokens": 40, "ignore_eos": True}
CHAT = {"messages": [{"role": "user", "content": "return x of the tokens"}]}


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("record")


@pytest.fixture(scope="module")
def server(
    checkpoints: dict[str, Path], record: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    settings = SETTINGS | {"junior": str(checkpoints["other"]), "record": str(record)}
    log = tmp_path_factory.mktemp("server") / "log"
    options = (
        *("--enforce-eager", "--dtype", "float32", "--max-model-len", "256"),
        *("--max-num-seqs", "16", "--gpu-memory-utilization", "0.1"),
    )
    with vllm_server(checkpoints["senior"], settings, log, *options) as server:
        yield server


@pytest.fixture(scope="module")
def reader(checkpoints: dict[str, Path]) -> AuthorshipReader:
    return AuthorshipReader.from_tokenizer(checkpoints["senior"] / "tokenizer.json", SETTINGS)


def choices_of(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [choice for event in events for choice in event["choices"]]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_client_reads_who_wrote_what_as_the_engine_recorded_it(
    server: Server, reader: AuthorshipReader, record: Path, path: str, stream: bool
):
    seed = 100 + 2 * stream + path.count("chat")
    asked = reader.request(seed, p=0.6)
    prompt = CHAT if "chat" in path else {"prompt": PROMPT}
    usage = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    body = {"model": "team", **prompt, **SAMPLING, **usage, **asked.fields()}
    status, response = server.post(path, body)
    assert status == 200, response
    (authorship,) = asked.read_stream(response) if stream else asked.read(response)
    row = recorded(record, [seed])[seed]
    assert authorship.tolist() == row["authorship"]
    assert len(authorship) == 40
    assert 0 < authorship.senior_tokens < 40
    assert row["tandem_schedule"]["p"] == 0.6
    listed = response if stream else [response]
    sent = [i for choice in choices_of(listed) for i in choice.get("token_ids") or ()]
    assert sent == row["response_ids"]


@pytest.mark.parametrize("stream", [False, True])
def test_samples_of_one_request_are_read_each_with_its_seed(
    server: Server, reader: AuthorshipReader, record: Path, stream: bool
):
    asked = reader.request(200 + stream)
    body = {"model": "team", "prompt": PROMPT, **SAMPLING, "n": 3, "stream": stream}
    status, response = server.post("/v1/completions", body | asked.fields())
    assert status == 200, response
    read = asked.read_stream(response) if stream else asked.read(response)
    seeds = [sample_seed(200 + stream, i) for i in range(3)]
    rows = recorded(record, seeds)
    expected = [rows[seed]["authorship"] for seed in seeds]
    assert [authorship.tolist() for authorship in read] == expected
    assert len({tuple(authorship) for authorship in read}) == 3


def test_request_without_tandem_is_the_seniors(server: Server, reader: AuthorshipReader):
    body = {"model": "team", "prompt": PROMPT, **SAMPLING, "return_token_ids": True}
    _, alone = server.post("/v1/completions", body)
    _, off = server.post("/v1/completions", body | {"vllm_xargs": {"tandem": "off"}})
    _, solo = server.post("/v1/completions", body | reader.request(1, schedule="solo").fields())
    tokens = [choices_of([response])[0]["token_ids"] for response in (alone, off, solo)]
    assert tokens[0] == tokens[1] == tokens[2]


BAD = [
    ("on", "is not a request"),
    ("{", "is not a request"),
    ('{"p": 0.3}', "without a seed"),
    ('{"seed": -1}', "seed=-1 is out of range"),
    ('{"seed": 1, "schedule": "chess"}', "schedule='chess' does not exist"),
    ('{"seed": 1, "cap": 0}', "cap=0 is not a count"),
    ('{"seed": 1, "fingerprint": "0000"}', "was made for the rules 0000"),
    ('{"seed": 1, "prompt_length": 1000}', "prompt_length=1000, but only"),
    ('{"seed": 1, "schedule": ""}', "schedule='' is not the name"),
    ("[" * 4000, "is not a request"),
    ("x" * 100_000, "a text of 100000 characters"),
    (7, "is not a request"),
    ([1, 2], "is not a request"),
    ("\u0000\u2028", "is not a request"),
]


@pytest.mark.parametrize(("tandem", "sentence"), BAD)
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_bad_request_gets_400_with_a_sentence_and_the_server_lives_on(
    server: Server, path: str, tandem: Any, sentence: str
):
    prompt = CHAT if "chat" in path else {"prompt": PROMPT}
    body = {"model": "team", **prompt, "max_tokens": 2, "vllm_xargs": {"tandem": tandem}}
    status, response = server.post(path, body)
    assert status == 400, response
    assert sentence in response["error"]["message"]
    assert len(response["error"]["message"]) < 10_000
    status, events = server.post(path, body | {"stream": True})
    refused = events if status == 400 else events[-1]
    assert refused["error"]["code"] == 400
    assert sentence in refused["error"]["message"]
    good = body | {"vllm_xargs": {"tandem": '{"seed": 1}'}}
    assert server.post(path, good)[0] == 200
    assert server.is_healthy()


@pytest.mark.parametrize("tandem", ['{"seed": 1}', "off", None])
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_beam_search_is_refused_with_a_sentence(server: Server, path: str, tandem: Any):
    """Whatever it says of tandem: a tandem engine has no beams."""
    prompt = CHAT if "chat" in path else {"prompt": PROMPT}
    body = {"model": "team", **prompt, "max_tokens": 2, "n": 2, "use_beam_search": True}
    if tandem is not None:
        body["vllm_xargs"] = {"tandem": tandem}
    status, response = server.post(path, body)
    assert status == 400, response
    assert "Beam search does not go with tandem" in response["error"]["message"]
    assert server.is_healthy()


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/v1/responses"])
@pytest.mark.parametrize(
    "fields",
    [
        {"tandem": {"seed": 1}},
        {"Tandem": '{"seed": 1}'},
        {"tandem_seed": 1},
        {"extra_args": {"tandem": {"seed": 1}}},
        {"extra_body": {"vllm_xargs": {"tandem": '{"seed": 1}'}}},
        {"sampling_params": {"extra_args": {"tandem": '{"seed": 1}'}}},
        {"vllm_xargs": {"Tandem": '{"seed": 1}'}},
        {"vllm_xargs": {"tandm": '{"seed": 1}'}},
        {"vllm_xargs": {"seed": "7"}},
        {"vllm_xargs": {"schedule": "word", "seed": 7}},
    ],
)
def test_tandem_in_a_place_that_nothing_reads_is_rejected(
    server: Server, path: str, fields: dict[str, Any]
):
    prompt = {"/v1/completions": {"prompt": PROMPT}, "/v1/responses": {"input": PROMPT}}
    body = {"model": "team", **prompt.get(path, CHAT), **fields}
    status, response = server.post(path, body)
    assert status == 400, response
    assert '"vllm_xargs": {"tandem": "{\\"seed\\": 7}"}' in response["error"]["message"]


def test_other_extra_arguments_pass(server: Server):
    """They are other plugins': logits processors read them."""
    body = {"model": "team", "prompt": PROMPT, "max_tokens": 2, "note": "mine"}
    assert server.post("/v1/completions", body | {"vllm_xargs": {"target": 3}})[0] == 200
    both = {"vllm_xargs": {"tandem": '{"seed": 1}', "seed": 7}}
    assert server.post("/v1/completions", body | both)[0] == 200


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_response_of_a_request_that_lost_its_field_is_not_read(
    server: Server, reader: AuthorshipReader, path: str, stream: bool
):
    """A proxy drops what it does not know: the senior alone answers, with status 200."""
    asked = reader.request(11)
    prompt = CHAT if "chat" in path else {"prompt": PROMPT}
    body = {"model": "team", **prompt, **SAMPLING, "stream": stream, **asked.fields()}
    whole = server.post(path, body)[1]
    assert asked.read_stream(whole if stream else [whole])
    del body["vllm_xargs"]
    status, response = server.post(path, body)
    assert status == 200
    with pytest.raises(AuthorshipError):
        asked.read_stream(response if stream else [response])


@pytest.mark.parametrize("stream", [False, True])
def test_several_prompts_in_one_body_are_read(
    server: Server, reader: AuthorshipReader, stream: bool
):
    asked = reader.request(760)
    body = {"model": "team", "prompt": [PROMPT, "import"], **SAMPLING, "n": 2, "stream": stream}
    status, response = server.post("/v1/completions", body | asked.fields())
    assert status == 200
    read = asked.read_stream(response if stream else [response], n=2)
    assert [len(one) for one in read] == [40] * 4


def test_numbers_of_thousands_of_digits_are_refused(server: Server):
    digits = "9" * 5_000
    for number in (digits, digits[:4_000]):
        for asked in (number, json.dumps(f'{{"seed": {number}}}'), json.dumps({"seed": 1})):
            text = f'{{"model": "team", "prompt": "x", "vllm_xargs": {{"tandem": {asked}}}}}'
            status, response = server.post_text("/v1/completions", text)
            assert status == 400, response
            assert response.get("detail") or response["error"]["message"]
    assert server.is_healthy()


def written(record: Path, seed: int) -> list[bool]:
    authorship: list[bool] = recorded(record, [seed])[seed]["authorship"]
    assert len(set(authorship)) == 2
    return authorship


def test_other_ways_to_ask_for_text_are_in_tandem_as_well(server: Server, record: Path):
    """All that vLLM passes ``vllm_xargs`` on from, or sampling parameters."""
    ways: dict[str, dict[str, Any]] = {
        "/v1/responses": {"input": PROMPT, "max_output_tokens": 40},
        "/v1/messages": CHAT | {"max_tokens": 40},
        "/v1/chat/completions/batch": {"messages": [CHAT["messages"]], "max_tokens": 40},
        "/inference/v1/generate": {"token_ids": [5, 6, 7]},
    }
    for seed, (path, asked) in enumerate(ways.items(), 700):
        extra = {"tandem": json.dumps({"seed": seed})}
        params = {"max_tokens": 40, "ignore_eos": True, "extra_args": extra}
        how = {"sampling_params": params} if "inference" in path else {"vllm_xargs": extra}
        status, response = server.post(path, {"model": "team", "ignore_eos": True, **asked, **how})
        assert status == 200, (path, response)
        assert written(record, seed), path


def test_prompt_that_is_echoed_is_not_read_as_part_of_the_response(
    server: Server, reader: AuthorshipReader, record: Path
):
    asked = reader.request(750)
    body = {"model": "team", "prompt": PROMPT, **SAMPLING, "echo": True, **asked.fields()}
    status, response = server.post("/v1/completions", body)
    assert status == 200, response
    (authorship,) = asked.read(response)
    assert authorship.tolist() == written(record, 750)


def test_client_with_other_settings_is_refused_by_the_server(
    server: Server, checkpoints: dict[str, Path]
):
    other = SETTINGS | {"boundaries": "every"}
    reader = AuthorshipReader.from_tokenizer(checkpoints["senior"] / "tokenizer.json", other)
    body = {"model": "team", "prompt": PROMPT, "max_tokens": 2, **reader.request(1).fields()}
    status, response = server.post("/v1/completions", body)
    assert status == 400
    assert f"was made for the rules {reader.fingerprint}" in response["error"]["message"]


def test_example_of_the_documentation_runs_against_the_server(
    server: Server, checkpoints: dict[str, Path], capsys: pytest.CaptureFixture[str]
):
    text = (Path(__file__).parents[1] / "docs" / "serving.md").read_text(encoding="utf-8")
    (example,) = [
        code
        for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        if "AuthorshipReader" in code
    ]
    example = example.replace('{"schedule": "word"}', repr(SETTINGS))
    tokenizer = checkpoints["senior"] / "tokenizer.json"
    names = {"TOKENIZER": tokenizer, "MODEL": "team", "SERVER": server.url}
    exec(compile(example, "docs/serving.md", "exec"), names)
    assert re.match(r"(0\.\d+|1\.0) \(Span\(start=0", capsys.readouterr().out)


def test_response_that_was_cut_goes_on(server: Server, reader: AuthorshipReader, record: Path):
    """As the documentation's example does it."""
    text = (Path(__file__).parents[1] / "docs" / "serving.md").read_text(encoding="utf-8")
    (example,) = [
        code for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "resume" in code
    ]
    greedy = {"model": "team", "temperature": 0, "ignore_eos": True}

    def complete(body: dict[str, Any]) -> Any:
        status, response = server.post("/v1/completions", greedy | body)
        assert status == 200, response
        return response

    names: dict[str, Any] = {"reader": reader, "complete": complete, "prompt_ids": [5, 6, 7, 8]}
    exec(compile(example, "docs/serving.md", "exec"), names)
    whole = complete({"prompt": [5, 6, 7, 8], "max_tokens": 32, **reader.request(7).fields()})
    tokens = choices_of([whole])[0]["token_ids"]
    assert [*names["written"], *choices_of([names["second"]])[0]["token_ids"]] == tokens
    (authorship,) = reader.request(7).read(whole)
    assert names["authorship"].tolist() == authorship.tolist()[8:]
    assert 0 < names["authorship"].senior_tokens < 24


@pytest.fixture(scope="module")
def rules(tokenizer: Any) -> TandemRules:
    return TandemRules(TandemConfig.from_mapping(SETTINGS), Vocabulary.from_tokenizer(tokenizer))


def test_async_engine_serves_many_requests_at_once_and_refuses_a_bad_one_alone(
    checkpoints: dict[str, Path], tmp_path: Path, tokenizer: Any, rules: TandemRules
):
    from vllm import SamplingParams
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    settings = SETTINGS | {"junior": str(checkpoints["other"]), "record": str(tmp_path)}

    async def one(engine: Any, seed: int) -> list[int]:
        if seed % 10 == 9:
            await asyncio.sleep(0.05)
        params = SamplingParams(
            temperature=1.0, seed=seed, max_tokens=20 + seed % 7, ignore_eos=True,
            extra_args={"tandem": json.dumps({"seed": seed})},
        )  # fmt: skip
        prompt = {"prompt_token_ids": tokenizer(PROMPT).input_ids}
        async for output in engine.generate(prompt, params, str(seed)):
            tokens = list(output.outputs[0].token_ids)
        return tokens

    async def bad(engine: Any) -> None:
        params = SamplingParams(max_tokens=3, extra_args={"tandem": {"seed": 1, "fingerprint": ""}})
        async for _ in engine.generate(PROMPT, params, "bad"):
            raise AssertionError("a bad request was served")

    async def all_of_them() -> Any:
        arguments = AsyncEngineArgs(
            str(checkpoints["senior"]), enforce_eager=True, dtype="float32", max_model_len=256,
            max_num_seqs=16, gpu_memory_utilization=0.1, additional_config={"tandem": settings},
        )  # fmt: skip
        engine = AsyncLLM.from_engine_args(arguments)
        try:
            requests = [one(engine, seed) for seed in range(60)]
            return await asyncio.gather(*requests, bad(engine), return_exceptions=True)
        finally:
            engine.shutdown()

    *served, refused = asyncio.run(all_of_them())
    assert isinstance(refused, FingerprintError)
    rows = recorded(tmp_path, range(len(served)), patience=5)
    for seed, tokens in enumerate(served):
        assert len(tokens) == 20 + seed % 7
        assert rows[seed]["response_ids"] == tokens
        assert rows[seed]["authorship"] == rules.default.replay(tokens, seed).tolist()
