// ---- the trainer's own validations: who solves how much, and whether the senior alone fell -----
const ANSWERERS = { senior: "senior alone", team: "team", junior: "junior alone" };

const lineOf = (validations, answerer) => {
  const points = validations.filter((v) => v.answerer === answerer).sort((a, b) => a.step - b.step);
  if (answerer !== "junior" || !points.length) return points;
  const ends = validations.map((v) => v.step); // it is frozen: what it solved once, it always does
  const { accuracy } = points[0];
  return [Math.min(...ends), Math.max(...ends)].map((step) => ({ step, accuracy }));
};

const sayAccuracies = (points) => {
  const first = points[0].accuracy, last = points[points.length - 1].accuracy;
  return (first === last ? "" : percent(first) + " to ") + percent(last);
};

const figureOfValidations = (validations, run) => {
  const figure = make("figure"), caption = make("figcaption", "", "validation");
  const svg = draw("svg", { viewBox: "0 0 100 40", preserveAspectRatio: "none" });
  const places = validations.map((v) => v.step), values = validations.map((v) => v.accuracy);
  const first = Math.min(...places), last = Math.max(...places);
  const low = Math.min(...values), high = Math.max(...values);
  const x = (step) => (last > first ? (100 * (step - first)) / (last - first) : 50);
  const y = (value) => 38 - (high > low ? (36 * (value - low)) / (high - low) : 18);
  if (data.runs.length > 1) caption.append(" of " + data.runs[run]);
  for (const [answerer, name] of Object.entries(ANSWERERS)) {
    const points = lineOf(validations, answerer);
    if (!points.length) continue;
    const at = points.map((point) => x(point.step) + "," + y(point.accuracy));
    if (at.length === 1) at.push(at[0]); // a point, by the ends of its line
    svg.append(draw("polyline", { class: "of-" + answerer, points: at.join(" ") }));
    caption.append(" ", make("span", "run of-" + answerer, name + " " + sayAccuracies(points)));
  }
  caption.append(make("small", "", " steps " + first + " to " + last));
  figure.append(caption, svg);
  return figure;
};

const sayFall = (validations, run) => {
  const alone = lineOf(validations, "senior"), last = alone[alone.length - 1];
  if (!last?.warning) return;
  const name = data.runs.length > 1 ? data.runs[run] + ", step " : "Step ";
  find("fallen").hidden = false;
  find("fallen").append(make("p", "", name + last.step + ": " + last.warning));
};

const fillValidations = () => data.validations.forEach((validations, run) => {
  if (!validations.length) return;
  find("validations").hidden = false;
  find("validations").append(figureOfValidations(validations, run));
  sayFall(validations, run);
});
