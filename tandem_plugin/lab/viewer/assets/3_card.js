// ---- one response ------------------------------------------------------------------------------
// Only what is visible is in the document: a folded text ends soon after the lines that it shows,
// and an unfolded one grows by a bounded length.
const FOLDED = 2500; // characters: more than the lines of a folded text hold
const GROWTH = 100000;

const titleOf = (response) => (
  nameOf(response.problem) + (response.step === null ? "" : ", step " + response.step)
  + ", sample " + response.sample
  + (hasFiles && response.step === null ? ", " + data.files[response.file] : ""));

const runOf = (response) => (data.runs.length > 1 ? [data.runs[response.run]] : []);

// What is marked in the list and on a card: a response that was cut off, a group without signal.
const marksOf = (response) => [
  ...(response.truncated ? ["truncated"] : []),
  ...(response.signal === SIGNALS[1] ? ["no signal"] : []),
];

const rewardOf = (response, tag) => {
  if (response.reward === null) return make(tag);
  const kind = response.reward >= 1 ? " right" : response.reward <= 0 ? " wrong" : "";
  return make(tag, "reward" + kind, "reward " + rewardName(response.reward));
};

const surpriseName = (nats) => "partner's surprise " + nats.toFixed(2) + " nats";

const head = (response, content) => {
  const header = make("header"), facts = make("ul", "facts");
  const heading = make("h2", "", titleOf(response));
  heading.id = "response-" + response.position;
  const { tokens, share, spans } = response;
  const texts = [
    ...runOf(response), counted(tokens, "token"), share === null ? "no author" : "senior " + percent(share),
    counted(spans, "span"), ...marksOf(response),
    ...(response.surprise === null ? [] : [surpriseName(response.surprise) + " per token"]),
    ...content.facts,
  ];
  if (response.reward !== null) facts.append(rewardOf(response, "li"));
  facts.append(...texts.map((text) => make("li", "", text)));
  header.append(heading, facts);
  return header;
};

const shareBar = (response) => {
  const element = make("div", "bar"), senior = make("i"), junior = make("b");
  element.setAttribute("aria-hidden", "true");
  senior.style.width = (100 * response.senior) / (response.tokens || 1) + "%";
  junior.style.width = (100 * (response.team - response.senior)) / (response.tokens || 1) + "%";
  element.append(senior, junior);
  return element;
};

// An image of a prompt, or what stands in its place.
const pictureOf = ([source, text]) => {
  if (!source) return make("p", "empty", text);
  const image = make("img", "picture");
  image.src = source;
  image.alt = text;
  return image;
};

const promptOf = (response, content) => {
  const details = make("details", "prompt");
  details.open = content.turns.some(([, , pictures = []]) => pictures.length);
  details.append(make("summary", "", "Prompt: " + summaryOf(response.problem)));
  for (const [role, text, pictures = []] of content.turns) {
    const turn = make("div", "turn");
    if (role) turn.append(make("strong", "role", role));
    if (text) turn.append(make("pre", "", text));
    turn.append(...pictures.map(pictureOf));
    details.append(turn);
  }
  return details;
};

// The text in pieces cut at the handoffs. A character that two spans share stands between them.
function* spanPieces({ spans, shared }) {
  const both = new Map();
  for (let i = 0; i < shared.length; i += 3) both.set(shared[i], shared.slice(i + 1, i + 3));
  for (let span = 0; 3 * span < spans.length; span += 1) {
    yield { length: spans[3 * span + 2], name: CLASSES[spans[3 * span]], span, last: span };
    if (!both.has(span)) continue;
    const [last, length] = both.get(span);
    yield { length, name: "shared", span, last };
  }
}

// What is behind each box of text: its response, its content, and the pieces not yet in it.
const behind = new WeakMap();

const grow = (box, most) => {
  const state = behind.get(box), grown = document.createDocumentFragment(), stop = state.at + most;
  while (state.at < stop && !state.done) {
    const { value: piece, done } = state.pieces.next();
    state.done = done;
    if (done || !piece.length) continue;
    const text = state.content.text.slice(state.at, state.at + piece.length);
    const element = make("span", piece.name, text);
    element.dataset.span = piece.span;
    if (piece.last !== piece.span) element.dataset.last = piece.last;
    grown.append(element);
    state.at += piece.length;
  }
  state.done = state.done || state.at >= state.content.text.length;
  box.append(grown);
};

const fold = (box, is) => {
  const state = behind.get(box), button = box.nextElementSibling;
  box.classList.add("folded");
  const isLong = !state.done || box.scrollHeight > box.clientHeight + 2;
  if (!is) grow(box, GROWTH);
  box.classList.toggle("folded", is && isLong);
  button.hidden = !isLong;
  const all = "Show all " + counted(state.response.tokens, "token");
  button.textContent = is ? all : state.done ? "Fold" : "Show more";
};

const card = (response, content) => {
  const article = make("article", "response"), box = make("div", "text");
  const button = make("button", "unfold");
  article.setAttribute("aria-labelledby", "response-" + response.position);
  box.tabIndex = 0;
  box.setAttribute("role", "group");
  box.setAttribute("aria-label", titleOf(response) + "; arrow keys move through its spans");
  behind.set(box, { response, content, pieces: spanPieces(content), at: 0, done: false });
  if (!content.text) {
    box.append(make("span", "empty", response.tokens ? "(no text)" : "(empty response)"));
  }
  grow(box, FOLDED);
  button.type = "button";
  button.addEventListener("click", () => {
    fold(box, !box.classList.contains("folded") && behind.get(box).done);
    highlight();
  });
  article.append(head(response, content), shareBar(response), box, button);
  return article;
};
