"""The page of ``tandem view`` in a real browser: what is seen, and what hostile text cannot do."""

from __future__ import annotations

import base64
import io
import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from automata import CALLS, CallingSchedule
from PIL import Image
from support.browser import chromium
from typer.testing import CliRunner

from tandem_plugin import BoundarySet, Vocabulary
from tandem_plugin.boundaries.vocabulary_families import byte_level_piece
from tandem_plugin.cli import app
from tandem_plugin.lab.viewer.live import RolloutsPage
from tandem_plugin.rules import Rule
from tandem_plugin.training.validation_log import ValidationLog

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
        resize(window, 1400)
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


def press(browser: Any, keys: str, css: str = "body") -> None:
    elements(browser, css)[0].send_keys(keys)
    wait(browser)


def listed(browser: Any) -> list[str]:
    """(problem, sample) of the responses in the list, in its order."""
    return [name.split("Problem ")[1] for name in texts(browser, ".row .name span")]


def click_row(browser: Any, place: int) -> None:
    """Not by the driver: it scrolls, which draws the rows anew."""
    browser.execute_script("document.getElementById('row-' + arguments[0]).click()", place)
    wait(browser)


def resize(browser: Any, width: int) -> None:
    size = {"width": width, "height": 850, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


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
    """By one script: a page that loads itself again changes between two."""
    script = "return [...document.querySelectorAll('#summary dt, #summary dd')]"
    said = browser.execute_script(script + ".map(element => element.innerText)")
    return dict(zip(said[::2], said[1::2], strict=True))


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


def test_calls_are_the_juniors_spans_with_the_command_before_them(page: Any) -> None:
    """The authors of a schedule of token classes, as a replay of the text gives them."""
    vocabulary = Vocabulary(tuple(byte_level_piece(bytes([i])) for i in range(256)), "bytes")
    table = CALLS.table(vocabulary).astype(np.int64)
    rule = Rule(CallingSchedule(), BoundarySet("calling", table, CALLS.classes), "calls")
    text = "So <3>six, and <0> nothing, <12>seven more."
    authors = [int(author) for author in rule.replay(list(text.encode()), 1).senior]
    window = page([row(text, authors, tandem_schedule={"schedule": "calling", "most": 5})])
    assert texts(window) == [text]
    assert texts(window, ".text .junior") == ["six", "seven"]
    assert texts(window, ".text .senior") == ["So <3>", ", and <0> nothing, <12>", " more."]
    facts = " ".join(texts(window, ".facts"))
    assert "calling most=5" in facts
    assert "2 junior spans of 4 tokens" in facts


def test_hostile_text_is_shown_as_text_and_does_nothing(page: Any, browser: Any):
    browser.get_log("browser")
    browser.get_log("performance")
    rows = [row(text, prompt=text, answer=text, problem=i) for i, text in enumerate(HOSTILE)]
    rows.append(row("lone", prompt=LONE_SURROGATE, problem=99))
    page(rows, name="<title><script>window.pwned = 1;<script>")
    assert browser.title.endswith("/<title><script>window.pwned = 1;<script>.jsonl")
    for shown, prompt in zip([*HOSTILE, "lone"], [*HOSTILE, LONE_SURROGATE], strict=True):
        assert texts(browser) == [shown]
        assert texts(browser, ".prompt pre") == [prompt]
        inside = "return [...document.querySelectorAll('.text *')].every(e => e.tagName === 'SPAN')"
        assert browser.execute_script(inside) is True
        assert elements(browser, "main img, main svg, main a, main script, main style, base") == []
        press(browser, "n")
    assert browser.execute_script("return window.pwned") is None
    assert browser.execute_script("return document.scripts.length") == 3
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
    choose(browser, "reward", "1")
    assert listed(browser) == ["0, sample 0", "1, sample 0"]
    assert summary(browser)["responses"] == "2 of 4"
    choose(browser, "problem", "rollouts.jsonl:3")
    assert texts(browser) == ["three Apples"]
    choose(browser, "reward", "")
    choose(browser, "problem", "")
    choose(browser, "text", "APPLE")
    assert listed(browser) == ["0, sample 0", "1, sample 0", "2, sample 0"]
    assert texts(browser) == ["three Apples"], "what was open stays open"
    marked = "return [...CSS.highlights.get('found')].map(range => range.toString())"
    assert browser.execute_script(marked) == ["Apple"]
    choose(browser, "text", "<no such text>")
    assert texts(browser) == listed(browser) == []
    assert elements(browser, "#none")[0].is_displayed()
    choose(browser, "text", "")
    choose(browser, "sort", "share up")
    assert texts(browser) == ["two pears"], "after a sort, the first is open"
    assert listed(browser) == ["0, sample 1", "1, sample 0", "0, sample 0", "2, sample 0"]
    choose(browser, "sort", "reward down")
    assert listed(browser) == ["0, sample 0", "1, sample 0", "0, sample 1", "2, sample 0"]
    choose(browser, "reward", "none")
    assert texts(browser) == ["four"]
    names = texts(browser, "#problem option")
    assert names[1:] == ["Problem 0: P", "Problem 1: Q", "Problem 2: apple prompt"]


@pytest.mark.parametrize("width", [390, 1400])
def test_long_response_is_folded_and_unfolds(page: Any, browser: Any, width: int):
    """A text of 40,000 spans is in the document as far as it is visible."""
    resize(browser, width)
    long = "".join(f"word {i}\n" for i in range(4000)) + "the end"
    page([row(long, [i % 2 for i in range(len(long))]), row("short", problem=1)])
    height = "return document.querySelector('.text').clientHeight"
    assert long.startswith(texts(browser)[0])
    assert len(texts(browser)[0]) < 4000
    assert browser.execute_script(height) < 500
    assert elements(browser, ".unfold")[0].text == f"Show all {len(long):,} tokens"
    press(browser, "f")
    assert texts(browser) == [long]
    assert browser.execute_script(height) > 50_000
    press(browser, "f")
    assert browser.execute_script(height) < 500
    browser.execute_script("document.querySelector('.unfold').click()")
    assert browser.execute_script(height) > 50_000
    choose(browser, "text", "the end")
    assert texts(browser) == [long], "what was searched for is not folded away"
    choose(browser, "text", "")
    press(browser, "n")
    assert texts(browser) == ["short"]
    assert not elements(browser, ".unfold")[0].is_displayed()
    wide = "return document.documentElement.scrollWidth <= window.innerWidth"
    assert browser.execute_script(wide) is True


@pytest.mark.parametrize("width", [390, 1400])
def test_keys_and_buttons_lead_through_responses_and_samples_side_by_side(
    page: Any, browser: Any, width: int
):
    resize(browser, width)
    page(
        [
            row(f"problem {problem} step {step} sample {sample}", prompt=str(problem), step=step)
            for step in (2, 10)
            for problem in range(2)
            for sample in range(3)
        ]
    )
    assert elements(browser, "#place")[0].text == "1 of 12"
    press(browser, "n")
    press(browser, "j")
    assert texts(browser) == ["problem 0 step 2 sample 2"]
    press(browser, "k")
    elements(browser, "#next")[0].click()
    wait(browser)
    assert texts(browser) == ["problem 0 step 2 sample 2"]
    assert elements(browser, "[aria-selected=true]")[0].text.startswith("Problem 1, step 2")
    press(browser, "s")
    assert texts(browser) == [f"problem 0 step 2 sample {i}" for i in range(3)]
    assert texts(browser, ".open .text") == ["problem 0 step 2 sample 2"]
    left, right, _ = (card.rect for card in elements(browser, ".response"))
    assert left["y"] == right["y"]
    assert left["x"] + left["width"] <= right["x"]
    press(browser, "n")
    assert texts(browser) == [f"problem 1 step 2 sample {i}" for i in range(3)]
    press(browser, "p")
    press(browser, "s")
    assert texts(browser) == ["problem 0 step 2 sample 2"]
    click_row(browser, 4)
    assert texts(browser) == ["problem 1 step 2 sample 1"]
    press(browser, "\ue010", "#list")  # End
    assert texts(browser) == ["problem 1 step 10 sample 2"]
    browser.execute_script("document.getElementById('filters').open = true")
    press(browser, "k", "#text")
    time.sleep(0.3)  # typing is waited for
    wait(browser)
    assert texts(browser) == [], "typed into the search, it is no command"


@pytest.mark.parametrize("width", [390, 1400])
def test_only_what_is_in_sight_of_many_responses_is_in_the_document(
    page: Any, browser: Any, width: int
):
    resize(browser, width)
    page([row(f"{i} " * 40, problem=i // 8, prompt=f"Problem {i // 8}: why?") for i in range(3000)])
    everything = "return document.querySelectorAll('body *').length"
    assert browser.execute_script(everything) < 375 + 1000
    assert len(elements(browser, ".row")) < 40
    press(browser, "\ue010", "#list")
    assert texts(browser)[0].startswith("2999 2999")
    assert listed(browser)[-1] == "374, sample 7"
    browser.execute_script("document.getElementById('list').scrollTop = 50_000")
    time.sleep(0.1)
    assert len(elements(browser, ".row")) < 40
    click_row(browser, 963)
    assert elements(browser, "#place")[0].text == "964 of 3,000"
    assert texts(browser, "#problem option")[1] == "Problem 0: why?"


def test_schedule_that_only_selects_trained_tokens_shows_the_senior_alone(page: Any, browser: Any):
    page([row("trained not", [1] * 7 + [0] * 4, tandem_schedule={"schedule": "solo-word"})])
    assert elements(browser, ".text .junior") == []
    assert texts(browser, ".text .untrained") == [" not"]
    assert summary(browser)["senior share"] == "100.0 %"
    assert elements(browser, "#legend-untrained")[0].is_displayed()
    elements(browser, ".text .untrained")[0].click()
    assert elements(browser, "#detail")[0].text == (
        "Span 2 of 2: senior, not trained on\n"
        "4 tokens, positions 7 to 10; no handoff: the senior wrote both."
    )


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


def address(browser: Any) -> str:
    """The part of the page's address that leads to a response, once it is written there."""
    time.sleep(0.3)
    return browser.execute_script("return decodeURIComponent(location.hash)")


def test_address_leads_to_one_response_by_its_file_and_line(page: Any, browser: Any):
    name = "a <b>#%41 é"
    rows = [row(f"response {i}", problem=i, reward=i % 2) for i in range(40)]
    page(rows, name=name)
    here = browser.current_url
    assert address(browser) == ""
    press(browser, "n")
    assert address(browser) == f"#{name}.jsonl:2"
    link = browser.current_url
    choose(browser, "reward", "0")
    assert texts(browser) == ["response 0"]
    browser.execute_script(f"location.hash = '#' + encodeURIComponent({name!r} + '.jsonl:32')")
    time.sleep(0.1)
    wait(browser)
    assert texts(browser) == ["response 31"], "whatever is selected"
    assert len(listed(browser)) > 1
    for url, text in ((link, "response 1"), (f"{here}#nothing", "response 0")):
        browser.get("about:blank")
        browser.get(url)
        wait(browser)
        assert texts(browser) == [text]
    gone = elements(browser, "#gone")[0]
    assert gone.text == "This page has no response nothing."
    browser.get("about:blank")
    browser.get(f"{here}#%3Cimg src=x onerror='window.pwned=1'%E0%A4%A")
    wait(browser)
    assert elements(browser, "#gone")[0].is_displayed()
    assert elements(browser, "img") == []
    assert browser.execute_script("return window.pwned") is None


def test_filters_are_in_the_address_and_a_link_carries_them(page: Any, browser: Any):
    rows = [
        row("right", [1] * 5, problem=0, reward=1.0, outcome="correct", finish_reason="stop"),
        row("cut off", [0] * 7, problem=0, reward=0.0, outcome="incorrect", finish_reason="length"),
        row("wrong", [1, 0] * 2 + [1], problem=1, reward=0.0, outcome="incorrect", step=3),
        row("wrong, too", [1] * 10, problem=1, reward=0.0, outcome="incorrect", step=3),
    ]
    page(rows)
    here = browser.current_url
    choose(browser, "outcome", "incorrect")
    choose(browser, "end", "none")
    assert texts(browser, ".row .facts")[0] == "5 tokens, senior 60.0 %, no signal"
    choose(browser, "share", "0.6..0.7")
    choose(browser, "sort", "tokens down")
    choose(browser, "text", "r&o=n ?")
    assert listed(browser) == []
    assert address(browser) == (
        "#?text=r&o=n+?&outcome=incorrect&end=none&share=0.6..0.7&sort=tokens+down"
    )
    link = browser.current_url
    choose(browser, "text", "WRONG")
    assert listed(browser) == ["1, step 3, sample 0"]
    browser.get("about:blank")
    browser.get(link)
    wait(browser)
    field = "return document.getElementById(arguments[0]).value"
    assert browser.execute_script(field, "text") == "r&o=n ?"
    assert browser.execute_script(field, "sort") == "tokens down"
    assert listed(browser) == []
    places = {
        "signal=without+signal": ["wrong", "wrong, too"],
        "signal=with+signal": ["right", "cut off"],
        "end=truncated": ["cut off"],
        "share=0.5..1": ["right", "wrong", "wrong, too"],  # the upper end of all shares is in it
        "share=0.55..0.95": ["wrong"],
        "problem=rollouts.jsonl:2": ["right", "cut off"],  # any response names its problem
        "reward=no+such&step=17": ["right", "cut off", "wrong", "wrong, too"],
        "step=3&reward=0": ["wrong", "wrong, too"],
    }
    for query, shown in places.items():
        browser.execute_script("location.hash = arguments[0]", f"#?{query}")
        time.sleep(0.1)
        wait(browser)
        read = []
        for place in range(len(listed(browser))):
            click_row(browser, place)
            read += texts(browser)
        assert read == shown, query
    browser.get("about:blank")
    browser.get(f"{here}#rollouts.jsonl%3A4?outcome=incorrect")
    wait(browser)
    assert texts(browser) == ["wrong, too"]
    assert summary(browser)["responses"] == "3 of 4"


def test_after_a_sort_the_first_row_is_open_and_in_sight(page: Any, browser: Any):
    page([row("x" * (i + 1), problem=i) for i in range(400)])
    choose(browser, "sort", "tokens down")
    assert texts(browser) == ["x" * 400]
    assert listed(browser)[0] == "399, sample 0"
    assert browser.execute_script("return document.getElementById('list').scrollTop") == 0


@pytest.fixture
def opened_runs(browser: Any, byte_tokenizer: Path, tmp_path: Path) -> Callable[..., Any]:
    """Make the page of several runs of dumps, by their names and steps, and open it."""

    def opened(**runs: dict[int, list[dict[str, Any]]]) -> Any:
        folders = [tmp_path / "runs" / name / "rollouts" for name in runs]
        for folder, steps in zip(folders, runs.values(), strict=True):
            folder.mkdir(parents=True, exist_ok=True)
            for step, rows in steps.items():
                lines = "".join(json.dumps(response) + "\n" for response in rows)
                (folder / f"{step}.jsonl").write_text(lines)
        arguments = ["view", *map(str, folders), "--tokenizer", str(byte_tokenizer)]
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, done.output
        page = folders[0].with_suffix(".html")
        if len(runs) > 1:
            page = tmp_path / "runs" / ("-and-".join(runs) + ".html")
        browser.get(page.as_uri())
        wait(browser)
        return browser

    return opened


@pytest.mark.parametrize("width", [390, 1400])
def test_two_runs_are_side_by_side_on_the_same_prompt(opened_runs: Any, browser: Any, width: int):
    resize(browser, width)

    def answers(run: str, step: int, rewards: tuple[float, ...]) -> list[dict[str, Any]]:
        return [
            row(f"{run} {step} {prompt} {k}", input=f"prompt {prompt}", score=reward)
            for prompt in range(2)
            for k, reward in enumerate(rewards)
        ]

    opened_runs(
        grpo={step: answers("grpo", step, (0.0, 0.0)) for step in (1, 2)},
        tandem={2: answers("tandem", 2, (1.0, 0.0, 1.0)), 10: answers("tandem", 10, (1.0,))},
    )
    assert texts(browser, ".column > .run") == ["grpo", "tandem"]
    assert texts(browser, ".column > .facts") == [
        "2 samples, reward, mean 0.000",
        "no response to this prompt",
    ]
    choose(browser, "step", "2")
    assert texts(browser, ".column:first-child .text") == ["grpo 2 0 0", "grpo 2 0 1"]
    assert texts(browser, ".column:last-child .text") == [f"tandem 2 0 {k}" for k in range(3)]
    left, right = (column.rect for column in elements(browser, ".column"))
    assert left["y"] == right["y"]
    assert left["x"] + left["width"] <= right["x"]
    figures = [text for text in texts(browser, "#summary dl") if "without signal" in text]
    assert len(figures) == 1, "only one run has groups without signal"
    assert "groups without signal2" in figures[0]
    press(browser, "n")
    assert texts(browser, ".column .text")[0] == "grpo 2 1 0", "the next prompt"
    choose(browser, "run", "tandem")
    assert len(listed(browser)) == 6
    assert texts(browser, ".open .text") == ["tandem 2 0 0"]
    press(browser, "s")
    assert texts(browser) == ["tandem 2 0 0"]
    assert address(browser) == "#tandem/2.jsonl:1?run=tandem&step=2"
    wide = "return document.documentElement.scrollWidth <= window.innerWidth"
    assert browser.execute_script(wide) is True


def test_two_files_of_other_names_are_side_by_side_too(
    browser: Any, byte_tokenizer: Path, tmp_path: Path
):
    files = [tmp_path / f"{name}.jsonl" for name in ("alone", "team")]
    for file in files:
        lines = [json.dumps(row(f"{file.stem} {k}", problem=k)) + "\n" for k in range(2)]
        file.write_text("".join(lines))
    page = tmp_path / "page.html"
    arguments = ["view", *map(str, files), "--tokenizer", str(byte_tokenizer), "--out", str(page)]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    browser.get(page.as_uri())
    wait(browser)
    assert texts(browser, ".column .text") == ["alone 0", "team 0"]
    press(browser, "n")
    assert texts(browser, ".column .text") == ["alone 1", "team 1"]
    assert "reward" not in "".join(texts(browser, "#summary dt")), "these rows have none"


def test_curves_show_each_step_and_a_click_goes_there(opened_runs: Any, browser: Any):
    from selenium.webdriver import ActionChains, Keys

    def answers(step: int) -> list[dict[str, Any]]:
        return [
            row(
                f"step {step}", [1] * 6 + [0] * (len(f"step {step}") - 6), input="p", score=step / 8
            )
        ]

    opened_runs(alone={step: answers(step) for step in (0, 2, 4, 8)})
    svg = elements(browser, "#curves svg")[0]
    points = elements(browser, "#curves polyline")[0].get_attribute("points")
    assert [place.split(",") for place in points.split()] == [
        ["0", "38"], ["25", "29"], ["50", "20"], ["100", "2"],
    ]  # fmt: skip
    caption = texts(browser, "#curves figcaption")
    assert caption == ["reward 0.000 to 1.000", f"senior share {100 * 6 / 6:.1f} % to 100.0 %"]
    ActionChains(browser).move_to_element_with_offset(svg, 0, 0).click().perform()
    wait(browser)
    assert texts(browser) == ["step 4"]
    assert "Step 4: reward 0.500, senior share 100.0 %" in texts(browser, ".said")[0]
    assert address(browser) == "#4.jsonl:1?step=4"
    elements(browser, "#curves")[0].send_keys(Keys.ARROW_RIGHT)
    wait(browser)
    assert texts(browser) == ["step 8"]
    elements(browser, "#curves")[0].send_keys(Keys.ESCAPE)
    wait(browser)
    assert len(listed(browser)) == 4
    assert elements(browser, "#curves")[0].get_attribute("aria-valuetext").startswith("all steps")


def test_validations_show_who_solves_how_much_and_a_fall(
    opened_runs: Any, browser: Any, tmp_path: Path
):
    runs = {name: {1: [row(name, input="p", score=1)]} for name in ("grpo", "tandem")}
    grpo, tandem = (ValidationLog("", tmp_path / "runs" / name / "rollouts") for name in runs)
    for step, senior, team in ((0, 0.5, 0.25), (10, 0.625, 0.375), (20, 0.25, 0.5)):
        tandem.add("senior", senior, 400, step)
        tandem.add("team", team, 400, step)
    tandem.add("junior", 0.375, 400, 20)
    grpo.add("senior", 0.5, 400, 0)
    grpo.add("senior", 0.75, 400, 20)
    opened_runs(**runs)
    assert texts(browser, "#validations figcaption") == [
        "validation of grpo senior alone 50.0 % to 75.0 % steps 0 to 20",
        "validation of tandem senior alone 50.0 % to 25.0 % team 25.0 % to 50.0 % "
        "junior alone 37.5 % steps 0 to 20",
    ]
    lines = [line.get_attribute("points") for line in elements(browser, "#validations polyline")]
    assert lines == ["0,38 100,2", "0,14 50,2 100,38", "0,38 50,26 100,14", "0,26 100,26"]
    (fall,) = texts(browser, "#fallen p")
    assert fall.startswith("tandem, step 20: the senior alone solves 25.0% of the validation")
    assert elements(browser, "#fallen")[0].is_displayed()
    wide = "return document.documentElement.scrollWidth <= window.innerWidth"
    assert browser.execute_script(wide) is True


def test_page_without_validations_has_no_place_for_them(page: Any, browser: Any):
    page([row("one", step=1, reward=1)])
    assert not elements(browser, "#validations")[0].is_displayed()
    assert not elements(browser, "#fallen")[0].is_displayed()


def test_curve_of_a_single_step_is_not_drawn(page: Any, browser: Any):
    page([row("one", step=1, reward=1), row("two", step=1, reward=0)])
    assert not elements(browser, "#curves")[0].is_displayed()


def test_tokens_that_surprise_the_partner_are_marked(page: Any, browser: Any):
    text = "abc é x"  # of eight bytes, and so tokens
    authors = [1, 1, 1, 0, 0, 0, 0, 0]
    juniors = [-0.1, -1.0, -3.0, None, None, None, None, None]
    seniors = [None, None, None, 0.0, None, -5.0, -0.5, -0.7]
    logprobs = {"senior_logprobs": seniors, "junior_logprobs": juniors}
    page([row(text, authors, **logprobs), row("plain", problem=1)])

    def marked() -> list[list[str]]:
        script = "return [0, 1, 2].map(i => [...CSS.highlights.get('surprise-' + i)].map(String))"
        return browser.execute_script(script)

    assert marked() == [[], [], []]
    press(browser, "u")
    assert marked() == [["b", "x"], ["c"], ["é"]]
    assert "partner's surprise 1.47 nats per token" in texts(browser, ".response .facts")[0]
    elements(browser, ".text .senior")[0].click()
    assert elements(browser, "#detail")[0].text.endswith(
        "The partner's surprise 1.37 nats per token, at most 3.00 at position 2."
    )
    press(browser, "n")
    assert marked() == [[], [], []]
    elements(browser, "#surprise")[0].click()
    assert elements(browser, "#surprise")[0].get_attribute("aria-pressed") == "false"
    choose(browser, "sort", "surprise down")
    assert texts(browser) == [text]


def test_responses_of_several_files_say_whose_they_are(
    browser: Any, byte_tokenizer: Path, tmp_path: Path
):
    for name, text in (("base/solo", "alone"), ("base/handoff/step/small", "together")):
        file = tmp_path / "evaluation" / name / "sums.jsonl"
        file.parent.mkdir(parents=True)
        rows = (row(f"{text} {i}", problem=0, sample=i, prompt="P") for i in range(2))
        file.write_text("".join(json.dumps(one) + "\n" for one in rows))
        file.with_name("sums.jsonl.run.json").write_text("{}")
        file.with_name("sums.scores.jsonl").write_text("{}")
    arguments = ["view", str(tmp_path / "evaluation"), "--tokenizer", str(byte_tokenizer)]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    browser.get((tmp_path / "evaluation.html").as_uri())
    wait(browser)
    files = ["handoff/step/small/sums.jsonl", "solo/sums.jsonl"]
    assert texts(browser, "#file option") == ["all 2", *files]
    assert listed(browser) == [f"0, sample {i}, {file}" for file in files for i in range(2)]
    press(browser, "s")
    assert texts(browser) == ["together 0", "together 1"], "the samples of one file"
    choose(browser, "file", "solo/sums.jsonl")
    assert texts(browser) == ["alone 0", "alone 1"]


@pytest.fixture
def live(browser: Any, byte_tokenizer: Path, tmp_path: Path) -> Iterator[RolloutsPage]:
    """A page that is written while its run goes on; the browser leaves it at the end."""
    yield RolloutsPage(tmp_path / "dumps", tmp_path / "d.html", str(byte_tokenizer), 10**7)
    browser.get("about:blank")


def dump(live: RolloutsPage, step: int, rows: list[dict[str, Any]]) -> None:
    live.rollouts.mkdir(exist_ok=True)
    text = "".join(json.dumps(one) + "\n" for one in rows)
    (live.rollouts / f"{step}.jsonl").write_text(text)
    live.update()


def loads(browser: Any) -> None:
    """Load the page again, as it does by itself: until it is another document, and is shown."""
    browser.execute_script("window.left = true; location.reload()")
    deadline = time.monotonic() + 20
    while browser.execute_script("return window.left === true") and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not browser.execute_script("return window.left === true")
    wait(browser)


def test_page_that_loads_itself_again_stays_at_the_same_place(
    live: RolloutsPage, browser: Any, monkeypatch: Any
):
    monkeypatch.setattr("tandem_plugin.lab.viewer.live._LOOKS_MS", 600_000)
    live.update()
    browser.get(live.page.as_uri())
    wait(browser)
    assert elements(browser, "#none")[0].text == "No responses yet."
    assert "looks for more every 600 s." in elements(browser, "#live")[0].text
    long = "".join(f"word {i}\n" for i in range(60))
    dump(live, 1, [row(f"{i} {long}", input=f"Problem {i % 2}", score=i % 2) for i in range(4)])
    loads(browser)
    assert summary(browser)["responses"] == "4"
    choose(browser, "reward", "1")
    press(browser, "n")
    browser.execute_script("document.querySelector('.unfold').click()")
    assert texts(browser) == [f"3 {long}"]
    dump(live, 2, [row(f"{i} later", input="Problem 9", score=1) for i in range(3)])
    loads(browser)
    assert summary(browser)["responses"] == "5 of 7"
    assert texts(browser) == [f"3 {long}"], "still open, and unfolded"
    assert elements(browser, "#reward option:checked")[0].text == "1"
    assert address(browser) == "#1.jsonl:4?reward=1"
    choose(browser, "sort", "line down")
    press(browser, "\ue011", "#list")  # Home
    assert texts(browser) == ["2 later"], "the latest first"
    choose(browser, "text", "later")
    press(browser, "s")
    dump(live, 3, [row("later", input="Problem 0", score=1)])
    loads(browser)
    assert summary(browser)["responses"] == "4 of 8"
    assert texts(browser) == [f"{i} later" for i in range(3)], "side by side"
    assert texts(browser, ".open .text") == ["2 later"]
    assert elements(browser, "#text")[0].get_property("value") == "later"
    live.finish()
    loads(browser)
    assert not elements(browser, "#live")[0].is_displayed()
    assert texts(browser, ".open .text") == ["2 later"]


def test_open_page_loads_itself_again_but_not_under_its_reader(
    live: RolloutsPage, browser: Any, monkeypatch: Any
):
    monkeypatch.setattr("tandem_plugin.lab.viewer.live._LOOKS_MS", 300)
    dump(live, 1, [row("first", score=1)])
    browser.get(live.page.as_uri())
    wait(browser)
    browser.get_log("browser")
    browser.get_log("performance")
    dump(live, 2, [row("second", score=1)])
    until(browser, lambda: summary(browser).get("responses"), "2")
    click_pause = "window.same = true; document.getElementById('pause').click()"
    browser.execute_script(click_pause)
    time.sleep(4)
    assert browser.execute_script("return window.same") is True, "paused"
    assert elements(browser, "#pause")[0].text == "Continue"
    mark = "getSelection().selectAllChildren(document.querySelector('.text'));"
    browser.execute_script(mark + click_pause)
    time.sleep(4)
    assert browser.execute_script("return window.same") is True, "text is marked"
    browser.execute_script("getSelection().removeAllRanges()")
    until(browser, lambda: browser.execute_script("return window.same"), None)
    assert browser.get_log("browser") == []
    assert requests_sent(browser) == []


def until(browser: Any, seen: Callable[[], Any], expected: Any) -> None:
    """Wait until something is seen; the page may be loading."""
    from selenium.common import WebDriverException

    deadline, last = time.monotonic() + 30, None
    while time.monotonic() < deadline:
        with suppress(WebDriverException):
            last = seen()
            if last == expected:
                return
        time.sleep(0.1)
    assert last == expected


def test_images_of_a_prompt_are_seen_and_named(page: Callable[..., Any]) -> None:
    image = Image.linear_gradient("L").resize((640, 200)).convert("RGB")
    stored = io.BytesIO()
    image.save(stored, "PNG")
    url = "data:image/png;base64," + base64.b64encode(stored.getvalue()).decode()
    bad = "data:image/png;base64," + base64.b64encode(stored.getvalue()[:-40]).decode()
    browser = page([row("It is 4.", prompt="<image><image>Find x.", images=[url, bad])])
    (shown,) = elements(browser, ".prompt img")
    assert shown.is_displayed()  # without a click
    sizes = "return [arguments[0].complete, arguments[0].naturalWidth, arguments[0].naturalHeight]"
    deadline = time.monotonic() + 10
    while not browser.execute_script(sizes, shown)[0] and time.monotonic() < deadline:
        time.sleep(0.1)
    assert browser.execute_script(sizes, shown) == [True, 320, 100]
    assert shown.get_attribute("alt") == "Image 1 of 2"
    assert texts(browser, ".prompt .empty")[0].startswith("Image 2 of 2 is not shown: it cannot")


def test_a_prompt_of_text_is_folded(page: Callable[..., Any]) -> None:
    browser = page([row("It is 4.", prompt="Find x.")])
    (text,) = elements(browser, ".prompt pre")
    assert not text.is_displayed()
