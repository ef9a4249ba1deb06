// ---- selection ---------------------------------------------------------------------------------
const SORTS = {
  line: (r) => r.position, reward: (r) => r.reward, share: (r) => r.share, tokens: (r) => r.tokens,
  spans: (r) => r.spans, surprise: (r) => r.surprise,
};
const list = find("list"), pane = find("responses");
let selected = responses, at = 0, needle = "";
let round = 0, drawing = 0; // of the last selection, and of the last drawing: older ones are dropped
let pending = 0;

const whileBusy = async (work) => {
  pending += 1;
  pane.setAttribute("aria-busy", "true");
  try {
    await work();
  } finally {
    pending -= 1;
    pane.setAttribute("aria-busy", String(pending > 0));
  }
};

// Those of some responses whose text or prompt holds the needle; null when others were asked for.
const searched = async (some, mine) => {
  const parts = new Map(), kept = [];
  for (const r of some) {
    if (!parts.has(r.part)) parts.set(r.part, []);
    parts.get(r.part).push(r);
  }
  const holds = (text) => text.toLowerCase().includes(needle);
  for (const [number, inside] of parts) {
    const part = await unpack(number);
    if (mine !== round) return null;
    const found = new Map();
    for (const r of inside) {
      if (!found.has(r.problem)) {
        found.set(r.problem, part.prompts[r.problem].some(([, text]) => holds(text)));
      }
      if (found.get(r.problem) || holds(part.responses[r.place].text)) kept.push(r);
    }
  }
  return kept;
};

// before: the response that stays open if it is selected; null for the first one.
const select = (before = selected[at]) => whileBusy(async () => {
  const mine = (round += 1);
  needle = find("text").value.toLowerCase();
  let found = passing();
  drawCurves();
  if (needle !== "") found = await searched(found, mine);
  if (found === null) return;
  const [name, order] = find("sort").value.split(" ");
  const key = SORTS[name], sign = order === "down" ? -1 : 1;
  found.sort((a, b) => {
    const x = key(a), y = key(b);
    if (x === null || y === null) return (x === null) - (y === null) || a.position - b.position;
    return sign * (x - y) || a.position - b.position;
  });
  selected = found;
  at = Math.max(0, found.indexOf(before));
  find("none").hidden = found.length > 0;
  summarise();
  await open(at);
});

const shareOf = (some) => {
  const team = some.reduce((sum, r) => sum + r.team, 0);
  return team ? some.reduce((sum, r) => sum + r.senior, 0) / team : null;
};

// (name, value, of how many) of each figure of some responses, of all those of their run.
const figuresOf = (some, whole) => {
  const n = some.length, rewarded = some.filter((r) => r.reward !== null).length;
  const reward = mean(some.map((r) => r.reward)), share = shareOf(some);
  const problemsOf = (rs) => new Set(rs.map((r) => r.problem)).size;
  const all = (part, of) => (part === of ? "" : " of " + count(of));
  const ofEach = (name) => some.reduce((sum, r) => sum + r[name], 0) / n;
  const graded = some.filter((r) => r.signal !== null);
  const groupCount = (rs) => new Set(rs.map(groupOf)).size;
  const silent = groupCount(graded.filter((r) => r.signal === SIGNALS[1]));
  const cut = some.filter((r) => r.truncated).length;
  return [
    ["responses", count(n), all(n, whole.length)],
    ["problems", count(problemsOf(some)), all(problemsOf(some), problemsOf(whole))],
    ...(whole.some((r) => r.reward !== null) ? [["reward, mean",
      reward === null ? "none" : reward.toFixed(3),
      rewarded && rewarded < n ? " of " + count(rewarded) : ""]] : []),
    ["senior share", share === null ? "none" : percent(share), ""],
    ["spans each", n ? ofEach("spans").toFixed(1) : "none", ""],
    ["tokens each", n ? count(Math.round(ofEach("tokens"))) : "none", ""],
    ...(cut ? [["truncated", count(cut), ""]] : []),
    ...(silent ? [["groups without signal", count(silent), all(silent, groupCount(graded))]] : []),
  ];
};

const summarise = () => {
  const lists = data.runs.map((name, run) => {
    const list = make("dl", "summary");
    const ofRun = (some) => some.filter((r) => r.run === run);
    if (data.runs.length > 1) list.append(runMark(run));
    for (const [what, value, rest] of figuresOf(ofRun(selected), ofRun(responses))) {
      const box = make("div"), definition = make("dd", "", value);
      definition.append(make("small", "", rest));
      box.append(make("dt", "", what), definition);
      list.append(box);
    }
    return list;
  });
  find("summary").replaceChildren(...lists);
};

// A run's name under the line that stands for it in the curves.
const runMark = (run) => make("strong", "run line-" + (run % LINES), data.runs[run]);
const LINES = 4; // kinds of lines

// ---- list: only the rows in sight are in the document ------------------------------------------
const ROW = 3.25 * parseFloat(getComputedStyle(document.documentElement).fontSize);

const rowOf = (place) => {
  const response = selected[place], row = make("div", "row"), name = make("div", "name");
  row.id = "row-" + place;
  row.dataset.place = place;
  row.style.height = ROW + "px";
  row.style.top = place * ROW + "px";
  row.setAttribute("role", "option");
  row.setAttribute("aria-selected", String(place === at));
  row.setAttribute("aria-posinset", place + 1);
  row.setAttribute("aria-setsize", selected.length);
  name.append(make("span", "", titleOf(response)), rewardOf(response, "b"));
  const share = response.share === null ? "no author" : "senior " + percent(response.share);
  const facts = [...runOf(response), counted(response.tokens, "token"), share, ...marksOf(response)];
  row.append(name, make("div", "facts", facts.join(", ")));
  return row;
};

const drawRows = () => {
  const first = Math.max(0, Math.floor(list.scrollTop / ROW) - 3);
  const last = Math.min(selected.length, first + Math.ceil(list.clientHeight / ROW) + 6);
  const rows = Array.from({ length: Math.max(0, last - first) }, (_, i) => rowOf(first + i));
  find("rows").style.height = selected.length * ROW + "px";
  find("rows").replaceChildren(...rows);
};

// ---- reading pane: one response, or the samples of its problem side by side --------------------
const SIDE = 16; // samples side by side at once
const isWide = matchMedia("(min-width: 56rem)");
let isSide = data.runs.length > 1, isFolded = true;

// Side by side, the samples of one run that are shown with a response: as many of each run.
const beside = (response, run) => {
  const most = Math.floor(SIDE / data.runs.length);
  const first = most * Math.floor(samplesOf(response, response.run).indexOf(response) / most);
  return samplesOf(response, run).slice(first, first + most);
};
const shownWith = (response) => (
  isSide ? data.runs.flatMap((_, run) => beside(response, run)) : [response]);

// The ranges of a box's text from some positions to others, in order, without touching it.
const rangesOf = function* (box, places) {
  const nodes = [...box.children].map((piece) => piece.firstChild).filter(Boolean);
  let node = 0, start = 0; // the node in which a position is, and where it begins
  const seek = (position) => {
    while (node < nodes.length - 1 && start + nodes[node].length <= position) {
      start += nodes[node].length;
      node += 1;
    }
    return nodes[node];
  };
  for (const [from, to] of places) {
    const range = new Range();
    range.setStart(seek(from), from - start);
    range.setEnd(seek(to - 1), to - start);
    yield range;
  }
};

const textOf = (box) => [...box.children].map((piece) => piece.firstChild?.data || "").join("");

function* placesOfNeedle(box) {
  const plain = textOf(box), text = plain.toLowerCase();
  if (text.length !== plain.length) return; // positions would not be the document's
  for (let i = text.indexOf(needle); i >= 0; i = text.indexOf(needle, i + needle.length)) {
    yield [i, i + needle.length];
  }
}

// Marks what was searched for, and the tokens at which the partner is surprised.
const highlight = () => {
  if (!window.CSS || !CSS.highlights) return;
  const boxes = [...pane.querySelectorAll(".text")];
  const found = new Highlight();
  for (const box of needle ? boxes : []) {
    for (const range of rangesOf(box, placesOfNeedle(box))) found.add(range);
  }
  CSS.highlights.set("found", found);
  found.priority = SURPRISES.length;
  SURPRISES.forEach((least, level) => {
    const marked = new Highlight(), most = SURPRISES[level + 1] ?? Infinity;
    for (const box of isSurprise ? boxes : []) {
      for (const range of rangesOf(box, placesOfSurprise(box, least, most))) marked.add(range);
    }
    CSS.highlights.set("surprise-" + level, marked);
  });
};

// ---- the partner's surprise --------------------------------------------------------------------
const SURPRISES = [Math.log(2), Math.log(10), Math.log(100)]; // p below 1/2, 1/10, 1/100
let isSurprise = false;

const showSurprise = () => {
  find("surprise").setAttribute("aria-pressed", String(isSurprise));
  find("scale").hidden = !isSurprise;
};

function* placesOfSurprise(box, least, most) {
  const { surprise = [] } = behind.get(box).content, end = textOf(box).length;
  let at = 0;
  for (let i = 0; i < surprise.length; i += 2) {
    const to = at + surprise[i];
    if (to > end) return;
    if (surprise[i] && surprise[i + 1] >= least && surprise[i + 1] < most) yield [at, to];
    at = to;
  }
}

const foldAll = () => {
  for (const box of pane.querySelectorAll(".text")) {
    const place = needle ? behind.get(box).content.text.toLowerCase().indexOf(needle) : -1;
    fold(box, isFolded && place < FOLDED / 4); // what was searched for is in sight
  }
  find("fold").textContent = isFolded ? "Unfold" : "Fold";
  highlight();
};

const show = () => whileBusy(async () => {
  const mine = (drawing += 1), response = selected[at];
  hideDetail();
  const some = response ? shownWith(response) : [];
  const contents = await Promise.all(some.map(contentOf));
  if (mine !== drawing) return;
  const cards = some.map((shown, i) => card(shown, contents[i]));
  const all = response ? groups.get(groupOf(response)).length : 0;
  cards[some.indexOf(response)]?.classList.add("open");
  find("prompt").replaceChildren(...(response ? [promptOf(response, contents[0])] : []));
  find("cards").replaceChildren(...(isSide && response ? columnsOf(response, some, cards) : cards));
  find("cards").classList.toggle("side", isSide);
  find("cards").classList.toggle("runs", isSide && data.runs.length > 1);
  find("place").textContent = response ? count(at + 1) + " of " + count(selected.length) : "0";
  find("side").textContent = isSide ? "One by one" : "Side by side";
  find("side").title = counted(all, "sample") + " of this problem (s)";
  find("side").disabled = !isSide && all < 2;
  for (const id of ["previous", "next", "fold"]) find(id).disabled = selected.length === 0;
  foldAll();
  if (performance.getEntriesByName("shown").length) comeTo(cards[some.indexOf(response)]);
  else performance.mark("shown");
});

// The cards as they are, or a column of them for each of several runs.
const columnsOf = (response, some, cards) => (data.runs.length === 1 ? cards
  : data.runs.map((name, run) => {
    const column = make("section", "column"), samples = samplesOf(response, run);
    const reward = mean(samples.map((r) => r.reward));
    const facts = samples.length ? counted(samples.length, "sample")
      + (reward === null ? "" : ", reward, mean " + reward.toFixed(3)) : "no response to this prompt";
    column.setAttribute("aria-label", name);
    column.append(runMark(run), make("p", "facts", facts));
    column.append(...cards.filter((_, i) => some[i].run === run));
    return column;
  }));

// Scrolls to the text that was searched for, or else to the top and to the card of the response.
const comeTo = (opened) => {
  const [match] = CSS.highlights?.get("found") || [], cards = find("cards");
  if (!opened) return;
  pane.scrollTop = 0;
  pane.scrollIntoView();
  cards.scrollLeft = opened.offsetLeft - cards.offsetLeft;
  if (match) match.startContainer.parentElement.scrollIntoView({ block: "center" });
  else if (isWide.matches && opened.offsetTop > cards.offsetTop) opened.scrollIntoView();
};

const open = (place) => {
  at = Math.min(Math.max(0, place), Math.max(0, selected.length - 1));
  const top = at * ROW, bottom = top + ROW - list.clientHeight;
  if (list.scrollTop > top) list.scrollTop = top;
  if (list.scrollTop < bottom) list.scrollTop = bottom;
  list.setAttribute("aria-activedescendant", "row-" + at);
  drawRows();
  link(selected[at]);
  return show();
};

// The next response of the list; side by side, the next one that is not shown yet.
const move = (by) => {
  const shown = new Set(shownWith(selected[at]));
  let place = at + by;
  while (isSide && shown.has(selected[place])) place += by;
  if (selected[place]) open(place);
};
