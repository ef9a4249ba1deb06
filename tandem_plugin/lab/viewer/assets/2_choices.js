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

const fillProblems = () => {
  find("problem").append(option("", "all " + count(problems.length)));
  problems.forEach((problem, i) => {
    find("problem").append(option(String(i), problem.name + ": " + shortened(problem.summary, 70)));
  });
};

const fillSteps = () => {
  const steps = stepsOf(responses);
  find("step").append(option("", "all " + count(steps.length)));
  for (const step of steps) find("step").append(option(String(step), String(step)));
  if (responses.some((r) => r.step === null)) find("step").append(option("none", "without step"));
  find("step").parentElement.hidden = steps.length === 0;
};

// ---- one problem over the steps ----------------------------------------------------------------
// The slider's first place stands for all steps; it and the choice of a step say the same.
let across = [];

const showAcross = () => {
  const problem = find("problem").value;
  const of = problem === "" && problems.length > 1 ? [] : responses.filter((r) => (
    problem === "" || r.problem === Number(problem)));
  const steps = stepsOf(of);
  across = steps.length > 1 ? steps : [];
  find("across").hidden = across.length === 0;
  if (!across.length) return;
  const slider = find("slider"), bars = document.createDocumentFragment();
  const chosen = across.indexOf(Number(find("step").value)) + 1;
  const top = Math.max(1, ...of.map((r) => r.reward || 0));
  let said = "all " + count(across.length) + " steps";
  slider.max = across.length;
  slider.value = find("step").value === "" ? 0 : chosen;
  across.forEach((step, i) => {
    const there = of.filter((r) => r.step === step), mean = meanReward(there);
    const bar = make("i", i + 1 === chosen ? "now" : "");
    bar.style.height = (mean === null ? 0 : Math.max(0, 100 * mean / top)) + "%";
    bars.append(bar);
    if (i + 1 === chosen) {
      said = "step " + step + ": " + count(there.length)
        + (there.length === 1 ? " response" : " responses")
        + (mean === null ? "" : ", mean reward " + rewardName(mean));
    }
  });
  find("bars").replaceChildren(bars);
  find("slid").textContent = said;
  slider.setAttribute("aria-valuetext", said);
};
