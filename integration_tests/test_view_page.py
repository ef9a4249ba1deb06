"""The page of ``tandem view`` in a real browser: what is seen, and what hostile text cannot do."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.browser import chromium
from typer.testing import CliRunner

from tandem_plugin.boundaries.vocabulary_families import byte_level_piece
from tandem_plugin.cli import app

HOSTILE = [
    "</script><script>window.pwned = 1</script>",
    "<img src=x onerror='window.pwned = 1'><svg onload=window.pwned=1>",
    "<!-- <script> --!> ]]> <![CDATA[",
    "</span></div></main><style>body{display:none}</style>",
    "\"'`${window.pwned = 1} &lt;b&gt; &amp; &#60;",
    "javascript:alert(1) <a href='javascript:window.pwned=1'>x</a>",
    "line\u2028separator\u2029 nul\u0000 bell\u0007 \u202eltr override",
    "<base href='https://example.org/'><meta http-equiv=refresh content='0;url=https://e.org'>",
    "{{script}} {{rollouts}} __proto__ constructor",
    "naïve 数学 😀 e\u0301",
]
LONE_SURROGATE = "\ud800 alone \udfff"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("profile")) as window:
        yield window


@pytest.fixture(scope="module")
def byte_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A byte-level vocabulary in which token id and byte are the same."""
    file = tmp_path_factory.mktemp("tokenizer") / "vocab.json"
    file.write_text(json.dumps({byte_level_piece(bytes([i])): i for i in range(256)}))
    return file


def row(text: str | bytes, authors: list[int] | None = None, **fields: Any) -> dict[str, Any]:
    """A response whose every byte is a token."""
    ids = list(text if isinstance(text, bytes) else text.encode())
    flips = random.Random(len(ids))
    return {
        "response_ids": ids,
        "authorship": authors or [flips.getrandbits(1) for _ in ids],
        "tandem_seed": 1,
        "tandem_fingerprint": "x",
    } | fields


@pytest.fixture
def page(browser: Any, byte_tokenizer: Path, tmp_path: Path) -> Callable[..., Any]:
    """Write rows, make their page and open it; the browser."""

    def opened(rows: list[dict[str, Any]], name: str = "rollouts") -> Any:
        file = tmp_path / f"{name}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        arguments = ["view", str(file), "--tokenizer", str(byte_tokenizer)]
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, done.output
        browser.get(file.with_suffix(".html").as_uri())
        wait(browser)
        return browser

    return opened


def wait(browser: Any) -> None:
    """Until what was asked for is shown."""
    busy = "return document.getElementById('responses').getAttribute('aria-busy')"
    deadline = time.monotonic() + 20
    while browser.execute_script(busy) != "false" and time.monotonic() < deadline:
        time.sleep(0.02)
    assert browser.execute_script(busy) == "false"


def texts(browser: Any, css: str = ".text") -> list[str]:
    """The text of elements, exactly; as JSON, because the driver refuses lone surrogates."""
    script = "return JSON.stringify([...document.querySelectorAll(arguments[0])]"
    return json.loads(browser.execute_script(script + ".map(box => box.textContent))", css))


def elements(browser: Any, css: str) -> list[Any]:
    return browser.find_elements("css selector", css)


def choose(browser: Any, name: str, value: str) -> None:
    browser.execute_script(
        "const field = document.getElementById(arguments[0]); field.value = arguments[1];"
        "const typed = ['search', 'range'].includes(field.type);"
        "field.dispatchEvent(new Event(typed ? 'input' : 'change'))",
        name,
        value,
    )
    if name == "text":
        time.sleep(0.2)  # typing is waited for
    wait(browser)


def summary(browser: Any) -> dict[str, str]:
    names = [element.text for element in elements(browser, "#summary dt")]
    return dict(zip(names, (e.text for e in elements(browser, "#summary dd")), strict=True))


def requests_sent(browser: Any) -> list[str]:
    """Addresses that were asked for since the last call, but for those that a policy stopped."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent: dict[str, str] = {}
    for message in messages:
        params = message["params"]
        if message["method"] == "Network.requestWillBeSent":
            sent[params["requestId"]] = params["request"]["url"]
        elif message["method"] == "Network.loadingFailed" and params.get("blockedReason") == "csp":
            del sent[params["requestId"]]
    return [url for url in sent.values() if not url.startswith(("file:", "data:", "chrome"))]


def test_hostile_text_is_shown_as_text_and_does_nothing(page: Any, browser: Any):
    browser.get_log("browser")
    browser.get_log("performance")
    rows = [row(text, prompt=text, answer=text, problem=i) for i, text in enumerate(HOSTILE)]
    rows.append(row("lone", prompt=LONE_SURROGATE, problem=99))
    page(rows, name="<title><script>window.pwned = 1;<script>")
    assert texts(browser) == [*HOSTILE, "lone"]
    assert browser.title == "<title><script>window.pwned = 1;<script>.jsonl"
    elements(browser, ".prompt summary")[0].click()
    assert texts(browser, ".prompt pre") == [*HOSTILE, LONE_SURROGATE]
    assert browser.execute_script("return window.pwned") is None
    assert browser.execute_script("return document.scripts.length") == 3
    inside = "return [...document.querySelectorAll('.text *')].every(e => e.tagName === 'SPAN')"
    assert browser.execute_script(inside) is True
    assert elements(browser, "main img, main svg, main a, main script, main style, base") == []
    assert browser.execute_script("return getComputedStyle(document.body).display") != "none"
    assert browser.get_log("browser") == []
    assert requests_sent(browser) == []


def test_policy_of_the_page_stops_what_would_slip_through(page: Any, browser: Any):
    page([row("text")])
    added = """
        const script = document.createElement('script');
        try { script.textContent = 'window.pwned = 1'; } catch (error) { window.refused = 1; }
        document.body.append(script);
        try { document.body.innerHTML += '<b>x</b>'; } catch (error) { window.refused += 1; }
        const image = document.createElement('img');
        image.src = 'https://example.org/x.png';
        document.body.append(image);
        return [window.pwned, window.refused];
    """
    browser.get_log("performance")
    assert browser.execute_script(added) == [None, 2]
    refused = [entry["message"] for entry in browser.get_log("browser")]
    assert any("img-src" in message or "default-src" in message for message in refused)
    assert requests_sent(browser) == []


def test_span_says_its_number_author_tokens_and_position_to_mouse_tap_and_keys(
    page: Any, browser: Any
):
    from selenium.webdriver import ActionChains, Keys

    page([row("senior" + "junior" + "s", [1] * 6 + [0] * 6 + [1])])
    detail = elements(browser, "#detail")[0]
    assert not detail.is_displayed()
    junior = elements(browser, ".text .junior")[0]
    ActionChains(browser).move_to_element(junior).perform()
    assert detail.text == (
        "Span 2 of 3: junior\n6 tokens, positions 6 to 11; handoff 1 of 2, from the senior."
    )
    ActionChains(browser).move_to_element(elements(browser, "h1")[0]).perform()
    assert not detail.is_displayed()
    junior.click()
    assert detail.is_displayed()
    elements(browser, "h1")[0].click()
    assert not detail.is_displayed()
    box = elements(browser, ".text")[0]
    browser.execute_script("arguments[0].focus()", box)
    seen = []
    for _ in range(3):
        box.send_keys(Keys.ARROW_RIGHT)
        seen.append(detail.text.split("\n")[0])
    assert seen == ["Span 1 of 3: senior", "Span 2 of 3: junior", "Span 3 of 3: senior"]
    assert "1 token, position 12" in detail.text
    assert elements(browser, "#spoken")[0].get_property("textContent").endswith(" s")
    box.send_keys(Keys.ESCAPE)
    assert not detail.is_displayed()


def test_filters_search_and_order_choose_what_is_shown_and_summed(page: Any, browser: Any):
    page(
        [
            row("one apple", [1] * 9, problem=0, prompt="P", reward=1.0),
            row("two pears", [0] * 9, problem=0, prompt="P", reward=0.0),
            row("three Apples", [1, 0] * 6, problem=1, prompt="Q", reward=1.0),
            row("four", [1] * 4, problem=2, prompt="apple prompt"),
        ]
    )
    whole = summary(browser)
    assert whole["responses"] == "4"
    assert whole["problems"] == "3"
    assert whole["reward, mean"] == "0.667 of 3"
    assert whole["senior share"] == f"{100 * 19 / 34:.1f} %"
    assert whole["spans each"] == "3.8"
    choose(browser, "reward", "=1")
    assert texts(browser) == ["one apple", "three Apples"]
    assert summary(browser)["responses"] == "2 of 4"
    choose(browser, "problem", "1")
    assert texts(browser) == ["three Apples"]
    choose(browser, "reward", "")
    choose(browser, "problem", "")
    choose(browser, "text", "APPLE")
    assert texts(browser) == ["one apple", "three Apples", "four"]
    marked = "return [...CSS.highlights.get('found')].map(range => range.toString())"
    assert browser.execute_script(marked) == ["apple", "Apple"]
    choose(browser, "text", "<no such text>")
    assert texts(browser) == []
    assert elements(browser, "#none")[0].is_displayed()
    choose(browser, "text", "")
    choose(browser, "sort", "share")
    assert [t.split()[0] for t in texts(browser)] == ["two", "three", "one", "four"]
    choose(browser, "order", "down")
    assert [t.split()[0] for t in texts(browser)] == ["one", "four", "three", "two"]
    choose(browser, "reward", "none")
    assert texts(browser) == ["four"]


def test_one_problem_is_followed_over_the_steps_with_a_slider(page: Any, browser: Any):
    page(
        [
            row(f"step {step} of {prompt}", prompt=prompt, step=step, reward=step / 30)
            for step in (10, 2, 30)
            for prompt in "PPQ"
        ]
    )
    across = elements(browser, "#across")[0]
    assert not across.is_displayed()
    choose(browser, "problem", "0")
    assert across.is_displayed()
    choose(browser, "slider", "1")
    assert texts(browser) == ["step 2 of P"] * 2
    assert elements(browser, "#slid")[0].text == "step 2: 2 responses, mean reward 0.066667"
    assert browser.execute_script("return document.getElementById('step').value") == "2"


def test_search_reaches_every_part_and_what_is_asked_for_last_wins(page: Any, browser: Any):
    letters = random.Random(0)
    rows = [row("".join(letters.choices("abcdefgh ", k=900)) + f" no{i}.") for i in range(600)]
    page(rows)
    assert len(elements(browser, "script[id^=part]")) > 2
    choose(browser, "text", "NO599.")
    assert [text[-6:] for text in texts(browser)] == ["no599."]
    type_twice = """
        const field = document.getElementById('text'), button = document.getElementById('controls');
        for (const needle of ['no1', 'no598.', 'no7.']) {
          field.value = needle;
          button.dispatchEvent(new Event('submit', { cancelable: true }));
        }
    """
    browser.execute_script(type_twice)
    wait(browser)
    assert [text[-4:] for text in texts(browser)] == ["no7."]
