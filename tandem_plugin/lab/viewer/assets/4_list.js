// ---- selection ---------------------------------------------------------------------------------
const SORTS = {
  line: (r) => r.position, reward: (r) => r.reward, share: (r) => r.share, tokens: (r) => r.tokens,
  spans: (r) => r.spans,
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

const select = (before = selected[at]) => whileBusy(async () => {
  const mine = (round += 1);
  needle = find("text").value.toLowerCase();
  const rewarded = rewardTests.get(find("reward").value);
  const problem = find("problem").value, step = find("step").value, file = find("file").value;
  let found = responses.filter((r) => rewarded(r)
    && (problem === "" || r.problem === Number(problem))
    && (file === "" || r.file === Number(file))
    && (step === "" || r.step === (step === "none" ? null : Number(step))));
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

const summarise = () => {
  let tokens = 0, senior = 0, team = 0, spans = 0, rewarded = 0;
  const seen = new Set();
  for (const r of selected) {
    tokens += r.tokens; senior += r.senior; team += r.team;
    spans += r.spans; seen.add(r.problem); rewarded += r.reward !== null;
  }
  const n = selected.length, mean = meanReward(selected), summary = find("summary");
  const all = (part, whole) => (part === whole ? "" : " of " + count(whole));
  summary.replaceChildren();
  const facts = [
    ["responses", count(n), all(n, responses.length)],
    ["problems", count(seen.size), all(seen.size, problems.length)],
    ["reward, mean", mean === null ? "none" : mean.toFixed(3),
      rewarded && rewarded < n ? " of " + count(rewarded) : ""],
    ["senior share", team ? percent(senior / team) : "none", ""],
    ["spans each", n ? (spans / n).toFixed(1) : "none", ""],
    ["tokens each", n ? count(Math.round(tokens / n)) : "none", ""],
  ];
  for (const [name, value, rest] of facts) {
    const box = make("div"), definition = make("dd", "", value);
    definition.append(make("small", "", rest));
    box.append(make("dt", "", name), definition);
    summary.append(box);
  }
};

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
  row.append(name, make("div", "facts", counted(response.tokens, "token") + ", " + share));
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
let isSide = false, isFolded = true;

const beside = (response) => {
  const samples = groups.get(groupOf(response));
  if (!isSide) return [response];
  const first = SIDE * Math.floor(samples.indexOf(response) / SIDE);
  return samples.slice(first, first + SIDE);
};

// Marks the search text where it stands, across spans, without touching the document.
const highlight = () => {
  if (!window.CSS || !CSS.highlights) return;
  const found = new Highlight();
  for (const box of needle ? pane.querySelectorAll(".text") : []) {
    const nodes = [...box.children].map((piece) => piece.firstChild).filter(Boolean);
    const plain = nodes.map((node) => node.data).join(""), text = plain.toLowerCase();
    if (text.length !== plain.length) continue; // positions would not be the document's
    let node = 0, start = 0; // the node in which a position is, and where it begins
    const seek = (position) => {
      while (node < nodes.length - 1 && start + nodes[node].length <= position) {
        start += nodes[node].length;
        node += 1;
      }
    };
    for (let i = text.indexOf(needle); i >= 0; i = text.indexOf(needle, i + needle.length)) {
      const range = new Range();
      seek(i);
      range.setStart(nodes[node], i - start);
      seek(i + needle.length - 1);
      range.setEnd(nodes[node], i + needle.length - start);
      found.add(range);
    }
  }
  CSS.highlights.set("found", found);
};

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
  const some = response ? beside(response) : [], contents = await Promise.all(some.map(contentOf));
  if (mine !== drawing) return;
  const cards = some.map((one, i) => card(one, contents[i]));
  const all = response ? groups.get(groupOf(response)).length : 0;
  cards[some.indexOf(response)]?.classList.add("open");
  find("prompt").replaceChildren(...(response ? [promptOf(response, contents[0])] : []));
  find("cards").replaceChildren(...cards);
  find("cards").classList.toggle("side", isSide);
  find("place").textContent = response ? count(at + 1) + " of " + count(selected.length) : "0";
  find("side").textContent = isSide ? "One by one" : "Side by side";
  find("side").title = counted(all, "sample") + " of this problem (s)";
  find("side").disabled = !isSide && all < 2;
  for (const id of ["previous", "next", "fold"]) find(id).disabled = selected.length === 0;
  foldAll();
  if (performance.getEntriesByName("shown").length) comeTo(cards[some.indexOf(response)]);
  else performance.mark("shown");
});

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
  const shown = new Set(beside(selected[at]));
  let place = at + by;
  while (isSide && shown.has(selected[place])) place += by;
  if (selected[place]) open(place);
};
