// ---- data: an index of all responses, and their texts in packed parts --------------------------
// Everything that comes from a rollout enters the page as text (textContent), never as markup.
const AUTHORS = ["junior", "senior", "neither", "unknown", "senior, not trained on"];
const CLASSES = ["junior", "senior", "other", "other", "senior untrained"];
const UNPACKED = 8; // parts that stay unpacked: those read last
const find = (id) => document.getElementById(id);
const count = (number) => number.toLocaleString("en-US");
const counted = (number, noun) => count(number) + " " + noun + (number === 1 ? "" : "s");
const percent = (share) => (share * 100).toFixed(1) + " %";

const make = (tag, className, text) => {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
};

const data = JSON.parse(find("rollouts").textContent);
const problems = Object.keys(data.problems).map(Number);
const responses = (data.responses.part || []).map((part, position) => {
  const response = { position };
  for (const name of Object.keys(data.responses)) response[name] = data.responses[name][position];
  response.share = response.team ? response.senior / response.team : null;
  response.key = (data.runs.length > 1 ? data.runs[response.run] + "/" : "")
    + data.files[response.file] + ":" + response.line;
  return response;
});
const byKey = new Map(responses.map((response) => [response.key, response]));

// The samples of each problem at each step, of all runs. Where there are no steps, files of the same
// name stand for one; runs of one file each are compared whatever these are called.
const hasFiles = data.files.length > data.runs.length && responses.some((r) => r.step === null);
const groups = new Map();
const placeIn = ({ step, file }) => step ?? (hasFiles ? data.files[file] : "");
const groupOf = (response) => response.problem + "/" + placeIn(response);
for (const response of responses) {
  if (!groups.has(groupOf(response))) groups.set(groupOf(response), []);
  groups.get(groupOf(response)).push(response);
}
const samplesOf = (response, run) => groups.get(groupOf(response)).filter((r) => r.run === run);

// A group of samples of equal reward gives GRPO no signal: all its advantages are zero.
const SIGNALS = ["with signal", "without signal"];
for (const group of groups.values()) {
  for (const run of new Set(group.map((r) => r.run))) {
    const samples = group.filter((r) => r.run === run);
    const rewards = new Set(samples.map((r) => r.reward));
    const isGraded = samples.length > 1 && !rewards.has(null);
    for (const r of samples) r.signal = isGraded ? SIGNALS[Number(rewards.size === 1)] : null;
  }
}

const inflate = (part) => {
  const packed = atob(find("part-" + part).textContent), bytes = new Uint8Array(packed.length);
  for (let i = 0; i < packed.length; i += 1) bytes[i] = packed.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).json();
};

const unpacked = new Map();
const unpack = (part) => {
  const found = unpacked.get(part) || inflate(part);
  unpacked.delete(part);
  unpacked.set(part, found);
  if (unpacked.size > UNPACKED) unpacked.delete(unpacked.keys().next().value);
  return found;
};

// The content of a response: text, spans (author, tokens, length of text: three numbers per span),
// shared characters, facts, and the turns of its prompt.
const contentOf = async (response) => {
  const part = await unpack(response.part);
  return { ...part.responses[response.place], turns: part.prompts[response.problem] };
};
