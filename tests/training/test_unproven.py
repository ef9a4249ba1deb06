"""What a run allows by name although nobody has shown it: said loudly, refused without the name."""

from __future__ import annotations

import pytest
from refused import refused

from tandem_plugin import ConfigError, TandemConfig
from tandem_plugin.training.refusals import Unproven

NAMES = {"megatron": "the engine of that name", "custom_loss": "policy losses of one's own"}
SENTENCE = "strategy=megatron was not tested with tandem. Use fsdp."
REFUSAL = ConfigError(SENTENCE)
REFUSAL = ConfigError(SENTENCE)
REFUSAL = ConfigError(SENTENCE)
REFUSAL = ConfigError(SENTENCE)
REFUSAL = ConfigError(SENTENCE)
REFUSAL = ConfigError(SENTENCE)


def allowing(*names: str) -> Unproven:
    return Unproven(TandemConfig.from_mapping({"unproven": list(names)}), NAMES)


def test_unproven_setting_is_refused_with_the_name_that_would_allow_it() -> None:
    for run in (allowing(), allowing("custom_loss")):
        with pytest.raises(ConfigError) as caught:
            run.check("megatron", REFUSAL)
        assert caught.value.message.startswith(SENTENCE)
        assert "add megatron to tandem.unproven" in caught.value.message
        assert run.warnings == []


def test_allowed_setting_goes_on_and_says_so_loudly(capsys: pytest.CaptureFixture[str]) -> None:
    run = allowing("custom_loss", "megatron")
    run.say()
    assert capsys.readouterr().err == ""  # nothing of it is made use of yet
    run.check("megatron", REFUSAL)
    run.say()
    said = capsys.readouterr().err
    assert said.startswith(f"WARNING: {SENTENCE} tandem.unproven allows megatron")
    assert "NOBODY HAS SHOWN" in said
    assert said.count("\n") == 1


def test_unknown_name_is_refused_with_the_list() -> None:
    with refused("TP440", name="megatrn"):
        allowing("megatron", "megatrn")


def test_name_that_could_never_be_allowed_is_a_mistake_of_the_adapters() -> None:
    with pytest.raises(ValueError, match="none of the names"):
        allowing().check("gae", REFUSAL)
