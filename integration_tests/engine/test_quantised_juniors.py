"""A quantised junior beside a plain senior: each token's probabilities are Hugging Face's.

The reference computes in fp32 with the matrices that the form stands for (``support/quantised.py``)
and, like the engine, rounds the inputs of linear layers where the form has quantised activations.
What vLLM quantises itself needs bfloat16, whose roundings flip those of fp8 inputs: it is compared
with a checkpoint that the tests quantised, bit for bit, in the same engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from refused import refused
from support.engine import RUNNERS, engine_settings, on_runner
from support.models import make_model
from support.quantised import FORMS, Form, as_stored, write
from support.reference import Reference
from support.speculation import needs_drafting

PROMPTS = [[5 + 7 * n, 40 + n, 300, 17, 600 + n] for n in range(8)]
LENGTH = 24
QUICK = ("int8",)
"""The others are marked long."""
ONLINE = "fp8_per_channel"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("quantised")
    senior = make_model(folder / "senior", seed=1, hidden=128)
    plain = make_model(folder / "plain", seed=2, hidden=128)
    juniors = {name: write(form, plain, folder / name) for name, form in FORMS.items()}
    return {"senior": senior, "plain": plain, **juniors}


@contextmanager
def engine(runner: str, senior: Path, junior: Path, form: Form, **tandem: Any) -> Iterator[Any]:
    from tandem_plugin.engine import TandemLLM

    with on_runner(runner):
        settings = engine_settings(None, dtype=form.dtype)
        asked = {"junior": str(junior), "junior_quantization": form.online, **tandem}
        llm = TandemLLM(str(senior), tandem={"cap": 4, **asked}, **settings)
        try:
            yield llm
        finally:
            llm.llm_engine.engine_core.shutdown()


def probabilities(llm: Any) -> list[Any]:
    from vllm import SamplingParams

    params = SamplingParams(temperature=1.0, seed=3, max_tokens=LENGTH, ignore_eos=True)
    prompts = [{"prompt_token_ids": ids} for ids in PROMPTS]
    outputs = llm.generate(prompts, params, tandem=[*range(len(PROMPTS))], use_tqdm=False)
    return [output.outputs[0] for output in outputs]


def distance(responses: list[Any], reference: Reference, author: bool) -> float:
    """The mean difference of a model's log-probabilities of all tokens from the reference's."""
    differences = []
    for prompt, response in zip(PROMPTS, responses, strict=True):
        ids = list(response.token_ids)
        logits = reference.both(prompt, ids)[author]
        exact = logits.log_softmax(-1).gather(-1, torch.tensor(ids)[:, None])[:, 0]
        scored = response.senior_logprobs if author else response.junior_logprobs
        differences.append((torch.tensor(scored) - exact).abs())
    return float(torch.cat(differences).mean())


def check(models: dict[str, Path], name: str, runner: str, **tandem: Any) -> None:
    form, dtype = FORMS[name], getattr(torch, FORMS[name].dtype)
    with engine(
        runner, models["senior"], models[name], form, partner_logprobs=True, **tandem
    ) as llm:
        responses = probabilities(llm)
    plain = Reference(models["senior"], models["plain"], weights=dtype)
    stored = Reference(models["senior"], models["plain"])
    as_stored(form, stored.models[False])
    own, others = distance(responses, stored, False), distance(responses, plain, False)
    senior = distance(responses, plain, True)
    print(
        f"{name}, {runner}: {own:.2g} from its own form, {others:.2g} from the plain junior; ",
        end="",
    )
    print(f"senior {senior:.2g}")
    assert own < others / 3, (own, others)
    assert senior < others / 3
    assert any(not senior for response in responses for senior in response.authorship.senior)


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in FORMS],
)
def test_probabilities_are_those_of_the_quantised_matrices(
    models: dict[str, Path], name: str
) -> None:
    check(models, name, RUNNERS[0])


ON = [
    "v1",
    pytest.param("v2", marks=pytest.mark.long),
    pytest.param("v2, speculative", marks=[needs_drafting, pytest.mark.long]),
]


@pytest.mark.parametrize("on", ON)
def test_what_vllm_quantises_is_what_a_quantised_checkpoint_holds(
    models: dict[str, Path], on: str, tmp_path: Path
) -> None:
    runner, _, mode = on.partition(", ")
    stored = write(FORMS["fp8"], models["plain"], tmp_path / "stored", reads=torch.bfloat16)
    forms = {
        stored: replace(FORMS["fp8"], dtype="bfloat16"),
        models["plain"]: replace(FORMS["fp8"], dtype="bfloat16", online=ONLINE),
    }
    scored = []
    for junior, form in forms.items():
        settings = {"partner_logprobs": True, "mode": mode or "lockstep"}
        with engine(runner, models["senior"], junior, form, **settings) as llm:
            scored.append(probabilities(llm))
    for theirs, ours in zip(*scored, strict=True):
        assert list(theirs.token_ids) == list(ours.token_ids)
        assert theirs.junior_logprobs.tolist() == ours.junior_logprobs.tolist()
        assert theirs.senior_logprobs.tolist() == ours.senior_logprobs.tolist()


@pytest.mark.long
@pytest.mark.parametrize("mode", ["lockstep", pytest.param("speculative", marks=needs_drafting)])
def test_same_on_model_runner_v2(models: dict[str, Path], mode: str) -> None:
    check(models, "int8", "v2", mode=mode)


@pytest.mark.parametrize(
    ("online", "dtype", "reason"),
    [("fp8_per_channel", "float32", "float32 is not supported"), ("fp9", "bfloat16", "Unknown")],
)
def test_what_vllm_rejects_is_rejected_before_anything_is_loaded(
    models: dict[str, Path], online: str, dtype: str, reason: str
) -> None:
    form = replace(FORMS["fp8"], online=online, dtype=dtype)
    with (
        refused("junior-engine-incompatible") as caught,
        engine("v1", models["senior"], models["plain"], form),
    ):
        pass
    assert reason in str(caught.value)


def test_quantised_checkpoint_is_not_quantised_again(models: dict[str, Path]) -> None:
    form = replace(FORMS["int8"], online=ONLINE, dtype="bfloat16")
    with (
        refused("junior-engine-incompatible") as caught,
        engine("v1", models["senior"], models["int8"], form),
    ):
        pass
    assert "does not match" in str(caught.value)
