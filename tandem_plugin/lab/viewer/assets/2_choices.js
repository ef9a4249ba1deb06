// ---- what can be chosen ------------------------------------------------------------------------
const option = (value, text) => {
  const element = make("option", "", text);
  element.value = value;
  return element;
};
const shortened = (text, length) => (
  text.length > length ? text.slice(0, length - 1) + "…" : text);
const rewardName = (reward) => String(Math.round(reward * 1e6) / 1e6);
const rewardTests = new Map([["", () => true]]);
const stepsOf = (some) => (
  [...new Set(some.map((r) => r.step))].filter((step) => step !== null).sort((a, b) => a - b));
const meanReward = (some) => {
  const known = some.map((r) => r.reward).filter((reward) => reward !== null);
  return known.length ? known.reduce((sum, reward) => sum + reward, 0) / known.length : null;
};

const fillRewards = () => {
  const select = find("reward");
  select.append(option("", "any"));
  const add = (value, text, test) => {
    select.append(option(value, text));
    rewardTests.set(value, test);
  };
  const rewards = [...new Set(responses.map((r) => r.reward))];
  const known = rewards.filter((reward) => reward !== null).sort((a, b) => b - a);
  if (known.length <= 20) {
    for (const reward of known) {
      add("=" + reward, rewardName(reward), (r) => r.reward === reward);
    }
  } else {
    const low = known[known.length - 1], step = (known[0] - low) / 10;
    for (let i = 9; i >= 0; i -= 1) {
      const from = low + i * step, to = low + (i + 1) * step;
      add("~" + i, rewardName(from) + " to " + rewardName(to),
        (r) => r.reward !== null && r.reward >= from && (i === 9 || r.reward < to));
    }
  }
  if (rewards.includes(null)) add("none", "without reward", (r) => r.reward === null);
};

const nameOf = (problem) => "Problem " + data.problems[problem][0];
const summaryOf = (problem) => data.problems[problem][1];

const fillProblems = () => {
  const options = document.createDocumentFragment();
  options.append(option("", "all " + count(problems.length)));
  for (const problem of problems) {
    const name = nameOf(problem), summary = summaryOf(problem);
    const label = summary.startsWith(name) ? summary : summary ? name + ": " + summary : name;
    options.append(option(String(problem), shortened(label, 60)));
  }
  find("problem").append(options);
};

const hasFiles = data.files.length > 1 && responses.some((r) => r.step === null);
const fillFiles = () => {
  find("file").append(option("", "all " + count(data.files.length)));
  data.files.forEach((name, file) => find("file").append(option(String(file), name)));
  find("file").parentElement.hidden = !hasFiles;
};

const fillSteps = () => {
  const steps = stepsOf(responses);
  find("step").append(option("", "all " + count(steps.length)));
  for (const step of steps) find("step").append(option(String(step), String(step)));
  if (responses.some((r) => r.step === null)) find("step").append(option("none", "without step"));
  find("step").parentElement.hidden = steps.length === 0;
};
