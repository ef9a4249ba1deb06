"""Prompts at the door of a tandem engine, without an engine."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from refused import refused

from tandem_plugin import TandemConfig, TandemRules, Vocabulary
from tandem_plugin.engine import admission, tokenizer_check
from tandem_plugin.engine.wire import AUTHORS_PROCESSOR
from tandem_plugin.files.trainers import trainers
from tandem_plugin.patching import in_place
from tandem_plugin.seeds import sample_seed


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The configuration of an engine with these numbers of token ids, vLLM's parts made up."""

    def made(senior: int, junior: int) -> Any:
        model = SimpleNamespace(
            model="senior",
            trust_remote_code=False,
            get_vocab_size=lambda: senior,
            logits_processors=[AUTHORS_PROCESSOR],
        )
        parts = {
            "vllm.transformers_utils.config": {
                "get_config": lambda name, trust: SimpleNamespace(vocab_size=junior)
            },
            "vllm.exceptions": {
                "VLLMValidationError": type("VLLMValidationError", (ValueError,), {})
            },
        }
        for name, content in parts.items():
            monkeypatch.setitem(sys.modules, name, SimpleNamespace(**content))
        for kept in ((tokenizer_check, "_sizes"), (admission, "_client_kinds")):
            monkeypatch.setattr(*kept, {})
        return SimpleNamespace(
            model_config=model,
            additional_config={"tandem": {"junior": "j"}},
            kv_transfer_config=None,
            ec_transfer_config=None,
            scheduler_config=SimpleNamespace(scheduler_cls=None),
        )

    return made


@pytest.mark.parametrize(("senior", "junior"), [(100, 90), (90, 100), (90, 90)])
def test_ids_that_not_both_models_have_are_refused(engine: Any, senior: int, junior: int):
    """Also where both have the same: vLLM lets ids through where it has no tokenizer."""
    config = engine(senior, junior)
    admission.check_prompt(config, [3, 89])
    admission.check_prompt(config, None)
    with refused("prompt-token-not-shared", token_id=90, shared=90):
        admission.check_prompt(config, [3, 90, 4])


@pytest.fixture
def rules(byte_level: Vocabulary) -> TandemRules:
    return TandemRules(TandemConfig(), byte_level)


def placed(*spans: tuple[int, int]) -> list[Any]:
    """vLLM's features of images at these offsets, of these lengths."""
    return [
        SimpleNamespace(mm_position=SimpleNamespace(offset=offset, length=length))
        for offset, length in spans
    ]


def test_placeholders_without_an_image_are_refused(engine: Any):
    config = engine(100, 100)
    config.model_config.hf_config = SimpleNamespace(image_token_id=7, video_token_id=8)
    text = [1, 7, 7, 2, 7, 3]
    admission.check_images(config, None, text, None)  # an engine of text reads them as text
    config.additional_config["tandem"]["images"] = True
    admission.check_images(config, None, text, placed((1, 2), (4, 1)))
    admission.check_images(config, None, [1, 2], None)
    # A tile's tags are inside its image, and the placeholders between them as well.
    admission.check_images(config, None, [5, 7, 6, 7, 5], placed((0, 5)))
    for token_ids, features, position in (
        (text, None, 1),
        (text, placed((1, 2)), 4),
        (text, placed((4, 1)), 1),
    ):
        with refused("image-placeholder-without-image", token_id=7, position=position):
            admission.check_images(config, None, token_ids, features)
    with refused("image-placeholder-without-image", token_id=8, position=0):
        admission.check_images(config, None, [8], None)


def test_prompt_with_images_is_as_long_as_the_engines(engine: Any, rules: TandemRules):
    """A response continues behind all tokens of its prompt's images."""
    config = engine(100, 100)
    config.model_config.hf_config = SimpleNamespace(image_token_id=7)
    config.additional_config["tandem"]["images"] = True
    for length in (None, 2, 3):
        resolved = rules.for_request(rules.default.request(1, length).to_wire())
        admission.check_images(config, resolved, [7, 7, 2], placed((0, 2)))
    resolved = rules.for_request(rules.default.request(1, prompt_length=1).to_wire())
    admission.check_images(config, resolved, [1, 2], None)
    with refused("image-in-response", prompt_length=1, end=2):
        admission.check_images(config, resolved, [7, 7, 2], placed((0, 2)))


def test_response_with_a_prefix_may_go_on_alone(engine: Any, rules: TandemRules):
    engine(90, 90)
    resolved = rules.for_request({"seed": 1, "prompt_length": 3})
    admission.check_prefix(None, 4, [1])
    admission.check_prefix(rules.for_request({"seed": 1}), 4, [1, 2, 3])
    admission.check_prefix(resolved, 1, [1, 2, 3, 4])
    admission.check_prefix(resolved, 4, [1, 2, 3])  # nothing has begun yet
    with refused("continuation-with-samples", samples=4, length=1):
        admission.check_prefix(resolved, 4, [1, 2, 3, 4])


@pytest.mark.parametrize("sent", [[1, 2], [], None])
def test_prompt_shorter_than_it_says_is_refused_as_the_clients_error(
    engine: Any, rules: TandemRules, sent: list[int] | None
):
    engine(90, 90)
    resolved = rules.for_request({"seed": 1, "prompt_length": 3})
    with refused("prompt-length-too-large", prompt_length=3, tokens=len(sent or [])) as error:
        admission.check_prefix(resolved, 1, sent)
    assert isinstance(error.value, sys.modules["vllm.exceptions"].VLLMValidationError)


def test_samples_keep_the_length_of_the_prompt():
    params = SimpleNamespace(extra_args={"tandem": {"seed": 1, "prompt_length": 3}, "other": 2})
    sample = admission.sample_params(params, 1)
    assert sample.extra_args["tandem"] == {"seed": sample_seed(1, 1), "prompt_length": 3}
    assert sample.extra_args["other"] == 2
    assert "tandem_token_log" not in sample.extra_args


def test_samples_have_names_of_their_own_for_their_scores():
    # vLLM asks with the request's own parameters, or with a sample's, whose n is 1.
    for n in (1, 2):
        extra = {"tandem": {"seed": 1}, "tandem_token_log": "5"}
        params = SimpleNamespace(extra_args=extra, n=n)
        names = [admission.sample_params(params, i).extra_args["tandem_token_log"] for i in (0, 1)]
        assert names == ["5/0", "5/1"]
        assert params.extra_args["tandem_token_log"] == "5"


def test_prompt_that_comes_in_parts_is_refused_in_tandem_alone(engine: Any, rules: TandemRules):
    engine(90, 90)
    resolved = rules.for_request({"seed": 1})
    admission.check_input(resolved, grows=False)
    admission.check_input(None, grows=True)
    with refused("streamed-prompt-unsupported") as error:
        admission.check_input(resolved, grows=True)
    assert isinstance(error.value, sys.modules["vllm.exceptions"].VLLMValidationError)


@pytest.fixture
def admitted(engine: Any, monkeypatch: pytest.MonkeyPatch, byte_level: Vocabulary) -> Any:
    """An engine's configuration, with the rules of its tokenizer."""
    rules = TandemRules(TandemConfig.from_mapping({}), byte_level)
    monkeypatch.setattr(admission, "engine_rules", lambda config: rules)
    return engine(90, 90)


@pytest.mark.parametrize(
    "extra",
    [
        {"Tandem": '{"seed": 7}'},
        {"tandem": '{"seed": 7}', "TANDEM": "off"},
        {"my_tandem": {}},
        {"schedule": "word", "p": 0.3},
        {"tandam": '{"seed": 7}'},
        {"tadnem": '{"seed": 7}'},
        {"tandm": '{"seed": 7}'},
        {"t\u0430ndem": '{"seed": 7}'},
        {"t\u0430ndem_seed": 7},
        {"\uff34\uff21\uff2e\uff24\uff25\uff2d": '{"seed": 7}'},
    ],
)
@pytest.mark.parametrize("others", [True, False])
def test_names_that_are_nearly_tandems_are_refused(
    admitted: Any, extra: dict[str, Any], others: bool
):
    if others:
        admitted.model_config.logits_processors += ["mine:Processor"]
    with refused("request-field-unknown"):
        admission.check_request(admitted, SimpleNamespace(extra_args=extra))


@pytest.mark.parametrize(
    "extra", [{"p": 0.3}, {"session": "a"}, {"seed": 3}, {"\ud800": 1}, {"": 1}]
)
def test_names_that_nobody_knows_are_refused_with_and_without_tandem(
    admitted: Any, extra: dict[str, Any]
):
    for asked in (extra, {**extra, "tandem": '{"seed": 7}'}):
        with refused("request-field-unknown") as error:
            admission.check_request(admitted, SimpleNamespace(extra_args=asked))
        str(error.value).encode()


@pytest.mark.parametrize(
    "extra",
    [None, {}, {"kv_transfer_params": {}, "ec_transfer_params": {}}, {"session_id": "a"}],
)
def test_names_of_vllm_pass_by(admitted: Any, extra: dict[str, Any] | None):
    assert admission.check_request(admitted, SimpleNamespace(extra_args=extra)) is None
    asked = {**(extra or {}), "tandem": '{"seed": 7}'}
    resolved = admission.check_request(admitted, SimpleNamespace(extra_args=asked))
    assert resolved is not None
    assert resolved.seed == 7


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ({"tandem": '{"seed": 7}'}, "request-field-dropped"),
        ({"tandem": "off"}, "request-field-dropped"),
        ({"Tandem": '{"seed": 7}'}, "request-field-unknown"),
        ({"seed": 7, "schedule": "word"}, "request-field-unknown"),
    ],
)
@pytest.mark.parametrize("extra", [None, {"kv_transfer_params": {}}])
def test_endpoint_that_drops_what_its_client_sent_is_not_answered(
    admitted: Any, sent: dict[str, Any], code: str, extra: dict[str, Any] | None
):
    remembered = admission.sent_to_server.set(sent)
    try:
        with refused(code):
            admission.check_request(admitted, SimpleNamespace(extra_args=extra))
    finally:
        admission.sent_to_server.reset(remembered)


def test_what_a_client_sent_and_the_engine_received_is_admitted(admitted: Any):
    sent = {"tandem": '{"seed": 7}', "session_id": "a"}
    remembered = admission.sent_to_server.set(sent)
    try:
        params = SimpleNamespace(extra_args={"tandem": '{"seed": 7}', "kv_transfer_params": {}})
        resolved = admission.check_request(admitted, params)
        assert resolved is not None
        assert resolved.seed == 7
        with refused("request-field-dropped"):
            params.extra_args["tandem"] = '{"seed": 8}'
            admission.check_request(admitted, params)
    finally:
        admission.sent_to_server.reset(remembered)


def test_names_of_the_users_own_readers_pass_by(admitted: Any, monkeypatch: pytest.MonkeyPatch):
    """A logits processor, connector or scheduler may read any name."""
    extra = {"p": 0.3, "random": 4, "session_id": "a", "tandem": '{"seed": 7}', "seed": 3}
    params = SimpleNamespace(extra_args=extra)
    for part, name, value in (
        (admitted.model_config, "logits_processors", [AUTHORS_PROCESSOR, "mine:Processor"]),
        (admitted, "kv_transfer_config", object()),
        (admitted, "ec_transfer_config", object()),
        (admitted.scheduler_config, "scheduler_cls", "mine:Scheduler"),
        (admission, "entry_points", lambda group: [group]),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(part, name, value)
            resolved = admission.check_request(admitted, params)
            assert resolved is not None
            assert resolved.seed == 7
        with refused("request-field-unknown"):
            admission.check_request(admitted, params)


def test_text_that_cannot_be_sent_is_written_out_in_the_answer(admitted: Any):
    """A client's error goes back to it as JSON in UTF-8."""
    for tandem, code in (
        ('{"seed": 7, "\ud800": 1}', "schedule-parameter-unknown"),
        ('{"seed": 7, "fingerprint": "\\ud800\\u001b[2J"}', "request-rules-differ"),
        ('{"seed": 7, "schedule": "\ud800"}', "plugin-name-unknown"),
    ):
        with refused(code) as error:
            admission.check_request(admitted, SimpleNamespace(extra_args={"tandem": tandem}))
        assert "\x1b" not in str(error.value)
        str(error.value).encode()


def test_engine_has_in_full_what_it_was_asked_for(admitted: Any):
    given = {"tandem": '{"seed": 7, "p": 0.3, "prompt_length": 2}', "kv_transfer_params": {}}
    params = SimpleNamespace(extra_args=given)
    resolved = admission.check_request(admitted, params)
    assert resolved is not None
    admission.write_resolved(resolved, params)
    assert params.extra_args == {
        "kv_transfer_params": {},
        "tandem": {
            "seed": 7, "schedule": "word", "p": 0.3, "cap": 32, "prompt_length": 2,
            "fingerprint": resolved.rule.fingerprint,
        },
    }  # fmt: skip
    assert isinstance(given["tandem"], str)  # the user's own
    assert admission.check_request(admitted, params) == resolved


@pytest.mark.parametrize("engine_of", [t.engine for t in trainers() if t.drops_variable])
def test_settings_that_a_trainers_own_command_drops_stop_its_first_request(
    engine_of: str, engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run would train without tandem, in silence."""
    engine(1, 1)
    monkeypatch.setitem(sys.modules, engine_of, SimpleNamespace())
    monkeypatch.setattr("tandem_plugin.patching.in_place._PLACED", {})
    monkeypatch.setenv("TANDEM_CONFIG", " ")
    admission.check_settings_are_read()
    monkeypatch.setenv("TANDEM_CONFIG", '{"schedule": "word"}')
    with refused("trainer-command-without-tandem", source="TANDEM_CONFIG"):
        admission.check_settings_are_read()
    (trainer,) = (trainer for trainer in trainers() if trainer.engine == engine_of)
    in_place.Framework(trainer.name).put()
    admission.check_settings_are_read()


def test_variable_without_a_trainer_is_somebody_elses(
    engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TANDEM_CONFIG", '{"schedule": "word"}')
    for trainer in trainers():
        monkeypatch.delitem(sys.modules, trainer.engine, raising=False)
    admission.check_settings_are_read()
    # verl's adapter rejects it before a run starts; a teacher's engine is plain in a tandem run.
    monkeypatch.setitem(sys.modules, "verl.workers.rollout.vllm_rollout", SimpleNamespace())
    admission.check_settings_are_read()


@pytest.mark.parametrize(
    ("content", "flag", "is_dropped"),
    [
        ("tandem: {schedule: word}", "--config", True),
        ("tandem.schedule: word", "--config=", True),
        ("env: {TANDEM_CONFIG: '{}'}", "--config", False),  # no settings; TRL sets the variable
        ("learning_rate: 1.0e-6", "--config", False),
        ("[", "--config", False),  # which TRL itself reports
    ],
)
def test_settings_in_the_file_of_trls_own_command_stop_its_first_request(
    content: str,
    flag: str,
    is_dropped: bool,
    engine: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("yaml")
    engine(1, 1)
    (file := tmp_path / "run.yaml").write_text(content)
    command = [f"{flag}{file}"] if flag.endswith("=") else [flag, str(file)]
    monkeypatch.setattr(sys, "argv", ["grpo", *command])
    monkeypatch.setitem(sys.modules, "trl.generation.vllm_generation", SimpleNamespace())
    monkeypatch.setattr("tandem_plugin.patching.in_place._PLACED", {})
    monkeypatch.delenv("TANDEM_CONFIG", raising=False)
    if not is_dropped:
        admission.check_settings_are_read()
        return
    with refused("trainer-command-without-tandem", source="The file of --config", trainer="TRL"):
        admission.check_settings_are_read()
