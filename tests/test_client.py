from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from refused import refused

from tandem_plugin import (
    TandemConfig,
    TandemRules,
    Vocabulary,
)
from tandem_plugin.lab.client import AuthorshipReader, ServerRequest
from tandem_plugin.seeds import sample_seed

SETTINGS = {"schedule": "word", "cap": 2}
IDS = [0, 2, 1, 5, 3, 0, 0, 0, 2, 7]


@pytest.fixture
def reader(tokenizer_file: Path) -> AuthorshipReader:
    return AuthorshipReader.from_tokenizer(tokenizer_file, SETTINGS)


@pytest.fixture
def rules(byte_level: Vocabulary) -> TandemRules:
    return TandemRules(TandemConfig.from_mapping(SETTINGS), byte_level)


def completion(*choices: list[int], usage: bool = True, **fields: Any) -> dict[str, Any]:
    body = {
        "choices": [
            {"index": i, "text": "x", "finish_reason": "stop", "token_ids": ids}
            for i, ids in enumerate(choices)
        ]
    }
    if usage:
        fields["usage"] = {"completion_tokens": sum(map(len, choices))}
    return body | fields


def written_for(request: ServerRequest, body: dict[str, Any], samples: int = 0) -> dict[str, Any]:
    """A body as a server answers this request: each choice says what its engine went by.

    samples: of each prompt; 0 where all choices are of one.
    """
    (sent,) = request.fields()["vllm_xargs"].values()
    for choice in body["choices"]:
        place = choice["index"] % (samples or len(body["choices"]))
        choice["tandem"] = json.loads(sent) | {"seed": sample_seed(request.seed, place)}
    return body


def test_samples_have_seeds_of_their_own_in_any_order(reader: AuthorshipReader, rules: TandemRules):
    request = reader.request(7)
    body = written_for(request, completion(IDS, IDS, IDS))
    body["choices"].reverse()
    expected = [rules.default.replay(IDS, sample_seed(7, i)) for i in range(3)]
    assert request.read(body) == expected


def test_response_that_does_not_say_what_it_was_written_for_is_refused(reader: AuthorshipReader):
    """A proxy dropped the request's field, and the senior answered alone; or the response's."""
    with refused("TP009", index=0):
        reader.request(7).read(completion(IDS))
    request = reader.request(7)
    body = written_for(request, completion(IDS, IDS))
    del body["choices"][1]["tandem"]
    with refused("TP009", index=1):
        request.read(body)


def test_response_to_another_request_is_refused(reader: AuthorshipReader):
    request = reader.request(7)
    others = {
        "seed": reader.request(8),
        "fingerprint": reader.request(7, p=0.9),
        "prompt_length": request.resume([3, 3], []),
    }
    for name, other in others.items():
        for sent, read in ((request, other), (other, request)):
            with refused("TP010", name=name):
                read.read(written_for(sent, completion(IDS)))


@pytest.mark.parametrize("cut", [0, 1, 4, len(IDS)])
def test_cut_response_goes_on_under_the_same_draws(
    reader: AuthorshipReader, rules: TandemRules, cut: int
):
    rest = reader.request(7).resume([3, 3, 3], IDS[:cut])
    served = rules.for_request(rest.fields()["vllm_xargs"]["tandem"])
    assert served is not None
    assert (served.seed, served.prefix([3, 3, 3, *IDS[:cut]])) == (7, IDS[:cut])
    (authorship,) = rest.read(written_for(rest, completion([*IDS[cut:], 2])))
    assert authorship.tolist() == rules.default.replay([*IDS, 2], 7).tolist()[cut:]


def test_several_choices_of_a_response_that_goes_on_are_refused(reader: AuthorshipReader):
    with refused("TP007", choices=2):
        reader.request(7).resume([3], IDS).read(completion(IDS, IDS))


def test_prompt_that_was_cut_on_its_way_is_refused(reader: AuthorshipReader):
    rest = reader.request(7).resume([3, 3, 3], IDS[:4])
    for counted in (7, 6):
        body = written_for(rest, completion(IDS[4:]))
        body["usage"]["prompt_tokens"] = counted
        if counted == 7:
            rest.read(body)
            continue
        with refused("TP008", sent=6, length_sent=7):
            rest.read(body)


def test_response_goes_on_by_its_tokens_alone(reader: AuthorshipReader):
    with refused("TP011"):
        reader.request(7, prompt_length=3)


def test_stream_is_read(reader: AuthorshipReader, rules: TandemRules):
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": i, "delta": {"role": "assistant", "content": ""}} for i in (0, 1)]},
        *(
            {"choices": [{"index": i, "delta": {"content": "x"}, "token_ids": [token]}]}
            for token in IDS
            for i in (1, 0)
        ),
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "token_ids": [2]}]},
        {"choices": [], "usage": {"completion_tokens": 2 * len(IDS) + 1}},
    ]
    request = reader.request(7)
    written_for(request, chunks[0])
    read = request.read_stream(chunks)
    assert read == [
        rules.default.replay([*IDS, 2], 7),
        rules.default.replay(IDS, sample_seed(7, 1)),
    ]


def test_objects_of_the_openai_client_are_read(reader: AuthorshipReader, rules: TandemRules):
    request = reader.request(7)
    response = SimpleNamespace(model_dump=lambda: written_for(request, completion(IDS)))
    assert request.read(response) == [rules.default.replay(IDS, 7)]


@pytest.mark.parametrize(
    ("response", "code"),
    [
        ({"choices": [{"index": 0, "text": "x"}]}, "TP014"),
        ({"choices": [{"index": 0, "delta": {"content": "x"}}]}, "TP014"),
        (completion(IDS, usage=False) | {"usage": {"completion_tokens": 11}},
         "TP006"),
        ({"choices": []}, "TP005"),
        ({"choices": [{"index": 1, "token_ids": [1]}]}, "TP005"),
        ({"error": {"message": "no", "code": 400}}, "TP004"),
        ("text", "TP013"),
    ],
)  # fmt: skip
def test_response_that_cannot_be_read_is_refused(
    reader: AuthorshipReader, response: Any, code: str
):
    with refused(code):
        reader.request(7).read(response)


def test_wrong_settings_and_requests_are_refused(reader: AuthorshipReader, tokenizer_file: Path):
    with refused("TP145", name="p", value=7):
        AuthorshipReader.from_tokenizer(tokenizer_file, {"p": 7})
    with refused("TP145", name="p", value=7):
        reader.request(7, p=7)
    with refused("TP012"):
        reader.request(7, schedule="off")


def test_client_needs_no_engine(tokenizer_file: Path):
    code = (
        "import sys; from tandem_plugin.lab.client import AuthorshipReader; "
        f"reader = AuthorshipReader.from_tokenizer({str(tokenizer_file)!r}, {{}}); "
        "request = reader.request(7); wire = request.rule.request(7).to_wire(); "
        "request.read({'choices': [{'index': 0, 'token_ids': [1, 2], 'tandem': wire}]}); "
        "print(sorted({'torch', 'vllm', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
