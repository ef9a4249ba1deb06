// ---- reward and senior share by step, above the list -------------------------------------------
const SVG = find("drawing").namespaceURI; // spelled out, it would look like an address
const CURVES = [
  ["reward", (some) => mean(some.map((r) => r.reward)), (value) => value.toFixed(3)],
  ["senior share", shareOf, percent],
];
const steps = stepsOf(responses);
let curveOf = new Map(); // the responses of each step, by run, that the other filters let pass

const draw = (tag, attributes) => {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
};

// From 0 to 1, the place of a step on the page; a run of one step is in the middle.
const placeOf = (step) => {
  const first = steps[0], last = steps[steps.length - 1];
  return last > first ? (step - first) / (last - first) : 0.5;
};

const figureOf = ([name, valueOf, written]) => {
  const lines = data.runs.map((_, run) => steps.map((step) => (
    [step, valueOf(curveOf.get(step)?.filter((r) => r.run === run) || [])]
  )).filter(([, value]) => value !== null));
  const values = lines.flat().map(([, value]) => value);
  const low = Math.min(...values), high = Math.max(...values), figure = make("figure");
  const svg = draw("svg", { viewBox: "0 0 100 40", preserveAspectRatio: "none" });
  const y = (value) => 38 - (high > low ? (36 * (value - low)) / (high - low) : 18);
  lines.forEach((points, run) => {
    const at = points.map(([step, value]) => 100 * placeOf(step) + "," + y(value));
    if (at.length === 1) at.push(at[0]); // a point, by the ends of its line
    svg.append(draw("polyline", { class: "line-" + (run % LINES), points: at.join(" ") }));
  });
  const chosen = Number(find("step").value);
  if (steps.includes(chosen) && find("step").value !== "") {
    const x = 100 * placeOf(chosen);
    svg.append(draw("line", { class: "chosen", x1: x, x2: x, y1: 0, y2: 40 }));
  }
  const range = values.length ? written(low) + " to " + written(high) : "none";
  const caption = make("figcaption", "", name);
  caption.append(make("small", "", " " + range));
  figure.append(caption, svg);
  return figure;
};

const sayCurve = (step) => {
  const here = curveOf.get(step) || [];
  const ofRun = (run) => {
    const some = here.filter((r) => r.run === run);
    const said = CURVES.map(([name, valueOf, written]) => {
      const value = valueOf(some);
      return value === null ? null : name + " " + written(value);
    }).filter((words) => words !== null);
    return (data.runs.length > 1 ? data.runs[run] + ": " : "") + (said.join(", ") || "none");
  };
  return "Step " + step + ": " + data.runs.map((_, run) => ofRun(run)).join("; ");
};

const drawCurves = () => {
  const box = find("curves"), chosen = find("step").value;
  box.hidden = steps.length < 2;
  if (box.hidden) return;
  curveOf = new Map(steps.map((step) => [step, []]));
  for (const r of passing("step")) curveOf.get(r.step)?.push(r);
  const ends = make("div", "ends");
  const said = chosen === "" || chosen === "none"
    ? "all steps; click one, or use the arrow keys" : sayCurve(Number(chosen)) + "; again for all";
  ends.append(make("span", "", "step " + steps[0]), make("span", "said", said),
    make("span", "", String(steps[steps.length - 1])));
  box.replaceChildren(...CURVES.map(figureOf), ends);
  box.setAttribute("aria-label", "Step");
  box.setAttribute("aria-valuemin", steps[0]);
  box.setAttribute("aria-valuemax", steps[steps.length - 1]);
  box.setAttribute("aria-valuenow", chosen === "" || chosen === "none" ? steps[0] : chosen);
  box.setAttribute("aria-valuetext", said);
};

const stepAt = (event) => {
  const figure = event.target.closest("figure");
  if (!figure) return null;
  const { left, width } = figure.querySelector("svg").getBoundingClientRect();
  const place = (event.clientX - left) / width;
  const distance = (step) => Math.abs(placeOf(step) - place);
  return steps.reduce((best, step) => (distance(step) < distance(best) ? step : best));
};

const chooseStep = (step) => {
  find("step").value = find("step").value === String(step) ? "" : String(step);
  return select();
};

const listenToCurves = () => {
  const box = find("curves");
  box.addEventListener("click", (event) => {
    const step = stepAt(event);
    if (step !== null) chooseStep(step);
  });
  box.addEventListener("pointermove", (event) => {
    const step = stepAt(event);
    if (step !== null) box.querySelector(".said").textContent = sayCurve(step);
  });
  box.addEventListener("pointerleave", drawCurves);
  box.addEventListener("keydown", (event) => {
    const value = find("step").value, at = value === "" ? -1 : steps.indexOf(Number(value));
    const places = {
      ArrowRight: at + 1, ArrowUp: at + 1, ArrowLeft: at - 1, ArrowDown: at - 1, Home: 0,
      End: steps.length - 1, Escape: at,
    };
    const step = steps[places[event.key]];
    if (step === undefined) return;
    event.preventDefault();
    if (event.key === "Escape" || String(step) !== value) chooseStep(step);
  });
};
