// ---- what the page holds: an index of all responses, and their texts in packed parts ----------
// Everything that comes from a rollout enters the page as text (textContent), never as markup.
const AUTHORS = ["junior", "senior", "neither", "unknown"];
const CLASSES = ["junior", "senior", "other", "other"];
const CHUNK = 20;
const UNPACKED = 40;
const find = (id) => document.getElementById(id);
const count = (number) => number.toLocaleString("en-US");
const percent = (share) => (share * 100).toFixed(1) + " %";

const make = (tag, className, text) => {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
};

const data = JSON.parse(find("rollouts").textContent);
const problems = data.problems.map(([name, summary]) => ({ name, summary }));
const places = data.parts.flatMap((size, part) => (
  Array.from({ length: size }, (_, place) => ({ part, place }))));
const responses = places.map(({ part, place }, position) => {
  const of = (name) => data.responses[name][position];
  const team = of("team"), spanCount = of("spans");
  return {
    position, part, place, problem: of("problem"), step: of("step"), sample: of("sample"),
    reward: of("reward"), tokens: of("tokens"), senior: of("senior"), team, spanCount,
    shared: of("shared") === 1, scored: of("scored") === 1, share: team ? of("senior") / team : null,
    handoffs: Math.max(0, spanCount - 1),
  };
});

const inflate = (part) => {
  const packed = atob(find("part-" + part).textContent), bytes = new Uint8Array(packed.length);
  for (let i = 0; i < packed.length; i += 1) bytes[i] = packed.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).json();
};

// The parts that were read last stay unpacked; the promise of each, by its number.
const unpacked = new Map();
const unpack = (part, keep) => {
  const known = unpacked.get(part);
  if (known && !keep) return known;
  const found = known || inflate(part);
  if (keep) {
    unpacked.delete(part);
    unpacked.set(part, found);
    if (unpacked.size > UNPACKED) unpacked.delete(unpacked.keys().next().value);
  }
  return found;
};

// The content of a response: text, spans (author, tokens, length of text: three numbers a span),
// shared characters, facts, and the turns of its prompt; perhaps cuts (length of text, first and
// last token) and the tokens' scores (log p of senior and junior, overlap).
const contentOf = async (response) => {
  const part = await unpack(response.part, true);
  return { ...part.responses[response.place], turns: part.prompts[response.problem] };
};
