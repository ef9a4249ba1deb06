"use strict";
// Everything that comes from a rollout enters the page as text (textContent), never as markup.
(() => {
  const AUTHORS = ["junior", "senior", "neither"];
  const CLASSES = ["junior", "senior", "other"];
  const CHUNK = 20;
  const find = (id) => document.getElementById(id);
  const data = JSON.parse(find("rollouts").textContent);
  const responses = data.responses;
  const count = (number) => number.toLocaleString("en-US");
  const percent = (share) => (share * 100).toFixed(1) + " %";

  const make = (tag, className, text) => {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  };

  // A response's spans come flat: author, tokens, length of text, three numbers a span.
  for (const response of responses) {
    let tokens = 0, senior = 0, team = 0;
    for (let i = 0; i < response.spans.length; i += 3) {
      tokens += response.spans[i + 1];
      if (response.spans[i] === 1) senior += response.spans[i + 1];
      if (response.spans[i] !== 2) team += response.spans[i + 1];
    }
    response.tokens = tokens;
    response.senior = senior;
    response.team = team;
    response.share = team ? senior / team : null;
    response.spanCount = response.spans.length / 3;
    response.handoffs = Math.max(0, response.spanCount - 1);
    response.searched = null;
  }

  // ---- theme -------------------------------------------------------------------------------
  const themes = ["system", "light", "dark"];
  const setTheme = (theme) => {
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    find("theme").textContent = "Theme: " + theme;
    try { localStorage.setItem("tandem-theme", theme); } catch { /* storage may be forbidden */ }
  };
  let stored = null;
  try { stored = localStorage.getItem("tandem-theme"); } catch { /* as above */ }
  let theme = themes.includes(stored) ? stored : "system";
  setTheme(theme);
  find("theme").addEventListener("click", () => {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    setTheme(theme);
  });

  // ---- choices -----------------------------------------------------------------------------
  const option = (value, text) => {
    const element = make("option", "", text);
    element.value = value;
    return element;
  };
  const shortened = (text, length) => {
    const line = text.replace(/\s+/g, " ").trim();
    return line.length > length ? line.slice(0, length - 1) + "…" : line;
  };
  const rewardName = (reward) => String(Math.round(reward * 1e6) / 1e6);
  const rewardTests = new Map([["", () => true]]);

  const fillRewards = () => {
    const select = find("reward");
    select.append(option("", "any"));
    const add = (value, text, test) => {
      select.append(option(value, text));
      rewardTests.set(value, test);
    };
    const rewards = [...new Set(responses.map((r) => r.reward))];
    const known = rewards.filter((reward) => reward !== null).sort((a, b) => b - a);
    if (known.length <= 20) {
      for (const reward of known) {
        add("=" + reward, rewardName(reward), (r) => r.reward === reward);
      }
    } else {
      const low = known[known.length - 1], step = (known[0] - low) / 10;
      for (let i = 9; i >= 0; i -= 1) {
        const from = low + i * step, to = low + (i + 1) * step;
        add("~" + i, rewardName(from) + " to " + rewardName(to),
          (r) => r.reward !== null && r.reward >= from && (i === 9 || r.reward < to));
      }
    }
    if (rewards.includes(null)) add("none", "without reward", (r) => r.reward === null);
  };

  const fillProblems = () => {
    const select = find("problem");
    select.append(option("", "all " + count(data.problems.length)));
    data.problems.forEach((problem, i) => {
      select.append(option(String(i), problem.name + ": " + shortened(problem.prompt, 70)));
    });
  };

  // ---- selection ---------------------------------------------------------------------------
  const SORTS = {
    line: (r) => r.position, reward: (r) => r.reward, share: (r) => r.share,
    spans: (r) => r.spanCount, tokens: (r) => r.tokens,
  };
  responses.forEach((response, i) => { response.position = i; });
  let selected = responses, shown = 0, needle = "";

  const matches = (response) => {
    if (response.searched === null) {
      response.searched = (response.text + "\n" + data.problems[response.problem].prompt)
        .toLowerCase();
    }
    return response.searched.includes(needle);
  };

  const select = () => {
    needle = find("text").value.toLowerCase();
    const rewarded = rewardTests.get(find("reward").value);
    const problem = find("problem").value;
    selected = responses.filter((r) => rewarded(r)
      && (problem === "" || r.problem === Number(problem)) && (needle === "" || matches(r)));
    const key = SORTS[find("sort").value], sign = find("order").value === "up" ? 1 : -1;
    selected.sort((a, b) => {
      const x = key(a), y = key(b);
      if (x === null || y === null) return (x === null) - (y === null) || a.position - b.position;
      return sign * (x - y) || a.position - b.position;
    });
    show();
  };

  // ---- summary -----------------------------------------------------------------------------
  const summarise = () => {
    let tokens = 0, senior = 0, team = 0, spans = 0, rewards = 0, rewarded = 0;
    const problems = new Set();
    for (const r of selected) {
      tokens += r.tokens; senior += r.senior; team += r.team;
      spans += r.spanCount; problems.add(r.problem);
      if (r.reward !== null) { rewards += r.reward; rewarded += 1; }
    }
    const n = selected.length, list = find("summary");
    const all = (part, whole) => (part === whole ? "" : " of " + count(whole));
    list.replaceChildren();
    const facts = [
      ["responses", count(n), all(n, responses.length)],
      ["problems", count(problems.size), all(problems.size, data.problems.length)],
      ["reward, mean", rewarded ? (rewards / rewarded).toFixed(3) : "none",
        rewarded && rewarded < n ? " of " + count(rewarded) : ""],
      ["senior share", team ? percent(senior / team) : "none", ""],
      ["spans each", n ? (spans / n).toFixed(1) : "none", ""],
      ["tokens each", n ? count(Math.round(tokens / n)) : "none", ""],
    ];
    for (const [name, value, rest] of facts) {
      const box = make("div");
      const definition = make("dd", "", value);
      definition.append(make("small", "", rest));
      box.append(make("dt", "", name), definition);
      list.append(box);
    }
  };

  // ---- one response ------------------------------------------------------------------------
  const fact = (text, className) => make("li", className, text);

  const head = (response, title) => {
    const header = make("header"), facts = make("ul", "facts");
    const heading = make("h2", "", title);
    heading.id = "response-" + response.position;
    if (response.reward !== null) {
      const kind = response.reward >= 1 ? " right" : response.reward <= 0 ? " wrong" : "";
      facts.append(fact("reward " + rewardName(response.reward), "reward" + kind));
    }
    facts.append(
      fact(count(response.tokens) + (response.tokens === 1 ? " token" : " tokens")),
      fact(response.share === null ? "no author" : "senior " + percent(response.share)),
      fact(count(response.spanCount) + (response.spanCount === 1 ? " span" : " spans")),
      fact(count(response.handoffs) + (response.handoffs === 1 ? " handoff" : " handoffs")),
    );
    for (const text of response.facts) facts.append(fact(text));
    header.append(heading, facts);
    return header;
  };

  const bar = (response) => {
    const element = make("div", "bar");
    element.setAttribute("aria-hidden", "true");
    const senior = make("i"), junior = make("b");
    senior.style.width = (100 * response.senior) / (response.tokens || 1) + "%";
    junior.style.width = (100 * (response.team - response.senior)) / (response.tokens || 1) + "%";
    element.append(senior, junior);
    return element;
  };

  const promptOf = (response) => {
    const details = make("details", "prompt"), prompt = data.problems[response.problem].prompt;
    details.append(make("summary", "", "Prompt: " + shortened(prompt, 160)));
    details.append(make("pre", "", prompt));
    return details;
  };

  // Cuts the text at the handoffs. A character that two spans share stands between them.
  const fillText = (box, response) => {
    if (!response.text) {
      box.append(make("span", "empty", response.tokens ? "(no text)" : "(empty response)"));
      return;
    }
    const shared = new Map();
    for (let i = 0; i < response.shared.length; i += 3) {
      shared.set(response.shared[i], [response.shared[i + 1], response.shared[i + 2]]);
    }
    const pieces = document.createDocumentFragment();
    let at = 0;
    const add = (length, className, span, last) => {
      if (!length) return;
      const piece = make("span", className, response.text.slice(at, at + length));
      piece.dataset.span = span;
      if (last !== span) piece.dataset.last = last;
      pieces.append(piece);
      at += length;
    };
    for (let span = 0; span < response.spanCount; span += 1) {
      add(response.spans[3 * span + 2], CLASSES[response.spans[3 * span]], span, span);
      const both = shared.get(span);
      if (both) add(both[1], "shared", span, both[0]);
    }
    box.append(pieces);
  };

  const card = (response) => {
    const article = make("article", "response");
    const name = data.problems[response.problem].name;
    const title = response.sample === null ? name : name + ", sample " + response.sample;
    const box = make("div", "text");
    article.setAttribute("aria-labelledby", "response-" + response.position);
    box.tabIndex = 0;
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", "Response to " + title + "; arrow keys move through its spans");
    box.dataset.response = response.position;
    fillText(box, response);
    article.append(head(response, title), bar(response), promptOf(response), box);
    return article;
  };

  // ---- list, built as it is scrolled to ----------------------------------------------------
  const nearEnd = "IntersectionObserver" in window
    ? new IntersectionObserver((entries) => {
      if (entries.some((entry) => entry.isIntersecting) && shown < selected.length) append();
    }, { rootMargin: "600px" })
    : null;

  const append = () => {
    const list = find("responses"), part = document.createDocumentFragment();
    const end = Math.min(shown + CHUNK, selected.length);
    for (; shown < end; shown += 1) part.append(card(selected[shown]));
    const first = list.children.length;
    list.append(part);
    highlight(list, first);
    const left = selected.length - shown;
    find("more").parentElement.hidden = left === 0;
    find("more").textContent = "Show more (" + count(left) + " left)";
    if (nearEnd) { // asked anew, because it reports only changes
      nearEnd.unobserve(find("more").parentElement);
      nearEnd.observe(find("more").parentElement);
    }
  };

  const show = () => {
    hideDetail();
    if (window.CSS && CSS.highlights) CSS.highlights.delete("found");
    find("responses").replaceChildren();
    shown = 0;
    find("none").hidden = selected.length > 0;
    summarise();
    append();
  };

  // Marks the search text where it stands, across spans, without touching the document.
  const highlight = (list, first) => {
    if (!needle || !window.CSS || !CSS.highlights || !window.Highlight) return;
    const found = CSS.highlights.get("found") || new Highlight();
    for (let i = first; i < list.children.length; i += 1) {
      const box = list.children[i].querySelector(".text");
      const nodes = [...box.children].map((piece) => piece.firstChild).filter(Boolean);
      const plain = nodes.map((node) => node.data).join(""), text = plain.toLowerCase();
      if (text.length !== plain.length) continue; // positions would not be the document's
      let node = 0, start = 0;
      for (let at = text.indexOf(needle); at >= 0; at = text.indexOf(needle, at + needle.length)) {
        const range = new Range(), end = at + needle.length;
        while (node < nodes.length && start + nodes[node].length <= at) {
          start += nodes[node].length;
          node += 1;
        }
        if (node === nodes.length) break;
        range.setStart(nodes[node], at - start);
        let last = node, lastStart = start;
        while (last < nodes.length - 1 && lastStart + nodes[last].length < end) {
          lastStart += nodes[last].length;
          last += 1;
        }
        range.setEnd(nodes[last], Math.min(end - lastStart, nodes[last].length));
        found.add(range);
      }
    }
    CSS.highlights.set("found", found);
  };

  // ---- what a span says --------------------------------------------------------------------
  let current = null;

  const positions = (response, span) => {
    let start = 0;
    for (let i = 0; i < span; i += 1) start += response.spans[3 * i + 1];
    return [start, start + response.spans[3 * span + 1] - 1];
  };

  const describe = (piece) => {
    const response = responses[Number(piece.parentElement.dataset.response)];
    const author = (n) => AUTHORS[response.spans[3 * n]];
    const span = Number(piece.dataset.span);
    if (piece.dataset.last !== undefined) {
      const last = Number(piece.dataset.last);
      return ["One character, written by both",
        "It begins in span " + (span + 1) + " (" + author(span) + ") and ends in span "
        + (last + 1) + " (" + author(last) + "): a handoff between its bytes."];
    }
    const [start, stop] = positions(response, span), tokens = stop - start + 1;
    const where = tokens === 1 ? "1 token, position " + start
      : count(tokens) + " tokens, positions " + start + " to " + stop;
    const handoff = span === 0 ? "the response begins here"
      : "handoff " + span + " of " + response.handoffs + ", from the " + author(span - 1);
    return ["Span " + (span + 1) + " of " + response.spanCount + ": " + author(span),
      where + "; " + handoff.replace("the neither", "neither") + "."];
  };

  const showDetail = (piece, speak) => {
    if (current) current.classList.remove("current");
    current = piece;
    piece.classList.add("current");
    const detail = find("detail"), [title, rest] = describe(piece);
    detail.replaceChildren(make("strong", "", title), make("span", "", rest));
    detail.hidden = false;
    const place = piece.getClientRects()[0] || piece.getBoundingClientRect();
    const size = detail.getBoundingClientRect();
    const left = Math.min(place.left, document.documentElement.clientWidth - size.width - 8);
    const above = place.top - size.height - 8;
    const top = above > 0 ? above : piece.getBoundingClientRect().bottom + 8;
    detail.style.left = Math.max(8, left) + window.scrollX + "px";
    detail.style.top = top + window.scrollY + "px";
    if (speak) find("spoken").textContent = title + ". " + rest + " " + piece.textContent;
  };

  const hideDetail = () => {
    if (current) current.classList.remove("current");
    current = null;
    find("detail").hidden = true;
  };

  const pieceAt = (target) => (
    target instanceof Element ? target.closest(".text > [data-span]") : null);
  const list = find("responses");
  list.addEventListener("pointerover", (event) => {
    const piece = pieceAt(event.target);
    if (piece && event.pointerType === "mouse") showDetail(piece, false);
  });
  list.addEventListener("pointerout", (event) => {
    if (event.pointerType === "mouse" && !pieceAt(event.relatedTarget)) hideDetail();
  });
  document.addEventListener("click", (event) => {
    const piece = pieceAt(event.target);
    if (piece) showDetail(piece, true);
    else hideDetail();
  });
  list.addEventListener("keydown", (event) => {
    const box = event.target.closest(".text");
    if (!box || event.ctrlKey || event.metaKey || event.altKey) return;
    const inside = current && current.parentElement === box ? current : null;
    const ends = { Home: box.querySelector("[data-span]"), End: box.lastElementChild };
    const steps = {
      ArrowRight: inside ? inside.nextElementSibling : ends.Home,
      ArrowLeft: inside ? inside.previousElementSibling : ends.End,
      ...ends,
    };
    if (!(event.key in steps)) return;
    event.preventDefault();
    const piece = steps[event.key];
    if (!piece || piece.dataset.span === undefined) return;
    piece.scrollIntoView({ block: "nearest" });
    showDetail(piece, true);
  });
  list.addEventListener("focusout", hideDetail);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hideDetail(); });

  // ---- begin -------------------------------------------------------------------------------
  if (data.unread.length || data.unreadMore) {
    const box = find("unread");
    box.hidden = false;
    box.querySelector("summary").textContent =
      "Lines that could not be read: " + count(data.unread.length + data.unreadMore);
    for (const line of data.unread) {
      box.querySelector("ul").append(make("li", "", "line " + line[0] + ": " + line[1]));
    }
  }
  find("legend-shared").hidden = !responses.some((r) => r.shared.length);
  find("legend-other").hidden = !responses.some((r) => r.team < r.tokens);
  fillRewards();
  fillProblems();
  let waiting = 0;
  find("text").addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(select, 150);
  });
  for (const id of ["reward", "problem", "sort", "order"]) {
    find(id).addEventListener("change", select);
  }
  find("controls").addEventListener("submit", (event) => { event.preventDefault(); select(); });
  find("more").addEventListener("click", append);
  select();
})();
