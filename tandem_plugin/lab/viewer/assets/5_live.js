// ---- links, and a page that is written while its run goes on -----------------------------------
// A response's link is the page's address with its file and line, and after a question mark what a
// reader has chosen: filters, the search, the order. How it is looked at, such as what is unfolded,
// is kept in the history's state, so it is the same after the page is loaded again.
const IDLE = 3000; // milliseconds without a key, a pointer or scrolling, before the page reloads
const LONGEST = 60000;
const CHOSEN = ["text", ...Object.keys(FILTERS), "sort"];
let isPaused = false, touched = -IDLE, linking = 0;

// What is chosen, as an address has it; nothing for what is as at the beginning.
const chosen = () => {
  const query = new URLSearchParams();
  for (const name of CHOSEN) {
    if (find(name).value !== beginning(find(name))) query.set(name, find(name).value);
  }
  return String(query) && "?" + query;
};

const link = (response) => {
  clearTimeout(linking);
  if (!performance.getEntriesByName("shown").length) return;
  const address = "#" + encodeURIComponent(response?.key ?? "") + chosen();
  linking = setTimeout(() => {
    linking = 0;
    history.replaceState(history.state, "", address);
  }, 200);
};

// The key of the address's response, and what it chooses; null if it has no question mark.
const linked = () => {
  const [place, ...query] = location.hash.slice(1).split("?");
  const choices = query.length ? new URLSearchParams(query.join("?")) : null;
  try {
    return [decodeURIComponent(place), choices];
  } catch (error) {
    return [place, choices];
  }
};

const chooseLinked = () => {
  const [, choices] = linked();
  for (const name of choices ? CHOSEN : []) choose(name, choices.get(name) ?? "");
};

// Opens the response of the address, whatever is selected; says so if the page lacks it.
const followLink = async () => {
  const [key] = linked(), response = byKey.get(key);
  find("gone").hidden = !key || response !== undefined || document.getElementById(key) !== null;
  find("gone").textContent = "This page has no response " + key + ".";
  if (!response || response === selected[at]) return;
  if (!selected.includes(response)) {
    for (const name of CHOSEN.slice(0, -1)) find(name).value = "";
  }
  await select(response);
};

const followChange = async () => {
  chooseLinked();
  await select();
  await followLink();
};

const keep = () => {
  const choices = Object.fromEntries(CHOSEN.map((name) => [name, find(name).value]));
  const unfolded = isFolded
    ? [...pane.querySelectorAll(".text:not(.folded)")].map((box) => behind.get(box).response.key)
    : [];
  const kept = {
    choices, unfolded, isSide, isFolded, isSurprise, isPaused, key: selected[at]?.key,
    filters: find("filters").open, prompt: find("prompt").firstChild?.open,
    focus: document.activeElement?.id,
    scrolled: [list.scrollTop, pane.scrollTop, find("cards").scrollLeft, window.scrollY],
    written: data.live?.written, every: looks,
    isLinking: linking !== 0, // a new address would lose the state while the page is being left
  };
  clearTimeout(linking);
  history.replaceState({ tandem: kept }, "");
};

const restore = async (kept) => {
  for (const name of CHOSEN) choose(name, kept.choices[name]);
  ({ isSide, isFolded, isSurprise, isPaused } = kept);
  find("filters").open = kept.filters;
  showSurprise();
  const [key] = linked();
  await select(byKey.get(kept.isLinking ? kept.key : key) || byKey.get(kept.key));
  if (kept.isLinking) link(selected[at]);
  for (const box of pane.querySelectorAll(".text.folded")) {
    if (kept.unfolded.includes(behind.get(box).response.key)) fold(box, false);
  }
  const prompt = find("prompt").firstChild;
  if (prompt && kept.prompt !== undefined) prompt.open = kept.prompt;
  if (kept.focus) find(kept.focus)?.focus({ preventScroll: true });
  const [rows, cards, side, top] = kept.scrolled;
  list.scrollTop = rows;
  pane.scrollTop = cards;
  find("cards").scrollLeft = side;
  window.scrollTo(0, top);
};

let looks = 0; // milliseconds between two looks at a page that is still written

const sayLive = () => {
  const at = new Date(data.live.written).toLocaleTimeString();
  const how = isPaused ? "paused." : "looks for more every " + Math.round(looks / 1000) + " s.";
  find("live").firstElementChild.textContent = "Follows the run: written at " + at + "; " + how;
  find("pause").textContent = isPaused ? "Continue" : "Pause";
};

const reloadWhenIdle = () => {
  const isReading = String(getSelection()) !== "" || performance.now() - touched < IDLE;
  if (isPaused || isReading || document.hidden || pending) setTimeout(reloadWhenIdle, 1000);
  else location.reload();
};

const goLive = async () => {
  const kept = history.state?.tandem;
  find("none").textContent = responses.length ? find("none").textContent : "No responses yet.";
  if (data.live) {
    const isSame = kept?.written === data.live.written;
    looks = isSame ? Math.min(LONGEST, 1.5 * kept.every) : data.live.every;
    isPaused = Boolean(kept?.isPaused);
    find("live").hidden = false;
    sayLive();
    for (const name of ["keydown", "pointerdown", "pointermove", "wheel", "touchmove"]) {
      window.addEventListener(name, () => { touched = performance.now(); }, { passive: true });
    }
    setTimeout(reloadWhenIdle, looks);
  }
  window.addEventListener("beforeunload", keep);
  window.addEventListener("hashchange", followChange);
  if (kept) await restore(kept);
  else {
    chooseLinked();
    await select(byKey.get(linked()[0]));
  }
  if (!kept?.isLinking) await followLink();
};
