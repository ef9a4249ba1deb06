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
  if (responses.length === whole.responses) return;
  const steps = stepsOf(responses).length;
  find("chosen").hidden = false;
  find("chosen").textContent = "Shown are " + count(responses.length) + " of "
    + count(whole.responses) + " responses: "
    + (whole.steps ? count(steps) + " of " + count(whole.steps) + " steps, " : "")
    + count(problems.length) + " of " + count(whole.problems) + " problems. For more, run "
    + "tandem view with --megabytes.";
};

const choose = (id) => {
  if (id === "slider") {
    const place = Number(find("slider").value);
    find("step").value = place === 0 ? "" : String(across[place - 1]);
  }
  select();
};

const begin = () => {
  fillUnread();
  fillChosen();
  find("legend-shared").hidden = !responses.some((r) => r.shared);
  find("legend-scored").hidden = !responses.some((r) => r.scored);
  find("legend-other").hidden = !responses.some((r) => r.team < r.tokens);
  fillRewards();
  fillSteps();
  fillProblems();
  let waiting = 0;
  find("text").addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(select, 150);
  });
  for (const id of ["reward", "step", "problem", "sort", "order"]) {
    find(id).addEventListener("change", () => choose(id));
  }
  find("slider").addEventListener("input", () => choose("slider"));
  find("controls").addEventListener("submit", (event) => { event.preventDefault(); select(); });
  find("more").addEventListener("click", append);
  select();
};

if ("DecompressionStream" in window) begin();
else {
  find("none").hidden = false;
  find("none").textContent = "This browser cannot unpack the page: it takes Chrome 80, Firefox 113, "
    + "Safari 16.4, or a newer one.";
}
