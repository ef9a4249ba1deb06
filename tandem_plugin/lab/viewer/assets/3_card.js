// ---- one response ------------------------------------------------------------------------------
const fact = (text, className) => make("li", className, text);

const head = (response, content, title) => {
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
  for (const text of content.facts) facts.append(fact(text));
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

const promptOf = (response, content) => {
  const details = make("details", "prompt");
  details.append(make("summary", "", "Prompt: " + problems[response.problem].summary));
  for (const [role, text] of content.turns) {
    const turn = make("div", "turn");
    if (role) turn.append(make("strong", "role", role));
    turn.append(make("pre", "", text));
    details.append(turn);
  }
  return details;
};

const MOST_NATS = 5; // of surprise, behind which all shades are the same

// Cuts the text at every token, shaded by how little the other model would have expected it.
const addTokens = (add, { cuts, scores, spans }) => {
  let span = 0, stop = spans[1];
  const spanAt = (token) => {
    while (token >= stop) { span += 1; stop += spans[3 * span + 1]; }
    return span;
  };
  for (let i = 0; i < cuts.length; i += 3) {
    const [length, first, last] = cuts.slice(i, i + 3);
    const begins = spanAt(first), ends = spanAt(last), author = spans[3 * begins];
    const piece = add(length, begins === ends ? CLASSES[author] : "shared", begins, ends);
    if (!piece) continue;
    piece.dataset.first = first;
    piece.dataset.final = last;
    if (author > 1) continue;
    const surprise = -scores[3 * last + author]; // of the other one: senior first, and author 1
    piece.style.setProperty("--surprise", Math.min(1, Math.max(0, surprise / MOST_NATS)).toFixed(2));
    piece.classList.add("scored");
  }
};

// Cuts the text at the handoffs. A character that two spans share stands between them.
const fillText = (box, response, content) => {
  if (!content.text) {
    box.append(make("span", "empty", response.tokens ? "(no text)" : "(empty response)"));
    return;
  }
  const shared = new Map();
  for (let i = 0; i < content.shared.length; i += 3) {
    shared.set(content.shared[i], [content.shared[i + 1], content.shared[i + 2]]);
  }
  const pieces = document.createDocumentFragment();
  let at = 0;
  const add = (length, className, span, last) => {
    if (!length) return null;
    const piece = make("span", className, content.text.slice(at, at + length));
    piece.dataset.span = span;
    if (last !== span) piece.dataset.last = last;
    pieces.append(piece);
    at += length;
    return piece;
  };
  if (content.cuts) {
    addTokens(add, content);
    box.append(pieces);
    return;
  }
  for (let span = 0; span < response.spanCount; span += 1) {
    add(content.spans[3 * span + 2], CLASSES[content.spans[3 * span]], span, span);
    const both = shared.get(span);
    if (both) add(both[1], "shared", span, both[0]);
  }
  box.append(pieces);
};

const titleOf = (response) => (
  problems[response.problem].name + (response.step === null ? "" : ", step " + response.step)
  + ", sample " + response.sample);

// What is said of a span is read from the content of its card.
const spansOf = new WeakMap();

const card = (response, content) => {
  const article = make("article", "response"), title = titleOf(response);
  const box = make("div", "text");
  article.setAttribute("aria-labelledby", "response-" + response.position);
  box.tabIndex = 0;
  box.setAttribute("role", "group");
  box.setAttribute("aria-label", "Response to " + title + "; arrow keys move through its spans");
  spansOf.set(box, { response, spans: content.spans, scores: content.scores });
  fillText(box, response, content);
  article.append(head(response, content, title), bar(response), promptOf(response, content), box);
  return article;
};
