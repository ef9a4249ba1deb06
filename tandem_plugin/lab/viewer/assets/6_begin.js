// ---- begin -------------------------------------------------------------------------------------
const fillUnread = () => {
  if (!data.unread.length && !data.unreadMore) return;
  const box = find("unread");
  box.hidden = false;
  box.querySelector("summary").textContent =
    "Lines that could not be read: " + count(data.unread.length + data.unreadMore);
  for (const [file, line, why] of data.unread) {
    box.querySelector("ul").append(
      make("li", "", (file ? file + ", " : "") + "line " + line + ": " + why));
  }
};

const fillChosen = () => {
  const whole = data.whole;
  if (!data.withoutRoom) return;
  find("chosen").hidden = false;
  find("chosen").textContent = "This page has " + count(responses.length) + " of "
    + count(whole.responses) + " responses, to " + count(problems.length) + " of "
    + count(whole.problems) + " problems. For more, run tandem view with --megabytes.";
};

const ACTIONS = {
  next: () => move(1),
  previous: () => move(-1),
  side: () => { isSide = !isSide; return show(); },
  fold: () => { isFolded = !isFolded; foldAll(); },
  surprise: () => { isSurprise = !isSurprise; showSurprise(); highlight(); },
  pause: () => { isPaused = !isPaused; sayLive(); },
};
const KEYS = {
  n: "next", j: "next", p: "previous", k: "previous", s: "side", f: "fold", u: "surprise",
};

const onKey = (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, select")) return;
  const button = find(KEYS[event.key] || "none");
  if (button.tagName === "BUTTON") button.click();
};

const onListKey = (event) => {
  const page = Math.max(1, Math.floor(list.clientHeight / ROW) - 1);
  const places = {
    ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + page, PageUp: at - page, Home: 0,
    End: selected.length - 1,
  };
  if (!(event.key in places)) return;
  event.preventDefault();
  open(places[event.key]);
};

const listen = () => {
  let waiting = 0, drawn = 0;
  find("text").addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => select(), 150);
  });
  for (const id of Object.keys(FILTERS)) find(id).addEventListener("change", () => select());
  find("sort").addEventListener("change", () => select(null));
  find("controls").addEventListener("submit", (event) => { event.preventDefault(); select(); });
  for (const id of Object.keys(ACTIONS)) find(id).addEventListener("click", ACTIONS[id]);
  document.addEventListener("keydown", onKey);
  list.addEventListener("keydown", onListKey);
  list.addEventListener("click", (event) => {
    const row = event.target.closest(".row");
    if (row) open(Number(row.dataset.place));
  });
  const redraw = () => {
    cancelAnimationFrame(drawn);
    drawn = requestAnimationFrame(drawRows);
  };
  list.addEventListener("scroll", redraw);
  window.addEventListener("resize", redraw);
  listenToCurves();
};

const begin = () => {
  fillUnread();
  fillChosen();
  fillValidations();
  for (const name of data.legend) find("legend-" + name).hidden = false;
  fillFilters();
  find("by-surprise").hidden = !data.legend.includes("surprise");
  find("filters").open = isWide.matches;
  listen();
  goLive();
};

if ("DecompressionStream" in window) begin();
else {
  find("none").hidden = false;
  find("none").textContent = "This browser cannot unpack the page: it takes Chrome 80, Firefox 113, "
    + "Safari 16.4, or a newer one.";
}
