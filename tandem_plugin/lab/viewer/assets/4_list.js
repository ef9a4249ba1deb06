// ---- selection ---------------------------------------------------------------------------------
const SORTS = {
  line: (r) => r.position, step: (r) => r.step, reward: (r) => r.reward, share: (r) => r.share,
  spans: (r) => r.spanCount, tokens: (r) => r.tokens,
};
let selected = responses, shown = 0, needle = "";
let round = 0; // of what was asked for last: what an earlier round brings is dropped
let appending = -1; // the round for which cards are being made

const busy = (is) => find("responses").setAttribute("aria-busy", String(is));

// Those of some responses whose text or prompt holds the needle; null when others were asked for.
const searched = async (some, mine) => {
  const parts = new Map(), kept = [];
  for (const r of some) {
    if (!parts.has(r.part)) parts.set(r.part, []);
    parts.get(r.part).push(r);
  }
  for (const [number, inside] of parts) {
    const part = await unpack(number, false);
    if (mine !== round) return null;
    const holds = (text) => text.toLowerCase().includes(needle);
    const asked = new Map(inside.map((r) => [r.problem, false]));
    for (const problem of asked.keys()) {
      asked.set(problem, part.prompts[problem].some(([, text]) => holds(text)));
    }
    kept.push(...inside.filter((r) => asked.get(r.problem) || holds(part.responses[r.place].text)));
  }
  return kept;
};

const select = async () => {
  const mine = (round += 1);
  busy(true);
  needle = find("text").value.toLowerCase();
  const rewarded = rewardTests.get(find("reward").value);
  const problem = find("problem").value, step = find("step").value;
  showAcross();
  let found = responses.filter((r) => rewarded(r)
    && (problem === "" || r.problem === Number(problem))
    && (step === "" || r.step === (step === "none" ? null : Number(step))));
  if (needle !== "") found = await searched(found, mine);
  if (found === null) return;
  const key = SORTS[find("sort").value], sign = find("order").value === "up" ? 1 : -1;
  found.sort((a, b) => {
    const x = key(a), y = key(b);
    if (x === null || y === null) return (x === null) - (y === null) || a.position - b.position;
    return sign * (x - y) || a.position - b.position;
  });
  selected = found;
  await show();
};

// ---- summary -----------------------------------------------------------------------------------
const summarise = () => {
  let tokens = 0, senior = 0, team = 0, spans = 0, rewarded = 0;
  const seen = new Set();
  for (const r of selected) {
    tokens += r.tokens; senior += r.senior; team += r.team;
    spans += r.spanCount; seen.add(r.problem); rewarded += r.reward !== null;
  }
  const n = selected.length, mean = meanReward(selected), list = find("summary");
  const all = (part, whole) => (part === whole ? "" : " of " + count(whole));
  list.replaceChildren();
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
    const box = make("div");
    const definition = make("dd", "", value);
    definition.append(make("small", "", rest));
    box.append(make("dt", "", name), definition);
    list.append(box);
  }
};

// ---- list, built as it is scrolled to ----------------------------------------------------------
const nearEnd = "IntersectionObserver" in window
  ? new IntersectionObserver((entries) => {
    if (entries.some((entry) => entry.isIntersecting) && shown < selected.length) append();
  }, { rootMargin: "600px" })
  : null;

const append = async () => {
  if (appending === round) return;
  const mine = appending = round;
  busy(true);
  const next = selected.slice(shown, shown + CHUNK);
  const contents = await Promise.all(next.map(contentOf));
  if (mine !== round) return;
  appending = -1;
  const list = find("responses"), first = list.children.length;
  list.append(...next.map((response, i) => card(response, contents[i])));
  shown += next.length;
  highlight(list, first);
  const left = selected.length - shown;
  find("more").parentElement.hidden = left === 0;
  find("more").textContent = "Show more (" + count(left) + " left)";
  busy(false);
  if (!performance.getEntriesByName("shown").length) performance.mark("shown");
  if (nearEnd) { // asked anew, because it reports only changes
    nearEnd.unobserve(find("more").parentElement);
    nearEnd.observe(find("more").parentElement);
  }
};

const show = async () => {
  hideDetail();
  if (window.CSS && CSS.highlights) CSS.highlights.delete("found");
  find("responses").replaceChildren();
  shown = 0;
  find("none").hidden = selected.length > 0;
  summarise();
  await append();
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
