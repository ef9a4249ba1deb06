"""Random traffic for a tandem engine, and the check that every request got its authors."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.records import recorded
from tandem_plugin import TandemConfig, TandemRules
from tandem_plugin.seeds import derive_seed, sample_seed

SCHEDULES: list[dict[str, Any]] = [
    {},
    {"p": 0.2},
    {"p": 0.8, "cap": 3},
    {"schedule": "token"},
    {"schedule": "step"},
    {"schedule": "solo"},
    {"schedule": "junior"},
]


@dataclass(slots=True)
class Job:
    """One request of the traffic."""

    name: str
    prompt: list[int]
    tandem: dict[str, Any] | None
    """The tandem request, seed included; None for one that says nothing about tandem."""
    sampling: dict[str, Any]
    delay: float
    """Seconds after the start of the traffic when it arrives."""
    abort_after: int | None
    """Abort it when this many tokens were received."""
    adapter: str | None = None
    """The folder of the senior's adapter (LoRA)."""


@dataclass(slots=True)
class Response:
    """What came back for one sample of one job."""

    job: Job
    sample: int
    token_ids: list[int]
    finish_reason: str | None
    """None when the job was aborted."""


@dataclass(slots=True)
class Report:
    """What the traffic showed."""

    requests: int = 0
    samples: int = 0
    tokens: int = 0
    aborted: int = 0
    finished: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    mismatches: list[str] = field(default_factory=list)


def random_jobs(
    count: int,
    tokenizer: Any,
    seed: int,
    *,
    longest: int,
    arrival: float,
    seeded: bool,
    abort: float = 0.1,
    drafted: bool = False,
) -> list[Job]:
    """Jobs of random schedule, prompt, length, sampling parameters, arrival and abort.

    Some go on with a response that began in another request.

    longest: tokens at most. arrival: mean seconds between arrivals. seeded: whether some sample
    with a seed; vLLM's V1 runner on CPU cannot, together with chunked prefill (it rewinds the
    generator, which PyTorch's CPU generator does not offer). abort: share that is aborted. drafted:
    leave out what an engine that drafts refuses.
    """
    rng = random.Random(seed)
    text = "The senior and the junior write one response together, and the reader follows. " * 8
    ids = tokenizer(text).input_ids
    prefix = ids[:40]
    jobs, clock = [], 0.0
    for index in range(count):
        clock += rng.expovariate(1 / arrival) if arrival else 0.0
        start = rng.randrange(len(ids) - 64)
        prompt = ids[start : start + rng.randint(1, 60)]
        if rng.random() < 0.4:  # some share a prefix, for the prefix cache
            prompt = prefix + prompt[:20]
        tandem = None
        if rng.random() < 0.85:
            tandem = {"seed": derive_seed(seed, index), **rng.choice(SCHEDULES)}
        sampling = _random_sampling(rng, longest, seeded)
        if drafted:
            sampling = {key: value for key, value in sampling.items() if key not in _NOT_DRAFTED}
        if tandem is not None and "n" not in sampling and rng.random() < 0.25:
            tandem["prompt_length"] = len(prompt)
            prompt = prompt + ids[: rng.randint(0, 12)]
        jobs.append(
            Job(
                name=f"job-{seed}-{index}",
                prompt=prompt,
                tandem=tandem,
                sampling=sampling,
                delay=clock,
                abort_after=rng.randint(1, longest // 2) if rng.random() < abort else None,
            )
        )
    return jobs


def greedy_jobs(
    name: str,
    count: int,
    tokenizer: Any,
    length: int,
    schedules: Sequence[dict[str, Any]],
    *,
    gap: float,
    longest_prompt: int = 40,
) -> list[Job]:
    """Greedy jobs of ``length`` tokens, of different prompts, seeds and schedules.

    gap: seconds from one's arrival to the next one's.
    """
    rng = random.Random(name)
    ids = tokenizer("The senior and the junior write one response together. " * 16).input_ids
    jobs = []
    for i in range(count):
        start = rng.randrange(len(ids) - 60)
        prompt = ids[start : start + rng.randint(1, longest_prompt)]
        seed = int.from_bytes(name.encode()[:6], "big") * 1_000 + i
        tandem = {"seed": seed, **schedules[i % len(schedules)]}
        sampling = {"max_tokens": length, "temperature": 0.0, "ignore_eos": True}
        jobs.append(Job(f"{name}-{i}", prompt, tandem, sampling, gap * i, None))
    return jobs


_NOT_DRAFTED = {
    "min_p", "logit_bias", "presence_penalty", "frequency_penalty", "repetition_penalty",
    "bad_words",
}  # fmt: skip


def _random_sampling(rng: random.Random, longest: int, seeded: bool) -> dict[str, Any]:
    sampling: dict[str, Any] = {
        "max_tokens": rng.randint(1, longest),
        "temperature": rng.choice([0.0, 0.6, 1.0]),
        "ignore_eos": rng.random() < 0.7,
    }
    if sampling["temperature"] > 0:
        sampling.update(rng.choice([{}, {"top_p": 0.95}, {"top_k": 20}, {"min_p": 0.05}]))
        if seeded and rng.random() < 0.5:
            sampling["seed"] = rng.randrange(1_000)
        if rng.random() < 0.15:
            sampling["n"] = rng.randint(2, 3)
    options: list[dict[str, Any]] = [
        {},
        {},
        {},
        {"logit_bias": {5: 4.0, 9: -4.0}},
        {"presence_penalty": 0.5, "frequency_penalty": 0.3},
        {"repetition_penalty": 1.2},
        {"bad_words": ["the"]},
        {"allowed_token_ids": list(range(3, 700))},
        {"min_tokens": min(4, sampling["max_tokens"])},
        {"stop": ["e"]},
        {"stop_token_ids": [11, 12, 13]},
        {"logprobs": 2},
    ]
    return sampling | rng.choice(options)


async def send(engine: Any, jobs: list[Job], patience: float) -> list[Response]:
    """Send every job at its time; a job without an end after ``patience`` seconds is lost."""
    tasks = [asyncio.create_task(_send_one(engine, job, patience)) for job in jobs]
    return [response for group in await asyncio.gather(*tasks) for response in group]


async def _send_one(engine: Any, job: Job, patience: float) -> list[Response]:
    from vllm import SamplingParams
    from vllm.lora.request import LoRARequest
    from vllm.sampling_params import RequestOutputKind

    await asyncio.sleep(job.delay)
    extra = None if job.tandem is None else {"tandem": job.tandem}
    params = SamplingParams(
        **job.sampling, extra_args=extra, output_kind=RequestOutputKind.CUMULATIVE
    )
    latest: dict[int, Response] = {}

    async def follow() -> None:
        prompt = {"prompt_token_ids": job.prompt}
        adapter = None if job.adapter is None else LoRARequest("adapter", 1, job.adapter)
        async for output in engine.generate(prompt, params, job.name, lora_request=adapter):
            for sample in output.outputs:
                latest[sample.index] = Response(
                    job, sample.index, list(sample.token_ids), sample.finish_reason
                )
            received = sum(len(response.token_ids) for response in latest.values())
            if job.abort_after is not None and received >= job.abort_after:
                await engine.abort(job.name)
                return

    try:
        await asyncio.wait_for(follow(), patience)
    except asyncio.TimeoutError:
        return []
    return list(latest.values())


def check(
    jobs: list[Job],
    responses: list[Response],
    rules: TandemRules,
    record_folder: Path,
    *,
    spare: int = 0,
) -> Report:
    """Hold what came back against the engine's own record and the replay.

    spare: how many tokens the engine may have sampled after the last one that counted: one where it
    schedules asynchronously, more where it writes several at once.
    """
    records = recorded(record_folder, (seed for _, seed in _in_tandem(responses)))
    report = Report(requests=len(jobs))
    answered = {(response.job.name, response.sample) for response in responses}
    for job in jobs:
        for sample in range(job.sampling.get("n", 1)):
            if (job.name, sample) not in answered and job.abort_after is None:
                report.lost.append(f"{job.name}/{sample}")
    for response in responses:
        job = response.job
        report.samples += 1
        report.tokens += len(response.token_ids)
        if response.finish_reason is None and job.abort_after is None:
            report.lost.append(f"{job.name}/{response.sample} has no end")
        report.finished[str(response.finish_reason)] += 1
        if job.abort_after is not None and response.finish_reason is None:
            report.aborted += 1
    for response, seed in _in_tandem(responses):
        problem = _compare(response, seed, records.get(seed), rules, spare)
        if problem:
            report.mismatches.append(f"{response.job.name}/{response.sample}: {problem}")
    return report


def _in_tandem(responses: list[Response]) -> Iterator[tuple[Response, int]]:
    """The responses with tokens of which the engine leaves a record, and their tandem seeds."""
    for response in responses:
        if response.job.tandem is not None and response.token_ids:
            yield response, sample_seed(response.job.tandem["seed"], response.sample)


def _compare(
    response: Response, seed: int, record: Any, rules: TandemRules, spare: int
) -> str | None:
    if record is None:
        return "the engine left no record"
    chosen = rules.for_request({**response.job.tandem, "seed": seed})  # type: ignore[dict-item]
    assert chosen is not None
    rule = chosen.rule
    ids, prefix = record["response_ids"], chosen.prefix(response.job.prompt)
    if record["tandem_fingerprint"] != rule.fingerprint:
        return "another fingerprint"
    if record["authorship"] != [int(author) for author in rule.replay(ids, seed)]:
        return "record and replay differ"
    if record.get("tandem_prefix_length", 0) != len(prefix):
        return "the record tells another beginning than the request"
    whole = prefix + response.token_ids
    if ids[: len(whole)] != whole:
        return "the record holds other tokens than the response"
    # A stop string is found, and an abort decided, outside of the engine's core.
    open_end = response.finish_reason is None or "stop" in response.job.sampling
    if not open_end and len(ids) > len(whole) + spare:
        return "the record is longer than the response"
    return None


def plain_greedy(responses: list[Response]) -> Iterator[Response]:
    """The responses that a plain greedy loop can compute: no parameter beside the length."""
    plain = {"max_tokens", "temperature", "ignore_eos", "logprobs"}
    for response in responses:
        sampling = response.job.sampling
        if "prompt_length" in (response.job.tandem or {}):
            continue
        if set(sampling) <= plain and sampling["temperature"] == 0 and sampling["ignore_eos"]:
            yield response


def make_rules(tokenizer: Any, settings: dict[str, Any]) -> TandemRules:
    """The rules of an engine with these tandem settings."""
    from tandem_plugin import Vocabulary

    return TandemRules(TandemConfig.from_mapping(settings), Vocabulary.from_tokenizer(tokenizer))


def authors_by_plain_loop(
    tandem: dict[str, Any] | None, defaults: dict[str, Any], word_ids: set[int], step_ids: set[int]
) -> Callable[[], Iterator[bool]]:
    """The generator of a job's authors, from Algorithm 1 and its kin in plain Python."""
    from support.reference import algorithm_1, always, every_token, strict_alternation

    asked = {**defaults, **(tandem or {"schedule": "solo"})}
    name, seed = asked.get("schedule", "word"), asked.get("seed", 0)
    makers: dict[str, Callable[[], Iterator[bool]]] = {
        "word": lambda: algorithm_1(seed, asked.get("p", 0.5), asked.get("cap", 32), word_ids),
        "token": lambda: every_token(seed, asked.get("p", 0.5)),
        "step": lambda: strict_alternation(True, step_ids),
        "solo": lambda: always(True),
        "junior": lambda: always(False),
    }
    return makers[name]
