"""Problem sets by name, the paper's and GSM8K: their sources and their sizes."""

from __future__ import annotations

import difflib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from tandem_plugin.errors import DataError
from tandem_plugin.grading.golds import GOLD_FIELDS, SOLUTION_FIELDS, given_answer
from tandem_plugin.lab.data.fields import TEXT_FIELDS, named_fields
from tandem_plugin.lab.data.problem import BadRow, ProblemSet
from tandem_plugin.lab.data.records import HubSource, is_hub_source, read_hub, read_records
from tandem_plugin.lab.data.rows import is_generated_source, problems_of


@dataclass(frozen=True, slots=True)
class NamedSet:
    """A problem set that can be selected by name."""

    count: int
    """The number of its problems, without the rows that are left out."""
    homes: tuple[HubSource, ...]
    """On the Hugging Face Hub, joined in this order; none for a set that comes as a file."""
    skips_unanswered: bool = False
    """Whether rows with a blank answer are left out, even if their solution has a box."""
    drops: tuple[tuple[str, ...], ...] = ()
    """Answers whose problems are left out, for each home or given file."""
    evaluate_on: str | None = None
    """The set to evaluate on instead of this training split."""


_AIME24 = HubSource("math-ai/aime24", revision="83a7f387baaa524a8bda0022eac0541582297103")
_AIME25 = HubSource("math-ai/aime25", revision="563bb8404243c5f09de6ec262f2db674fe5bce9b")
_AIME26 = HubSource("math-ai/aime26", revision="79037aebdb6580008fb960d17cb21fd3099083e3")
_AMC23 = HubSource("math-ai/amc23", revision="80815d37005feb82cd7f8fbc6901d5d3eff43057")
_MINERVA = HubSource("math-ai/minervamath", revision="ee46ddc498933b1977577953250ca5c66be64f96")
_DEEPSCALER = HubSource(
    "agentica-org/DeepScaleR-Preview-Dataset", revision="b6ae8c60f5c1f2b594e2140b91c49c9ad0949e29"
)
_AMC24 = HubSource("rawsh/2024_AMC12")
_AMC25 = HubSource("sonthenguyen/amc12-2025-non-figure")
_MATH500 = HubSource("HuggingFaceH4/MATH-500", split="test")
_GSM8K = HubSource("openai/gsm8k", "main", "train", "740312add88f781978c0658806c59bc2815b9866")
_GSM8K_TEST = replace(_GSM8K, split="test")

NAMED_SETS: dict[str, NamedSet] = {
    # 40,315 rows; six have an empty answer, and the paper's authors omit those.
    "deepscaler": NamedSet(40_309, (_DEEPSCALER,), skips_unanswered=True),
    "aime24": NamedSet(30, (_AIME24,)),
    "aime25": NamedSet(30, (_AIME25,)),
    "aime26": NamedSet(30, (_AIME26,)),
    "aime24-26": NamedSet(90, (_AIME24, _AIME25, _AIME26)),
    "amc23": NamedSet(40, (_AMC23,)),
    # As the paper's release compiles it, without the answers that a grader of boxes cannot judge: a
    # letter, intervals, free variables, a time of day. Source: data/build_evals.py.
    "amc23-25": NamedSet(
        121,
        (_AMC23, _AMC24, _AMC25),
        drops=(
            (),
            (r"(0, \frac{1}{2})", r"[\frac{3}{4}, \frac{7}{8}]", r"\frac{\pi}{2} - 2\alpha", "D"),
            ("4{:}30", "k"),
        ),
    ),
    "minerva": NamedSet(272, (_MINERVA,)),
    "math500": NamedSet(500, (_MATH500,)),
    # A selection of OlympiadBench that the release ships as data/eval/olympiad/test.parquet; it was
    # made from a file that is not public. Source: data/build_evals.py.
    "olympiad581": NamedSet(581, ()),
    "gsm8k": NamedSet(7_473, (_GSM8K,), evaluate_on="gsm8k-test"),
    "gsm8k-test": NamedSet(1_319, (_GSM8K_TEST,)),
}


def is_named(source: str) -> bool:
    """Whether a source is the name of a named set, and not an existing file."""
    return source in NAMED_SETS and not os.path.exists(source)


def check_source(source: str) -> None:
    """Raise :class:`DataError` for a mere word that is neither a file nor a named set."""
    is_file = Path(source).suffix or os.path.exists(source)
    if is_file or is_named(source) or is_hub_source(source) or is_generated_source(source):
        return
    near = difflib.get_close_matches(source.lower(), NAMED_SETS, n=1)
    meant = f" Did you mean {near[0]!r}?" if near else ""
    raise DataError(
        "problem-source-missing", source=source, known=", ".join(NAMED_SETS), meant=meant
    )


def load_named(
    name: str, files: tuple[Path, ...] = (), bad_rows: Literal["stop", "skip"] = "stop"
) -> ProblemSet:
    """A named set, from its source or from local files, joined in their order.

    Rows that the set is known to exclude are among the ``bad_rows`` of the result. Raises
    :class:`DataError` for a set that cannot be downloaded, or a wrong number of problems.
    """
    known = NAMED_SETS[name]
    parts = []
    if not files and not known.homes:
        raise DataError("set-comes-as-file", name=name, count=known.count)
    sources: tuple[Path | HubSource, ...] = files or known.homes
    for place, source in enumerate(sources):
        drops = known.drops[place] if place < len(known.drops) else ()
        records = read_records(source) if isinstance(source, Path) else _fetched(name, source)
        parts.append(_problems(records, str(source), known, bad_rows, drops))
    problems = [problem for part in parts for problem in part.problems]
    if len(parts) > 1:  # rows are numbered through
        problems = [replace(problem, row=row) for row, problem in enumerate(problems, 1)]
    left_out = tuple(bad for part in parts for bad in part.bad_rows)
    if len(problems) != known.count:
        raise DataError(
            "set-size-differs",
            name=name,
            count=known.count,
            where="the given file" if files else ", ".join(map(_described, known.homes)),
            rows=len(problems),
            left_out=f", and {len(left_out):,} rows excluded" if left_out else "",
        )
    return ProblemSet(name, tuple(problems), left_out)


def _fetched(name: str, home: HubSource) -> Iterator[tuple[int, Any]]:
    try:
        return read_hub(home)
    except DataError as error:
        reason = error.fields.get("reason", error.message)
        raise DataError("set-download-failed", name=name, error=reason, home=home.name) from error


def _described(home: HubSource) -> str:
    return f"{home} at revision {home.revision[:7]}" if home.revision else str(home)


def _problems(
    records: Iterable[tuple[int, Any]],
    name: str,
    known: NamedSet,
    bad_rows: Literal["stop", "skip"],
    drops: Collection[str],
) -> ProblemSet:
    """The problems of records; rows that the set excludes are bad rows, whatever bad_rows is."""
    left_out: list[BadRow] = []

    def kept() -> Iterator[tuple[int, Any]]:
        for row, record in records:
            answer = given_answer(record) if isinstance(record, Mapping) else record
            if known.skips_unanswered and answer is None:
                left_out.append(BadRow(row, "It has no answer."))
            elif str(answer) in drops:
                left_out.append(BadRow(row, f"Its answer is {answer}, which the set excludes."))
            else:
                yield row, _asked(record)

    read = problems_of(kept(), name, bad_rows)
    bad = sorted((*read.bad_rows, *left_out), key=lambda one: one.row)
    return ProblemSet(name, read.problems, tuple(bad))


def _asked(record: Any) -> Any:
    """The text and the answer of a row, which are all that the set is made of."""
    if not isinstance(record, Mapping):
        return record
    fields = named_fields(record)
    texts = [name for name in TEXT_FIELDS if name in fields]
    kept = {*texts[:1], *GOLD_FIELDS, *SOLUTION_FIELDS, "reward_model"}
    return {name: value for name, value in fields.items() if name in kept}
