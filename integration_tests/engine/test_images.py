"""Prompts with images: both models' own sight of them, against Hugging Face's, on both runners."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from PIL import Image, ImageOps
from refused import refused
from support import image_faults, sleeping, worker
from support.device import graph_arguments, on_gpu
from support.drafting import has_drafting
from support.engine import RUNNERS, tandem_engine
from support.graphs import with_graphs
from support.hybrids import with_states
from support.images import (
    BOTH_WAYS,
    FAMILIES,
    ImageReference,
    answers,
    engine_prompt,
    make_seeing,
    picture,
    prompts_with_images,
)
from support.lora import RANK, TOWERS, make_adapter
from support.reference import alternating, always
from support.vision_packages import offer_torchvision
from support.weight_transfer import ARGUMENTS as TRANSFER
from support.weight_transfer import chunks

from tandem_plugin.engine import unsupported

pytestmark = [
    pytest.mark.skipif(not has_drafting(), reason="images need vLLM 0.29"),
    pytest.mark.skipif(not offer_torchvision(), reason="no torchvision: constraints/install.py"),
]
ALTERNATE = {"schedule": "step", "boundaries": "every", "images": True}


@dataclass
class Checkpoints:
    """Checkpoints of one family, made when they are first asked for."""

    folder: Path
    family: str

    def __getattr__(self, name: str) -> Path:
        settings: dict[str, Any] = {
            "first": {"seed": 0},
            "junior": {"seed": 1},
            "other": {"seed": 2},
            "wide": {"seed": 3, "hidden": 96},
            "tied": {"seed": 4, "tied": True},
            "tied_other": {"seed": 5, "tied": True},
        }[name]
        if not (self.folder / name).exists():
            make_seeing(self.folder / name, self.family, **settings)
        return self.folder / name

    def reference(self, senior: str = "first", junior: str = "junior") -> ImageReference:
        return ImageReference(getattr(self, senior), getattr(self, junior))

    def adapter(self, seed: int, excluded: str | None = TOWERS) -> Path:
        """An adapter of the first model, of all layers that are not excluded."""
        options = {"kind": "ImageTextToText", "excluded": excluded}
        folder = self.folder / f"adapter-{seed}"
        return make_adapter(self.first, folder, seed=seed, **options)[0]


@pytest.fixture(scope="module")
def families(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Checkpoints]:
    return {name: Checkpoints(tmp_path_factory.mktemp(name), name) for name in FAMILIES}


@contextmanager
def engine_of(
    runner: str, models: Checkpoints, senior: str, tandem: dict[str, Any] | None, **options: Any
) -> Iterator[Any]:
    """An engine for up to 4 images per prompt; tandem: settings, None for vLLM alone."""
    settings = {"max_model_len": 512, "limit_mm_per_prompt": {"image": 4}} | options
    with ExitStack() as stack:
        if models.family == "qwen3.5":
            settings |= stack.enter_context(with_states())
        # vLLM's CPU platform asks Qwen3-VL's text config for its architecture, which it lacks.
        stack.enter_context(mock.patch.dict(os.environ, VLLM_MLA_DISABLE="1"))
        if runner == "v2":  # interpreted: vLLM's largest image takes minutes
            settings |= {"skip_mm_profiling": True}
        yield stack.enter_context(
            tandem_engine(runner, getattr(models, senior), tandem, **settings)
        )


ALWAYS = [("v1", "qwen2.5-vl")]
PAIRS = [
    pytest.param(runner, family, marks=() if (runner, family) in ALWAYS else pytest.mark.long)
    for runner in RUNNERS
    for family in FAMILIES
    if (runner, family) != ("v2", "qwen3.5") and family not in BOTH_WAYS
]
TIGHT = {
    "block_size": 32,
    "num_gpu_blocks_override": 18,
    "max_num_batched_tokens": 48,
    "max_num_seqs": 8,
}
"""Images are cut between steps, and requests preempted."""


@pytest.fixture(scope="module")
def models(families: dict[str, Checkpoints]) -> Checkpoints:
    """Those of the family of most tests."""
    return families["qwen2.5-vl"]


@pytest.fixture(scope="module")
def reference(models: Checkpoints) -> ImageReference:
    return models.reference()


@pytest.fixture(scope="module", params=["v1", pytest.param("v2", marks=pytest.mark.long)])
def engine(request: pytest.FixtureRequest, models: Checkpoints) -> Iterator[Any]:
    """A tight one with two models."""
    tandem = {**ALTERNATE, "junior": models.junior}
    options = {**TIGHT, **TRANSFER, "enable_prefix_caching": True, "disable_log_stats": False}
    with engine_of(request.param, models, "first", tandem, **options) as engine:
        yield engine


def counted(engine: Any, name: str) -> float:
    """One of vLLM's metrics."""
    values = [one.value for one in engine.get_metrics() if one.name == f"vllm:{name}"]
    assert len(values) == 1, name
    return float(values[0])


def seen(reference: ImageReference, prompts: Any, responses: Any) -> Any:
    return reference.seen(prompts, responses, lambda: alternating(True))


def test_cut_images_and_preempted_requests_change_nothing(
    engine: Any, models: Checkpoints, reference: ImageReference
) -> None:
    prompts = prompts_with_images(models.first)
    lengths = [len(reference.expanded(*prompt)) for prompt in prompts]
    assert max(lengths) > TIGHT["max_num_batched_tokens"]  # no step takes it whole
    responses = answers(engine, prompts, 40)
    found = seen(reference, prompts, responses)
    assert found.wrong == 0
    assert found.telling > found.shown / 3
    assert counted(engine, "num_preemptions") > 0
    assert answers(engine, prompts, 40) == responses


@pytest.mark.parametrize("fault", [image_faults.swap_halves, image_faults.share_the_seniors])
def test_the_comparison_notices_a_model_that_sees_by_the_others_tower(
    engine: Any, models: Checkpoints, reference: ImageReference, fault: Any
) -> None:
    prompts = prompts_with_images(models.first, 6)
    engine.reset_prefix_cache()
    engine.collective_rpc(fault)
    responses = answers(engine, prompts)
    engine.collective_rpc(image_faults.mend)
    engine.reset_prefix_cache()
    assert seen(reference, prompts, responses).wrong > 10
    assert seen(reference, prompts, answers(engine, prompts)).wrong == 0


def test_a_cached_prefix_is_of_its_own_image(
    engine: Any, models: Checkpoints, reference: ImageReference
) -> None:
    """Hits that reach beyond an image, by vLLM's own count, and none where its pixels differ."""
    ids, pictures = max(prompts_with_images(models.first, 6), key=lambda prompt: len(prompt[1]))
    others = [picture(700 + number, one.size) for number, one in enumerate(pictures)]
    whole, block = reference.expanded(ids, pictures), TIGHT["block_size"]
    of_first = whole.index(reference.placeholder) // block * block  # tokens before any image
    engine.reset_prefix_cache()
    hits, responses = [], []
    for shown in (pictures, pictures, others, others, pictures):
        before = counted(engine, "prefix_cache_hits")
        (response,) = answers(engine, [(ids, shown)])
        hits.append(int(counted(engine, "prefix_cache_hits") - before))
        responses.append(response)
        assert seen(reference, [(ids, shown)], [response]).wrong == 0
    cached = (len(whole) - 1) // block * block
    assert cached > whole.index(reference.placeholder) + len(pictures)
    assert hits == [0, cached, of_first, cached, cached]
    assert responses[0] == responses[1] == responses[4] != responses[2] == responses[3]


@pytest.mark.parametrize("bucket", [1, 7, 1_000])
def test_syncs_reach_the_seniors_tower_and_drop_its_encodings(
    engine: Any, models: Checkpoints, reference: ImageReference, bucket: int
) -> None:
    prompts = prompts_with_images(models.first, 6)
    answers(engine, prompts)
    engine.collective_rpc(worker.sync, args=(str(models.other), bucket))
    engine.reset_prefix_cache()  # all that TRL, OpenRLHF and SkyRL reset
    synced = seen(models.reference("other"), prompts, answers(engine, prompts))
    engine.collective_rpc(worker.sync, args=(str(models.first), bucket))
    engine.reset_prefix_cache()
    assert synced.wrong == 0
    assert seen(reference, prompts, answers(engine, prompts)).wrong == 0


@pytest.mark.parametrize("layerwise", [True, False], ids=["layerwise", "in-place"])
def test_vllms_weight_transfer_reaches_the_seniors_tower_alone(
    engine: Any, models: Checkpoints, reference: ImageReference, tmp_path: Path, layerwise: bool
) -> None:
    """Three chunks, which cut through the tower's layers."""
    prompts = prompts_with_images(models.first, 6)
    junior = engine.collective_rpc(worker.junior_digest)
    engine.init_weight_transfer_engine({"init_info": {"layerwise": layerwise}})

    def transferred(checkpoint: Path) -> Any:
        engine.start_weight_update()
        for chunk in chunks(checkpoint, tmp_path, 3):
            engine.update_weights({"update_info": chunk})
        engine.finish_weight_update()
        engine.reset_prefix_cache()
        return answers(engine, prompts)

    answers(engine, prompts)
    assert seen(models.reference("other"), prompts, transferred(models.other)).wrong == 0
    assert seen(reference, prompts, transferred(models.first)).wrong == 0
    assert engine.collective_rpc(worker.junior_digest) == junior


def test_encodings_of_an_earlier_tower_would_be_noticed(
    engine: Any, models: Checkpoints, reference: ImageReference
) -> None:
    prompts = prompts_with_images(models.first, 6)
    engine.reset_prefix_cache()
    answers(engine, prompts)
    engine.collective_rpc(worker.sync, args=(str(models.other), 1_000))
    stale = answers(engine, prompts)
    engine.collective_rpc(worker.sync, args=(str(models.first), 1_000))
    engine.reset_prefix_cache()
    assert seen(models.reference("other"), prompts, stale).wrong > 5


def test_samples_of_a_prompt_see_its_images(
    engine: Any, models: Checkpoints, reference: ImageReference
) -> None:
    from vllm import SamplingParams

    prompts = prompts_with_images(models.first, 3)
    tandem = {"extra_args": {"tandem": {"seed": 1}}}
    params = SamplingParams(n=3, top_k=1, max_tokens=12, ignore_eos=True, **tandem)
    outputs = engine.generate([engine_prompt(one) for one in prompts], params, use_tqdm=False)
    for number in range(3):
        responses = [list(output.outputs[number].token_ids) for output in outputs]
        assert seen(reference, prompts, responses).wrong == 0


def test_one_picture_in_two_sizes_is_seen_in_both(
    engine: Any, models: Checkpoints, reference: ImageReference
) -> None:
    (prompt, _), *_ = prompts_with_images(models.first, 1)
    large = picture(7, (168, 168))
    prompts = [(prompt, [large]), (prompt, [large.resize((84, 56))]), (prompt, [large])]
    responses = answers(engine, prompts)
    assert responses[0] == responses[2] != responses[1]
    assert seen(reference, prompts, responses).wrong == 0


def test_aborted_requests_leave_the_others_right(
    engine: Any, models: Checkpoints, reference: ImageReference
) -> None:
    from vllm import SamplingParams

    prompts = prompts_with_images(models.first, 6)
    core = engine.llm_engine
    tandem = {"extra_args": {"tandem": {"seed": 1}}}
    params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, **tandem)
    for number, prompt in enumerate(prompts):
        core.add_request(str(number), engine_prompt(prompt), params)
    ended: dict[str, list[int]] = {}
    steps = 0
    while core.has_unfinished_requests():
        if steps == 2:
            core.abort_request(["0", "4"])
        ended |= {
            one.request_id.partition("-")[0]: list(one.outputs[0].token_ids)
            for one in core.step()
            if one.finished
        }
        steps += 1
    assert len(ended) == 4
    rest = [prompts[int(name)] for name in ended]
    assert seen(reference, rest, list(ended.values())).wrong == 0


def test_senior_and_junior_alone_see_as_well(
    engine: Any, models: Checkpoints, reference: ImageReference
) -> None:
    prompts = prompts_with_images(models.first, 3)
    for schedule, senior in (("solo", True), ("junior", False)):
        extra = {"extra_args": {"tandem": {"seed": 1, "schedule": schedule}}}
        responses = answers(engine, prompts, **extra)
        assert reference.seen(prompts, responses, lambda senior=senior: always(senior)).wrong == 0


def test_placeholders_are_never_sampled(engine: Any, models: Checkpoints) -> None:
    """Even where nothing else may be: not a token, but its bias, asks for one."""
    prompts = prompts_with_images(models.first, 3)
    reference = models.reference()
    placeholder = reference.placeholder
    responses = answers(engine, prompts, logit_bias={placeholder: 100.0})
    assert all(placeholder not in response for response in responses)
    assert seen(reference, prompts, responses).wrong == 0


def test_bad_prompts_fail_alone(engine: Any, models: Checkpoints, tmp_path: Path) -> None:
    (ids, pictures), *_ = prompts_with_images(models.first, 1)
    broken = tmp_path / "broken.png"
    picture(1).save(broken)
    broken.write_bytes(broken.read_bytes()[:-40])
    before = answers(engine, [(ids, pictures)])
    with refused("image-placeholder-without-image"):
        answers(engine, [(ids, [])])
    with pytest.raises(Exception) as caught:  # noqa: PT011  # vLLM's own
        answers(engine, [(ids + ids, pictures)])  # more placeholders than pictures
    assert "EngineDead" not in type(caught.value).__name__
    extra = {"extra_args": {"tandem": {"seed": 1, "prompt_length": 2}}}
    with refused("image-in-response"):
        answers(engine, [(ids, pictures)], **extra)
    for count, bad in (
        (2, picture(2)),  # more pictures than placeholders
        (5, picture(2)),  # than the engine admits
        (1, Image.open(broken)),
        (1, "https://nowhere.invalid/picture.png"),
        (1, b"no picture"),
        (1, str(tmp_path / "missing.png")),
        (1, None),
    ):
        with pytest.raises(Exception) as caught:  # noqa: PT011  # vLLM's own
            answers(engine, [(ids, [bad] * count)])
        assert "EngineDead" not in type(caught.value).__name__
    with pytest.raises(Exception, match="At most 0 video"):
        engine.generate(
            [{"prompt_token_ids": ids, "multi_modal_data": {"video": [[picture(1)] * 2]}}],
            use_tqdm=False,
        )
    assert answers(engine, [(ids, pictures)]) == before


def test_a_url_is_not_fetched(engine: Any) -> None:
    """Unless ``allowed_media_domains`` names its host."""
    content = {"type": "image_url", "image_url": {"url": "http://127.0.0.1:9/picture.png"}}
    with pytest.raises(ValueError, match="allowed domains"):
        engine.chat([{"role": "user", "content": [content]}], use_tqdm=False)


def pictures_of_every_kind() -> dict[str, Any]:
    """Pictures as files have them; the reference gets what vLLM's conversion should make."""
    plain = picture(11, (112, 84))
    stored = io.BytesIO()
    frames = [picture(seed, (112, 84)).convert("P") for seed in (12, 13)]
    frames[0].save(stored, "GIF", save_all=True, append_images=frames[1:])
    return {
        "greyscale": plain.convert("L"),
        "palette": plain.convert("P"),
        "CMYK": plain.convert("CMYK"),
        "one bit": plain.convert("1"),
        "animated": Image.open(stored),
        "huge": picture(14, (2_000, 1_500)),
        "long": picture(15, (600, 30)),
        "tiny": picture(16, (30, 30)),
    }


def test_pictures_of_every_kind_are_seen_as_hugging_face_sees_them(
    engine: Any, models: Checkpoints, reference: ImageReference
) -> None:
    (prompt, _), *_ = prompts_with_images(models.first, 1)
    kinds = pictures_of_every_kind()
    responses = answers(engine, [(prompt, [one]) for one in kinds.values()])
    for (kind, shown), response in zip(kinds.items(), responses, strict=True):
        found = seen(reference, [(prompt, [shown.convert("RGB")])], [response])
        assert found.wrong == 0, kind


def test_an_engine_turns_and_flattens_pictures_that_a_trainer_would_not(
    engine: Any, models: Checkpoints, reference: ImageReference
) -> None:
    """Why adapters reject such pictures: the trainer's own processor leaves them as they are."""
    (prompt, _), *_ = prompts_with_images(models.first, 1)
    plain, stored = picture(17, (112, 56)), io.BytesIO()
    exif = Image.Exif()
    exif[Image.ExifTags.Base.Orientation] = 6
    plain.save(stored, "PNG", exif=exif)
    turned, veiled = Image.open(stored), plain.convert("RGBA")
    veiled.putalpha(Image.linear_gradient("L").resize(plain.size))
    responses = answers(engine, [(prompt, [turned]), (prompt, [veiled])])
    flat = Image.new("RGB", plain.size, (255, 255, 255))
    flat.paste(veiled, mask=veiled.getchannel("A"))
    shown = [ImageOps.exif_transpose(turned), flat]
    for one, raw, response in zip(shown, (turned, veiled), responses, strict=True):
        assert seen(reference, [(prompt, [one])], [response]).wrong == 0
        assert seen(reference, [(prompt, [raw.convert("RGB")])], [response]).wrong > 0


def test_rounds_of_sleep_keep_both_towers(
    engine: Any, models: Checkpoints, reference: ImageReference
) -> None:
    prompts = prompts_with_images(models.first, 6)
    engine.collective_rpc(sleeping.prepare)
    (before,) = engine.collective_rpc(sleeping.junior_bits)
    engine.collective_rpc(sleeping.sleep)
    assert engine.collective_rpc(sleeping.junior_bits) != [before]
    engine.collective_rpc(sleeping.wake_up, args=(None,))
    assert engine.collective_rpc(sleeping.junior_bits) == [before]
    engine.collective_rpc(sleeping.pack_the_junior_anew)
    engine.collective_rpc(worker.sync, args=(str(models.first), 1_000))
    engine.reset_prefix_cache()
    assert seen(reference, prompts, answers(engine, prompts)).wrong == 0


def test_an_engine_of_dummy_weights_sees_once_it_is_synced(
    models: Checkpoints, reference: ImageReference
) -> None:
    """As verl starts one: nothing but the sync's weights may come between pixels and tower."""
    prompts = prompts_with_images(models.first, 6)
    tandem = {**ALTERNATE, "junior": models.junior}
    with engine_of("v1", models, "first", tandem, load_format="dummy") as engine:
        engine.collective_rpc(worker.sync, args=(str(models.first), 7))
        engine.reset_prefix_cache()
        responses = answers(engine, prompts)
    assert seen(reference, prompts, responses).wrong == 0


@pytest.mark.parametrize(("runner", "family"), PAIRS)
def test_each_author_sees_the_images(
    runner: str, family: str, families: dict[str, Checkpoints]
) -> None:
    models = families[family]
    prompts = prompts_with_images(models.first)
    with engine_of(runner, models, "first", {**ALTERNATE, "junior": models.junior}) as engine:
        responses = answers(engine, prompts)
        again = answers(engine, prompts)
    assert again == responses
    found = seen(models.reference(), prompts, responses)
    print(runner, family, found)
    assert found.wrong == 0
    assert found.telling > found.shown / 10


ADAPTING = {"enable_lora": True, "max_loras": 2, "max_lora_rank": RANK}
ADAPTED = [
    *((runner, family, "first") for runner, family in (pair.values for pair in PAIRS)),
    ("v1", "qwen2.5-vl", "junior"),
]
"""Beside their own base, and beside another model. Hybrids take no adapters."""


@pytest.mark.long
@pytest.mark.parametrize(
    ("runner", "family", "junior"), [one for one in ADAPTED if one[1] != "qwen3.5"]
)
def test_an_adapter_is_the_seniors_alone_and_of_no_tower(
    runner: str, family: str, junior: str, families: dict[str, Checkpoints]
) -> None:
    """Against PEFT over Hugging Face's model, with cut images, preemption and cached prefixes."""
    pytest.importorskip("peft", reason="PEFT is not installed")
    from vllm.lora.request import LoRARequest

    models = families[family]
    prompts = prompts_with_images(models.first)
    first, second, seeing = (models.adapter(1), models.adapter(2), models.adapter(3, None))
    tandem = {**ALTERNATE, "junior": getattr(models, junior)}
    options = {**TIGHT, **ADAPTING, "enable_prefix_caching": True, "disable_log_stats": False}
    of_junior = {"extra_args": {"tandem": {"seed": 1, "schedule": "junior"}}}
    with engine_of(runner, models, "first", tandem, **options) as engine:
        with pytest.raises(Exception, match="adapter-layers-unsupported"):
            engine.llm_engine.add_lora(LoRARequest("seeing", 9, str(seeing)))
        alone = answers(engine, prompts, adapters=[first])
        for _ in range(2):  # the second time from the cache
            assert answers(engine, prompts[:2], adapters=[first]) == alone[:2]
        mixed = answers(engine, prompts, 40, adapters=[first, None, second])
        juniors = [
            answers(engine, prompts, adapters=each, **of_junior)
            for each in ([first], [second], [None])
        ]
        preempted = counted(engine, "num_preemptions")
        cached = counted(engine, "prefix_cache_hits")
    assert preempted > 0
    assert cached > 0
    assert juniors[0] == juniors[1] == juniors[2]
    base, other = models.first, getattr(models, junior)
    found = []
    for start, adapter in enumerate((first, None, second)):
        reference = ImageReference(base, other, adapter)
        found.append(seen(reference, prompts[start::3], mixed[start::3]))
        if adapter == first:
            found.append(seen(reference, prompts, alone))
    print(runner, family, junior, *found)
    assert sum(one.wrong for one in found) == 0
    assert sum(one.telling for one in found) > sum(one.shown for one in found) / 10
    # The base alone would have written other tokens in the adapter's place.
    assert seen(ImageReference(base, other), prompts, alone).wrong > sum(map(len, alone)) / 10


WIDE = [("v1", "qwen2.5-vl"), ("v1", "qwen3-vl"), ("v1", "idefics3"), ("v2", "qwen2.5-vl")]


@pytest.mark.long
@pytest.mark.parametrize(("runner", "family"), WIDE)
def test_a_wider_junior_sees_in_a_tight_engine_through_syncs(
    runner: str, family: str, families: dict[str, Checkpoints]
) -> None:
    models = families[family]
    prompts = prompts_with_images(models.first)
    tandem = {**ALTERNATE, "junior": models.wide}
    with engine_of(runner, models, "first", tandem, **TIGHT) as engine:
        responses = answers(engine, prompts)
        engine.collective_rpc(worker.sync, args=(str(models.other), 7))
        engine.reset_prefix_cache()
        synced = answers(engine, prompts)
    assert seen(models.reference(junior="wide"), prompts, responses).wrong == 0
    assert seen(models.reference("other", "wide"), prompts, synced).wrong == 0


@pytest.mark.long
@pytest.mark.parametrize("family", ["qwen2.5-vl", "qwen3-vl"])
def test_tied_heads_are_synced_in_any_buckets(
    family: str, families: dict[str, Checkpoints]
) -> None:
    """The senior beside its own first checkpoint, which no sync reaches."""
    models = families[family]
    prompts = prompts_with_images(models.tied, 6)
    with engine_of("v1", models, "tied", ALTERNATE) as engine:
        for bucket in (1, 7, 1_000):
            engine.collective_rpc(worker.sync, args=(str(models.tied_other), bucket))
            engine.reset_prefix_cache()
            synced = answers(engine, prompts)
            assert seen(models.reference("tied_other", "tied"), prompts, synced).wrong == 0
            engine.collective_rpc(worker.sync, args=(str(models.tied), bucket))
            engine.reset_prefix_cache()


@pytest.mark.long
@pytest.mark.parametrize("runner", RUNNERS)
def test_graphs_read_both_models_embeddings_where_they_lie(
    runner: str, models: Checkpoints
) -> None:
    """Captured steps are replayed over the memory of their capture, the junior's buffer too."""
    prompts = prompts_with_images(models.first, 6)
    tandem = {**ALTERNATE, "junior": models.wide}
    with (
        with_graphs() as graphs,
        engine_of(runner, models, "first", tandem, **graphs) as engine,
    ):
        responses = answers(engine, prompts)
        (replays,) = engine.collective_rpc(worker.graph_replays)
    assert replays["FULL"] > 0
    assert seen(models.reference(junior="wide"), prompts, responses).wrong == 0


@pytest.mark.parametrize("kind", [on_gpu("v2", gib=4), on_gpu("v1", gib=4)])
def test_compiled_engines_on_a_gpu_see_as_eager_ones(kind: tuple[str], models: Checkpoints) -> None:
    """Kernels add in other orders, so that a near tie may go either way: few tokens differ."""
    (runner,) = kind
    prompts = prompts_with_images(models.first)
    responses = {}
    for graphs in ("eager", "FULL_AND_PIECEWISE"):
        tandem = {**ALTERNATE, "junior": models.junior}
        with engine_of(runner, models, "first", tandem, **graph_arguments(graphs)) as engine:
            responses[graphs] = answers(engine, prompts)
    found = seen(models.reference(), prompts, responses["eager"])
    compiled = seen(models.reference(), prompts, responses["FULL_AND_PIECEWISE"])
    print(f"GPU {runner} {found} {compiled}")
    assert found.wrong + compiled.wrong < (found.tokens + compiled.tokens) / 20
    assert compiled.telling > compiled.shown / 4


@pytest.mark.parametrize("kind", [on_gpu("v2", gib=4), on_gpu("v1", gib=4)])
def test_images_that_attend_both_ways_on_a_gpu_are_seen(
    kind: tuple[str], families: dict[str, Checkpoints], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gemma 3's. Its class may enter ``IMAGE_FAMILIES`` once this has passed."""
    (runner,) = kind
    models = families["gemma3"]
    allowed = {*unsupported.IMAGE_FAMILIES, "Gemma3ForConditionalGeneration"}
    monkeypatch.setattr(unsupported, "IMAGE_FAMILIES", allowed)
    monkeypatch.setenv(
        "VLLM_ENABLE_V1_MULTIPROCESSING", "0"
    )  # which checks in a process of its own
    prompts = prompts_with_images(models.first)
    tandem = {**ALTERNATE, "junior": models.junior}
    with engine_of(runner, models, "first", tandem, **graph_arguments("eager")) as engine:
        responses = answers(engine, prompts)
    found = seen(models.reference(), prompts, responses)
    print(f"GPU {runner} {found}")
    assert found.wrong < found.tokens / 20
    assert found.telling > found.shown / 10
