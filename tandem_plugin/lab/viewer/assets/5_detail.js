// ---- what a span says -------------------------------------------------------------------------
let current = null;

const positions = (spans, span) => {
  let start = 0;
  for (let i = 0; i < span; i += 1) start += spans[3 * i + 1];
  return [start, start + spans[3 * span + 1] - 1];
};

const describe = (piece) => {
  const { spans, surprise } = behind.get(piece.parentElement).content;
  const spanCount = spans.length / 3;
  const author = (n) => AUTHORS[spans[3 * n]];
  const span = Number(piece.dataset.span);
  if (piece.dataset.last !== undefined) {
    const last = Number(piece.dataset.last);
    return ["One character, written by both",
      "It begins in span " + (span + 1) + " (" + author(span) + ") and ends in span "
      + (last + 1) + " (" + author(last) + "): a handoff between its bytes."];
  }
  const [start, stop] = positions(spans, span), tokens = stop - start + 1;
  const where = tokens === 1 ? "1 token, position " + start
    : count(tokens) + " tokens, positions " + start + " to " + stop;
  const handoff = span === 0 ? "the response begins here"
    : [spans[3 * span], spans[3 * span - 3]].includes(4) ? "no handoff: the senior wrote both"
    : "handoff " + span + " of " + (spanCount - 1) + ", from the " + author(span - 1);
  const known = Array.from({ length: surprise ? tokens : 0 }, (_, i) => surprise[2 * (start + i) + 1]);
  return ["Span " + (span + 1) + " of " + spanCount + ": " + author(span),
    where + "; " + handoff.replace(/the (neither|unknown)/, "$1") + "." + surprisesOf(known, start)];
};

// Of a span: the mean of its tokens' surprises, and where the largest is.
const surprisesOf = (surprises, start) => {
  const average = mean(surprises);
  if (average === null) return "";
  const largest = Math.max(...surprises.filter((nats) => nats !== null));
  return " The " + surpriseName(average) + " per token, at most " + largest.toFixed(2)
    + " at position " + (start + surprises.indexOf(largest)) + ".";
};

const showDetail = (piece, speak) => {
  if (current) current.classList.remove("current");
  current = piece;
  piece.classList.add("current");
  const detail = find("detail"), [title, rest] = describe(piece);
  detail.replaceChildren(make("strong", "", title), make("span", "", rest));
  detail.hidden = false;
  placeDetail();
  if (speak) find("spoken").textContent = title + ". " + rest + " " + piece.textContent;
};

const placeDetail = () => {
  if (!current) return;
  const detail = find("detail"), piece = current;
  const place = piece.getClientRects()[0] || piece.getBoundingClientRect();
  const size = detail.getBoundingClientRect();
  const left = Math.min(place.left, document.documentElement.clientWidth - size.width - 8);
  const above = place.top - size.height - 8;
  const top = above > 0 ? above : piece.getBoundingClientRect().bottom + 8;
  detail.style.left = Math.max(8, left) + "px";
  detail.style.top = top + "px";
};

const hideDetail = () => {
  if (current) current.classList.remove("current");
  current = null;
  find("detail").hidden = true;
};

const pieceAt = (target) => (
  target instanceof Element ? target.closest(".text > [data-span]") : null);
pane.addEventListener("pointerover", (event) => {
  const piece = pieceAt(event.target);
  if (piece && event.pointerType === "mouse") showDetail(piece, false);
});
pane.addEventListener("pointerout", (event) => {
  if (event.pointerType === "mouse" && !pieceAt(event.relatedTarget)) hideDetail();
});
document.addEventListener("click", (event) => {
  const piece = pieceAt(event.target);
  if (piece) showDetail(piece, true);
  else hideDetail();
});
pane.addEventListener("keydown", (event) => {
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
pane.addEventListener("focusout", hideDetail);
document.addEventListener("scroll", placeDetail, true);
document.addEventListener("keydown", (event) => { if (event.key === "Escape") hideDetail(); });
