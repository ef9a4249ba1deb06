"""Where Math-Verify alone, as its users call it, decides otherwise: only where it is known to."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
CASES = [
    json.loads(line)
    for line in (ROOT / "tests" / "grading" / "cases.jsonl").read_text().splitlines()
]
# Hostile cases could stop it; a response without an answer is none that both answer.
COMPARED = [
    c for c in CASES if c["topic"] != "hostile and strange" and c["expected"] != "no_answer"
]

DIRECT = """
import json, logging, sys
logging.disable(logging.CRITICAL)
from math_verify import parse, verify
for case in json.load(sys.stdin):
    gold = parse("$" + case["gold"] + "$", parsing_timeout=None)
    answer = parse(case["response"], parsing_timeout=None)
    answered = bool(gold) and bool(answer)
    print(json.dumps(answered and verify(gold, answer, timeout_seconds=None) if answered else None))
"""


@pytest.fixture(scope="module")
def direct() -> list[bool | None]:
    done = subprocess.run(
        [sys.executable, "-c", DIRECT],
        input=json.dumps(COMPARED),
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_disagreement_with_math_verify_is_a_known_one(direct: list[bool | None]):
    assert len(direct) == len(COMPARED)
    surprises: list[tuple[str, str, Any]] = [
        (case["gold"], case["response"], case.get("math_verify"))
        for case, is_equal in zip(COMPARED, direct, strict=True)
        if is_equal is not None
        and (is_equal == (case["expected"] == "correct")) == ("math_verify" in case)
    ]
    assert surprises == []


def test_every_kind_of_disagreement_is_argued():
    page = (ROOT / "docs" / "grading.md").read_text(encoding="utf-8")
    kinds = {case["math_verify"] for case in CASES if "math_verify" in case}
    assert [kind for kind in sorted(kinds) if f"`{kind}`" not in page] == []
