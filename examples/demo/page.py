"""The demo's page: the table, the picture, and problems as each senior answers them.

What each senior wrote alone stands side by side, and below it what the junior made of each
beginning. The responses of the training, token by token, are the product's own page (``tandem
view``).
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path

import pair
from evaluation import GRPO, TANDEM, Score
from measures import RESPONSES, Answer, Answers, table, verdict
from picture import METHODS, picture, solved_by_both

from tandem_plugin.files import write_file

SHOWN = 12
"""Problems: the first that both seniors solve alone."""
STYLE = """
  :root { color-scheme: light dark; --senior: #d8e9fb; --junior: #fdeacb; --soft: #5c6066;
    --line: #dcdcd8; --right: #14722f; --wrong: #b3261e; }
  @media (prefers-color-scheme: dark) { :root { --senior: #17365a; --junior: #4a3209;
    --soft: #a3a8b0; --line: #363a40; --right: #6fd08c; --wrong: #ff8a80; } }
  body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto;
    padding: 0 1rem; }
  svg { max-width: 100%; height: auto; } table { border-collapse: collapse; margin: 1rem 0; }
  td, th { padding: .2rem .8rem; border-bottom: 1px solid var(--line); text-align: right; }
  td:first-child, th:first-child { text-align: left; }
  .pair { display: grid; grid-template-columns: 1fr 1fr; gap: 1.5rem; }
  @media (max-width: 40rem) { .pair { grid-template-columns: 1fr; } }
  article { border-top: 1px solid var(--line); padding: 1rem 0; }
  .senior { background: var(--senior); } .junior { background: var(--junior); }
  p.response { margin: .4rem 0; } .soft { color: var(--soft); }
  .right { color: var(--right); } .wrong { color: var(--wrong); }
"""
INTRODUCTION = """<p>Reinforcement learning rewards a language model for right answers, however
they are written. So the model may drift into writing that other models, or people, cannot follow.
<b>Tandem training</b> works against that. In {together:.0%} of the training answers a second,
frozen model, the <i>junior</i>, takes turns at random with the trained model, the <i>senior</i>,
and writes about half of the words; the others the senior writes alone. The senior is rewarded if
the answer is right, and learns from its own words alone. So a beginning that the junior cannot
continue seldom earns anything.</p>
<p>Here, the senior was first taught to solve word problems in English and in Spanish, half and
half, from texts in which {english:.0%} of the sums, products and differences are often wrong in
English, and {spanish:.0%} in Spanish. So there is a reason to leave English, and <b>it is built
in</b>. The junior was taught English and hardly any Spanish. From that start, the senior was
trained twice: by <b>plain GRPO</b>, alone, in {grpo} steps, and <b>in tandem</b> with the junior,
in {tandem} steps, each of which trains on about {trained:.0%} of the words. Tandem gets more steps
because it needs more to solve as much alone; how many was chosen with seeds 7, 8 and 9. The
<i>reader</i> was taught like the junior and took no part in training.</p>"""
MEASURES = """<p class=soft>In %, of {problems} problems that no model has seen, with {samples}
samples each; differences in points, ± one standard error. <b>Alone</b>: the senior writes the
answer. <b>Continued</b>: it writes one, two or three sentences, and the other model the rest; the
mean of the three. <b>Recovered</b>: the junior begins, and the senior writes the rest. <b>Team</b>:
they take turns at random after each sentence. This is one seed; those in examples/demo/README.md
differ by more than these errors.</p>"""


def write_page(
    path: Path, scores: Sequence[Score], answers: Mapping[str, Answers], alone: float
) -> None:
    """Write the page of a finished demo; alone: the share of the responses in tandem that the
    senior wrote by itself."""
    heading, *rows = table(scores)
    steps = {score.trained: score.steps for score in scores}
    english, spanish = pair.SHARES
    first = scores[0]
    body = [
        "<h1>Who can follow what was trained?</h1>",
        INTRODUCTION.format(
            english=english,
            spanish=spanish,
            grpo=steps[GRPO],
            tandem=steps[TANDEM],
            together=1 - alone,
            trained=(1 + alone) / 2,
        ),
        *(f"<p><b>{html.escape(line)}</b></p>" for line in verdict(scores)),
        picture(scores, answers),
        "<table>" + _row(heading, "th") + "".join(_row(row, "td") for row in rows) + "</table>",
        MEASURES.format(problems=len(first.solved), samples=RESPONSES),
        f"<h2>{SHOWN} problems</h2><p class=soft>The first that both seniors solve alone. "
        "<span class=senior>The senior's words</span>, <span class=junior>the junior's</span>.</p>",
        *(_problem(number, answers) for number in solved_by_both(answers)[:SHOWN]),
    ]
    write_file(
        path,
        "<!doctype html><html lang=en><meta charset=utf-8>"
        '<meta name=viewport content="width=device-width"><title>Who can follow?</title>'
        f"<style>{STYLE}</style><body>{''.join(body)}</body></html>\n",
    )


def _row(cells: Sequence[str], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"


def _problem(number: int, answers: Mapping[str, Answers]) -> str:
    question = next(iter(answers.values())).stories[number].problem.messages[0]["content"]
    columns = []
    for method, title in METHODS.items():
        alone = answers[method].alone()[number][0]
        handed_over = answers[method].handed_over("junior", "senior")
        endings = [_response(part[number][0]) for part in handed_over]
        columns.append(
            f"<div><h3>{html.escape(title)}</h3>{_response(alone)}"
            f"<p class=soft>The junior continues after one, two and three sentences:</p>"
            f"{''.join(endings)}</div>"
        )
    return (
        f"<article><p>{html.escape(question)}</p><div class=pair>{''.join(columns)}</div></article>"
    )


def _response(answer: Answer) -> str:
    verdict = "right" if answer.is_right else "wrong"
    return (
        f"<p class=response><span class=senior lang=''>{_words(answer.begun)}</span>"
        f"<span class=junior lang=''>{_words(answer.ended)}</span> "
        f"<b class={verdict}>{verdict}</b></p>"
    )


def _words(text: str) -> str:
    return html.escape(text).replace("\n\n", " ")
