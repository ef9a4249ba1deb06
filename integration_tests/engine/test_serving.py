"""``vllm serve`` and ``AsyncLLM`` in tandem: per-request fields, and reading who wrote what."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.records import recorded
from support.server import Server, vllm_server

from tandem_plugin import TandemConfig, TandemRules, Vocabulary
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
def rules(tokenizer: Any) -> TandemRules:
    return TandemRules(TandemConfig.from_mapping(SETTINGS), Vocabulary.from_tokenizer(tokenizer))


def fields(tandem: Any) -> dict[str, Any]:
    """What a client adds to the body of a request to replay its response."""
    return {"vllm_xargs": {"tandem": tandem}, "return_token_ids": True}


def choices_of(response: Any) -> list[dict[str, Any]]:
    """The choices of a response, or of all events of a stream."""
    events = response if isinstance(response, list) else [response]
    return [choice for event in events for choice in event["choices"]]


def token_ids_of(response: Any) -> list[list[int]]:
    """The token ids of each choice, by its index."""
    ids: dict[int, list[int]] = {}
    for choice in choices_of(response):
        ids.setdefault(choice["index"], []).extend(choice.get("token_ids") or ())
    return [ids[index] for index in sorted(ids)]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_samples_replay_to_what_the_engine_recorded(
    server: Server, rules: TandemRules, record: Path, path: str, stream: bool
):
    seed = 200 + stream + 2 * path.count("chat")
    rule = rules.for_request({"seed": seed, "p": 0.6}).rule
    prompt = CHAT if "chat" in path else {"prompt": PROMPT}
    asked = fields(json.dumps(rule.request(seed).to_wire()))
    status, response = server.post(
        path, {"model": "team", **prompt, **SAMPLING, "n": 3, "stream": stream, **asked}
    )
    assert status == 200, response
    seeds = [sample_seed(seed, i) for i in range(3)]
    rows = recorded(record, seeds)
    token_ids = token_ids_of(response)
    assert token_ids == [rows[seed]["response_ids"] for seed in seeds]
    replayed = [rule.replay(*pair).tolist() for pair in zip(token_ids, seeds, strict=True)]
    assert replayed == [rows[seed]["authorship"] for seed in seeds]
    assert len(set(map(tuple, replayed))) == 3
    assert {rows[seed]["tandem_schedule"]["p"] for seed in seeds} == {0.6}


def test_request_without_tandem_is_the_seniors(server: Server):
    body = {"model": "team", "prompt": PROMPT, **SAMPLING}
    asked = [{"return_token_ids": True}, fields("off"), fields('{"seed": 1, "schedule": "solo"}')]
    alone, off, solo = (server.post("/v1/completions", body | one)[1] for one in asked)
    assert token_ids_of(alone) == token_ids_of(off) == token_ids_of(solo)


BAD = [
    ("{", "request-tandem-not-json"),
    ('{"p": 0.3}', "request-without-seed"),
    ('{"seed": 1, "cap": 0}', "parameter-not-count"),
    ('{"seed": 1, "fingerprint": "0000"}', "request-rules-differ"),
    ('{"seed": 1, "prompt_length": 1000}', "prompt-length-too-large"),
    ("x" * 100_000, "request-tandem-too-long"),
    (7, "request-tandem-invalid"),
    ("\u0000\u2028", "request-tandem-not-json"),
    ('{"seed": 1, "\ud800": 1}', "schedule-parameter-unknown"),
    ('{"seed": 1, "fingerprint": "\ud800\x1b[2J"}', "request-tandem-not-json"),
    ('{"seed": 1, "fingerprint": "\\ud800\\u001b[2J"}', "request-rules-differ"),
]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_bad_requests_get_400_with_a_sentence_and_the_server_lives_on(server: Server, path: str):
    prompt = CHAT if "chat" in path else {"prompt": PROMPT}
    body = {"model": "team", **prompt, "max_tokens": 2}
    for tandem, code in BAD:
        bad = body | {"vllm_xargs": {"tandem": tandem}}
        status, response = server.post(path, bad)
        assert status == 400, response
        assert f"[{code}]" in response["error"]["message"]
        assert len(response["error"]["message"]) < 10_000
        status, events = server.post(path, bad | {"stream": True})
        caught = events if status == 400 else events[-1]
        assert caught["error"]["code"] == 400
        assert f"[{code}]" in caught["error"]["message"]
    status, response = server.post(path, body | {"n": 2, "use_beam_search": True})
    assert status == 400, response
    assert "Beam search is not supported in tandem" in response["error"]["message"]
    assert server.post(path, body | {"vllm_xargs": {"tandem": SEED}})[0] == 200


SEED = '{"seed": 1}'
MISPLACED = "[request-field-misplaced]"
NEAR_MISSES = [
    {"tandem": {"seed": 1}},
    {"extra_args": {"tandem": {"seed": 7}}},
    {"extra_body": {"vllm_xargs": {"tandem": SEED}}},
    {"sampling_params": {"extra_args": {"tandem": SEED}}},
    {"vllm_xargs": {"tandem": {"seed": 7}}},
    {"vllm_xargs": {"tandem": None}},
    {"vllm_xargs": {"Tandem": SEED}},
    {"vllm_xargs": {"tandem_seed": 7}},
    {"vllm_xargs": {"seed": 7, "schedule": "word"}},
    {"vllm_xargs": {"tandam": SEED}},
    {"vllm_xargs": {"t\u0430ndem": SEED}},
    {"vllm_xargs": {"other": "x"}},
    {"vllm_xargs": {"tandem": SEED, "p": 0.3}},
    {"tadnem": SEED},
]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/v1/responses"])
def test_fields_that_are_nearly_right_are_not_answered(server: Server, path: str):
    """By the senior alone: those in ``vllm_xargs`` with a mapping are vLLM's own refusals."""
    prompt = {"/v1/completions": {"prompt": PROMPT}, "/v1/responses": {"input": PROMPT}}
    body = {"model": "team", **prompt.get(path, CHAT)}
    for near in NEAR_MISSES:
        status, response = server.post(path, body | near)
        assert status == 400, (near, response)
        if "vllm_xargs" not in near:
            assert MISPLACED in response["error"]["message"], (near, response)
            assert server.post(path, body | near | {"stream": True})[0] == 400


MISPLACED_FIELDS = [near for near in NEAR_MISSES if "vllm_xargs" not in near] + [
    {"vllm_xarg": {"tandem": SEED}},
    {"messages": [{"role": "user", "content": "x", "tandem": SEED}]},
    {"stream_options": {"tandem": SEED}},
]


def test_misplaced_field_is_rejected_on_every_endpoint(server: Server):
    """Every one that this vLLM has: see the specification of its own server."""
    paths = [path for path, ways in server.get("/openapi.json")["paths"].items() if "post" in ways]
    assert {"/v1/completions", "/v1/chat/completions/batch", "/v1/messages"} <= set(paths)
    assert {"/inference/v1/generate", "/v1/responses", "/tokenize", "/invocations"} <= set(paths)
    for path in paths:
        wrong_place = "vllm_xargs" if "inference" in path else "sampling_params"
        elsewhere: dict[str, Any] = {wrong_place: {"extra_args": {"tandem": SEED}, "tandem": SEED}}
        for near in (*MISPLACED_FIELDS, elsewhere):
            if "inference" in path and "extra_args" in near.get("sampling_params", {}):
                continue  # its right place
            status, response = server.post(path, {"model": "team", **near})
            assert status == 400, (path, near, response)
            assert MISPLACED in response["error"]["message"], (path, near, response)


WHOLE = {
    "/v1/completions": {"prompt": PROMPT},
    "/v1/chat/completions": CHAT,
    "/v1/chat/completions/batch": {"messages": [CHAT["messages"]]},
    "/v1/responses": {"input": PROMPT},
    "/v1/messages": CHAT | {"max_tokens": 4},
    "/generative_scoring": {"query": "x", "items": ["y"], "label_token_ids": [5, 6]},
    "/invocations": {"prompt": PROMPT},
}


@pytest.mark.parametrize("path", WHOLE)
def test_misspelt_name_in_the_right_place_is_rejected_on_every_endpoint(server: Server, path: str):
    """Also where the endpoint drops ``vllm_xargs``, as the one for scores does."""
    for near in ({"Tandem": SEED}, {"seed": 7, "schedule": "word"}, {"tandem": SEED, "p": 0.3}):
        status, response = server.post(path, {"model": "team", **WHOLE[path], "vllm_xargs": near})
        assert status == 400, (path, near, response)
        assert "[request-field-unknown]" in response["error"]["message"], response


def test_misspelt_name_among_sampling_parameters_is_rejected(server: Server):
    for near in ({"Tandem": SEED}, {"seed": 7}, {"other": "x"}):
        body = {"model": "team", "token_ids": [5, 6], "sampling_params": {"extra_args": near}}
        status, response = server.post("/inference/v1/generate", body)
        assert status == 400, (near, response)
        assert "[request-field-unknown]" in response["error"]["message"], response


def test_endpoint_that_drops_tandem_says_so(server: Server):
    body = {"model": "team", **WHOLE["/generative_scoring"]}
    status, response = server.post("/generative_scoring", body)
    assert status == 200, response
    status, response = server.post("/generative_scoring", body | {"vllm_xargs": {"tandem": SEED}})
    assert status == 400, response
    assert "[request-field-dropped]" in response["error"]["message"]


def test_endpoints_without_text_keep_tandem_or_need_none(server: Server):
    """A rendered request is sent on to ``/inference/v1/generate``."""
    body = {"model": "team", **CHAT, "vllm_xargs": {"tandem": SEED}}
    status, response = server.post("/tokenize", body)
    assert (status, response["count"] > 0) == (200, True)
    status, response = server.post("/v1/chat/completions/render", body)
    assert status == 200, response
    assert response["sampling_params"]["extra_args"]["tandem"] == SEED


def test_fields_of_others_are_served(server: Server):
    body = {"model": "team", "prompt": PROMPT, "max_tokens": 2}
    for other in (
        {"vllm_xargs": {"kv_cache_report_mode": "x"}},
        {"extra_body": {"top_k": 2}, "sampling_params": {"n": 2}, "extra_args": {"seed": 3}},
        {"metadata": {"tandem": "the second run"}, "user": "tandem"},
        {"vllm_xargs": {"session_id": "a"}},
    ):
        status, response = server.post("/v1/completions", body | other)
        assert status == 200, (other, response)


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


def example_with(text: str) -> str:
    page = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
    (example,) = [
        code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if text in code
    ]
    return example


def test_example_of_the_documentation_runs_against_the_server(
    server: Server, checkpoints: dict[str, Path], capsys: pytest.CaptureFixture[str]
):
    example = example_with("sample_seed").replace('{"schedule": "word"}', repr(SETTINGS))
    tokenizer = checkpoints["senior"] / "tokenizer.json"
    names = {"TOKENIZER": tokenizer, "MODEL": "team", "SERVER": server.url}
    exec(compile(example, "docs/serving.md", "exec"), names)
    assert re.match(r"(0\.\d+|1\.0) \(Span\(start=0", capsys.readouterr().out)


def test_response_that_was_cut_goes_on(server: Server, rules: TandemRules):
    """As the documentation's example does it."""
    greedy = {"model": "team", "temperature": 0, "ignore_eos": True}

    def complete(body: dict[str, Any]) -> Any:
        status, response = server.post("/v1/completions", greedy | body)
        assert status == 200, response
        return response

    rule = rules.default
    names: dict[str, Any] = {"rule": rule, "complete": complete, "prompt_ids": [5, 6, 7, 8]}
    exec(compile(example_with("prompt_length"), "docs/serving.md", "exec"), names)
    whole = complete(
        {"prompt": [5, 6, 7, 8], "max_tokens": 32, **fields(json.dumps(rule.request(7).to_wire()))}
    )
    (tokens,) = token_ids_of(whole)
    assert [*names["written"], *token_ids_of(names["second"])[0]] == tokens
    assert names["authorship"].tolist() == rule.replay(tokens, 7).tolist()[8:]
    assert 0 < names["authorship"].senior_tokens < 24


@pytest.mark.long
def test_server_of_a_cpu_build_starts_as_a_module(checkpoints: dict[str, Path], tmp_path: Path):
    """``vllm serve`` asks there for a distribution of another name. This one requires tandem."""
    options = ("--enforce-eager", "--dtype", "float32", "--max-model-len", "256")
    log, settings = tmp_path / "log", SETTINGS | {"require": True}
    with vllm_server(checkpoints["senior"], settings, log, *options, as_module=True) as server:
        body = {"model": "team", "prompt": PROMPT, **SAMPLING}
        status, response = server.post("/v1/completions", body | fields('{"seed": 260}'))
        assert status == 200, response
        assert server.post("/v1/completions", body)[0] == 400
