r"""No route from an answer to code: a payload would leave a canary, and none is ever found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tandem_plugin.grading import Grader
from tandem_plugin.grading.rewards import verl_reward

PAYLOADS = (
    "__import__('os').system('touch CANARY')",
    "__import__(\"os\").system(\"touch CANARY\")",
    "open('CANARY','w').write('x')",
    "exec('import os; os.system(\"touch CANARY\")')",
    "eval(compile('open(\"CANARY\",\"w\")','','exec'))",
    "().__class__.__base__.__subclasses__()",
    r"\text{__import__('os').system('touch CANARY')}",
    r"\operatorname{__import__('os').system}(\text{touch CANARY})",
    r"\variable{__import__('os').system('touch CANARY')}",
    r"x_{__import__('os').system('touch CANARY')}",
    r"\frac{1}{__import__('os').system('touch CANARY')}",
    r"\sqrt{2} + f(__import__('os').system('touch CANARY'))",
    "1 if open('CANARY','w') else 2",
    "2**2 or open('CANARY','w')",
    "lambda: open('CANARY','w')",
    "{open('CANARY','w')}",
    r"\input{|touch CANARY}",
    r"\write18{touch CANARY}",
    "1,000 + open('CANARY','w').close()",
    "0x41", "1_000", "1e5j", "5;import os", "$(touch CANARY)", "`touch CANARY`",
)  # fmt: skip


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "CANARY"


@pytest.mark.parametrize("payload", PAYLOADS)
def test_no_payload_runs_as_answer_or_as_gold(grader: Grader, canary: Path, payload: str):
    for place in (payload, payload.replace("CANARY", str(canary))):
        grader.grade(f"\\boxed{{{place}}}", "5")
        grader.grade(f"\\boxed{{{place}}}", r"\sqrt{2}")
        grader.grade(r"\boxed{\sqrt{2}}", place)
        grader.grade(f"\\boxed{{x = {place}, \\sqrt{{2}}}}", r"\sqrt{2}, x")
    assert not canary.exists()
    assert list(canary.parent.iterdir()) == []


def test_no_payload_runs_through_the_reward(
    grader: Grader, canary: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(verl_reward, "default_grader", lambda: grader)
    payload = f"__import__('os').system('touch {canary}')"
    for answer in (payload, f"\\sqrt{{{payload}}}", f"\\text{{{payload}}}+1"):
        assert verl_reward.compute_score("", f"\\boxed{{{answer}}}", r"\sqrt{2}")["score"] == 0.0
    assert not canary.exists()


SEALED = """
import ctypes, json, os, socket, subprocess, sys
import sympy
from tandem_plugin.grading.symbolic import worker
attempts = json.loads(sys.argv[1])
worker.seal()
for attempt in attempts:
    try:
        attempt_code = CODES[attempt]
        attempt_code()
    except BaseException as error:
        print(type(error).__name__, worker.blocked[0])
        worker.blocked.clear()
    else:
        print("went through")
"""

ATTEMPTS = {
    "eval('1+1')": "compile",
    "exec('x = 1')": "compile",
    "compile('1', 'module.py', 'eval')": "compile",
    "compile(b'1', 'module.py', 'eval')": "compile",
    "sympy.sympify('x+1')": "compile",
    "sympy.Number('12')": "compile",
    "sympy.lambdify(sympy.Symbol('x'), sympy.Symbol('x')**2)(1)": "compile",
    "os.system('true')": "os.system",
    "os.fork()": "os.fork",
    "os.execv('/bin/true', ['true'])": "os.exec",
    "os.remove('nothing')": "os.remove",
    "subprocess.run(['true'])": "subprocess.Popen",
    "open('new', 'w')": "open",
    "os.open('new', os.O_CREAT | os.O_WRONLY)": "open",
    "socket.create_connection(('127.0.0.1', 9))": "socket",
    "ctypes.CDLL(None)": "ctypes.dlopen",
}


def test_a_sealed_process_refuses_to_run_write_or_start_anything(tmp_path: Path):
    functions = ", ".join(f"{attempt!r}: lambda: {attempt}" for attempt in ATTEMPTS)
    code = SEALED.replace("attempts =", f"CODES = {{{functions}}}\nattempts =", 1)
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(list(ATTEMPTS))],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=True,
    )
    lines = [line.split(" ", 1) for line in done.stdout.splitlines()]
    assert len(lines) == len(ATTEMPTS)
    wrong = [
        (attempt, line)
        for (attempt, event), line in zip(ATTEMPTS.items(), lines, strict=True)
        if line[0] == "went" or not line[1].startswith(event)
    ]
    assert wrong == []
    assert list(tmp_path.iterdir()) == []


def test_a_sealed_process_imports_what_nobody_has_compiled(tmp_path: Path):
    """As SymPy does late; uv, and pip with ``--no-compile``, install it uncompiled."""
    (tmp_path / "late.py").write_text("answer = 42")
    code = (
        "from tandem_plugin.grading.symbolic import worker; worker.seal()\n"
        "import late; print(late.answer, worker.blocked)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)]),
            "PYTHONDONTWRITEBYTECODE": "",
        },
        check=True,
    )
    assert done.stdout == "42 []\n"
    assert [path.name for path in tmp_path.iterdir()] == ["late.py"]


def determinant(size: int) -> str:
    rows = ("&".join(f"a_{{{i}{j}}}" for j in range(size)) for i in range(size))
    return r"\begin{vmatrix}" + r"\\".join(rows) + r"\end{vmatrix}"


def bomb(text: str) -> str:
    return f"\\boxed{{{text}}}"


HOSTILE = {
    "power tower": bomb("9^{9^{9^{9^{9}}}}"),
    "power tower of variables": bomb("x^{x^{x^{x^{x^{99}}}}}"),
    "factorials": bomb("((10^{5})!)!"),
    "binomial": bomb(r"\binom{10^{15}}{10^{7}}"),
    "digits": bomb("9" * 100_000),
    "many digits": bomb("9" * 1_900),
    "exponent": bomb("1e999999999"),
    "scientific": bomb(r"1 \times 10^{999999999}"),
    "nesting": bomb("(" * 20 + "x" + ")" * 20),
    "fractions": bomb(r"\frac{1}{" * 20 + "x" + "}" * 20),
    "roots": bomb(r"\sqrt{" * 20 + "2" + "}" * 20),
    "sum": bomb(r"\sum_{k=1}^{10^{12}} \frac{1}{k}"),
    "product": bomb(r"\prod_{k=1}^{10^{9}} k"),
    "infinite product": bomb(r"\prod_{k=1}^{\infty}(1+\frac{x}{k^2})^{k}"),
    "determinant": bomb(determinant(8)),
    "large determinant": bomb(determinant(9)),
    "long sum": bomb("+".join(f"x^{{{i}}}" for i in range(200))),
    "null bytes": bomb("5\x00"),
    "surrogates": bomb("5\ud800"),
    "regex bomb": bomb("a" * 30 + "!" + r"\text{" + " " * 1_000 + "}"),
    "spaces": bomb("5" + " " * 1_900 + "x"),
    "commas": bomb("1," * 900 + "1"),
    "equals": bomb("=".join("x" * 300)),
    "plus-minus": bomb(r"\pm " * 200 + "1"),
    "sets of plus-minus": bomb(r"\{\pm" * 23 + "1" + r"\}" * 23),
    "lists of plus-minus": bomb(r"\{1,\pm 2," * 23 + "1" + r"\}" * 23),
    "a long word behind a number": bomb("5 " + "a" * 1_900 + "?"),
    "units": bomb("5" + r"\text{ m}" * 200),
    "combining marks": bomb("5" + "\u0301" * 1_900),
    "right to left": bomb("\u202e5\u202c"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_answers_are_bounded_and_never_right(grader: Grader, kind: str):
    for gold in ("7", r"\sqrt{7}+x"):
        grade = grader.grade(HOSTILE[kind], gold)
        assert grade.outcome in ("incorrect", "timeout"), grade
        assert grade.milliseconds < 6 * 1000 * grader.limits.seconds + 1000
