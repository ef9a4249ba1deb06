// ---- what can be chosen ------------------------------------------------------------------------
// A filter is a select. The value of its option stands in the page's address: a value such as 3, a
// range such as 0.2..0.3, or "none" for the responses that have none.
const option = (value, text) => {
  const element = make("option", "", text);
  element.value = value;
  return element;
};
const shortened = (text, length) => (
  text.length > length ? text.slice(0, length - 1) + "…" : text);
const rounded = (number) => String(Math.round(number * 1e6) / 1e6);
const rewardName = rounded;
const nameOf = (problem) => "Problem " + data.problems[problem][0];
const summaryOf = (problem) => data.problems[problem][1];
const stepsOf = (some) => (
  [...new Set(some.map((r) => r.step))].filter((step) => step !== null).sort((a, b) => a - b));
const mean = (values) => {
  const known = values.filter((value) => value !== null);
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
};

const problemName = (problem) => {
  const name = nameOf(problem), summary = summaryOf(problem);
  const label = summary.startsWith(name) ? summary : summary ? name + ": " + summary : name;
  return shortened(label, 60);
};
const firsts = new Map(); // the key of each problem's first response, by which a link names it
for (const r of responses) if (!firsts.has(r.problem)) firsts.set(r.problem, r.key);

const RANGES = 10, MOST_VALUES = 20;
const ENDS = ["finished", "truncated"];
const shareName = (share) => Math.round(share * 100) + " %";

// of: the value of a response. name: the words of a value, where they are others. edges: of ranges,
// where values are numbers that are chosen by ranges. every: the words for all values, where they
// are not counted.
const FILTERS = {
  problem: {
    label: "Problem", className: "grow", of: (r) => firsts.get(r.problem),
    name: (key) => problemName(byKey.get(key).problem),
  },
  run: { label: "Run", of: (r) => (data.runs.length > 1 ? data.runs[r.run] : null) },
  file: { label: "File", of: (r) => (hasFiles ? data.files[r.file] : null) },
  step: { label: "Step", of: (r) => r.step, inOrder: (a, b) => a - b },
  outcome: { label: "Outcome", every: "any", of: (r) => r.outcome },
  end: {
    label: "End", every: "any",
    of: (r) => (r.truncated === null ? null : ENDS[Number(r.truncated)]),
  },
  reward: {
    label: "Reward", every: "any", of: (r) => r.reward, name: rewardName,
    inOrder: (a, b) => b - a,
    edges: (values) => {
      const high = values[0], low = values[values.length - 1];
      const at = (i) => Number(rounded(low + (i * (high - low)) / RANGES));
      return values.length <= MOST_VALUES ? [] : Array.from({ length: RANGES + 1 }, (_, i) => at(i));
    },
  },
  share: {
    label: "Senior share", every: "any", of: (r) => r.share, name: shareName,
    inOrder: (a, b) => b - a,
    edges: () => Array.from({ length: RANGES + 1 }, (_, i) => i / RANGES),
  },
  signal: { label: "Group", every: "any", of: (r) => r.signal },
};

const RANGE = /^(-?[\d.e+-]+)\.\.(-?[\d.e+-]+)$/;

// Whether a response's value is the chosen one; a range has its lower edge, and the last its upper.
const testOf = (filter, chosen) => {
  if (chosen === "") return () => true;
  if (chosen === "none") return (r) => filter.of(r) === null;
  const [, low, high] = (filter.edges && RANGE.exec(chosen)) || [];
  if (low === undefined) return (r) => String(filter.of(r)) === chosen;
  const above = rounded(Number(high)), last = filter.last;
  return (r) => {
    const value = filter.of(r);
    return value !== null && value >= low && (value < high || (value <= high && above === last));
  };
};

const rangeName = (filter, value) => {
  const [, low, high] = RANGE.exec(value);
  return filter.name(Number(low)) + " to " + filter.name(Number(high));
};

const optionsOf = (filter) => {
  const values = [...new Set(responses.map(filter.of))].filter((value) => value !== null);
  if (filter.inOrder) values.sort(filter.inOrder);
  const edges = (values.length && filter.edges?.(values)) || [];
  filter.last = rounded(edges[edges.length - 1]);
  const ranges = edges.slice(1).map((edge, i) => edges[i] + ".." + edge).reverse();
  const options = edges.length
    ? ranges.filter((range) => responses.some(testOf(filter, range)))
      .map((range) => option(range, rangeName(filter, range)))
    : values.map((value) => option(String(value), filter.name?.(value) ?? String(value)));
  if (options.length && responses.some((r) => filter.of(r) === null)) {
    options.push(option("none", "without"));
  }
  return options;
};

// A filter among whose options there is no choice is not shown.
const fillFilters = () => {
  const before = find("sort").parentElement;
  for (const [name, filter] of Object.entries(FILTERS)) {
    const label = make("label", filter.className, filter.label + " "), select = make("select");
    const options = optionsOf(filter);
    select.id = name;
    select.append(option("", filter.every ?? "all " + count(options.length)), ...options);
    label.append(select);
    label.hidden = options.length < 2;
    before.before(label);
  }
};

// Chooses what an address names; a range that is no option becomes one.
const choose = (name, value) => {
  const field = find(name), filter = FILTERS[name];
  if (name === "problem") value = firsts.get(byKey.get(value)?.problem);
  const has = () => !field.options || [...field.options].some((o) => o.value === value);
  if (!has() && filter?.edges && RANGE.test(value)) {
    field.append(option(value, rangeName(filter, value)));
  }
  field.value = value && has() ? value : beginning(field);
};
const beginning = (field) => (field.options ? field.options[0].value : "");

// The responses that all filters let pass, but the named ones.
const passing = (...but) => {
  const names = Object.keys(FILTERS).filter((name) => !but.includes(name));
  const tests = names.filter((name) => find(name).value !== "")
    .map((name) => testOf(FILTERS[name], find(name).value));
  return responses.filter((r) => tests.every((test) => test(r)));
};
