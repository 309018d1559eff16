// The moments of one failure, from the last sign of life until all are back, as a bar and as a list.
import { seconds } from "./dom.js";

// Name of its figure, word, meaning. Those before the epoch follow one another; the others are counted from it.
const BEFORE = [
  ["detect", "confirmed", "somebody asked it directly, and it was reported dead"],
  ["wait", "lease over", "the dead one may serve no more"],
  ["commit", "new owners named", "the new epoch exists"],
];
const AFTER = [
  ["load", "all served", "every block is loaded and served again"],
  ["settle", "workers settled", "each has told what it lost and sends again"],
  ["return", "back", "who died is there again, and serves blocks"],
];

// In the order of time. `at`: seconds since the last sign of life; null: not known, or not there yet, as `words` say.
function momentsOf(one) {
  const found = [];
  let at = 0;
  const { phases } = one;
  const add = (key, word, meaning, when, words) => found.push({ key, word, meaning, figure: phases[key], at: when, words });
  add("suspect", "suspected", "its connection broke, or it was silent for too long", phases.suspect < 0 ? null : phases.suspect, "not known");
  for (const [key, word, meaning] of BEFORE) {
    at += Math.max(0, phases[key]);
    add(key, word, meaning, phases[key] < 0 ? null : at, "not known");
  }
  for (const [key, word, meaning] of AFTER) {
    if (key === "return" && !one.member_count) continue;  // nobody died
    add(key, word, meaning, phases[key] > 0 ? at + phases[key] : null, phases[key] < 0 ? "not known" : "not yet");
  }
  const time = (moment) => (moment.at === null ? Infinity : moment.at);
  return [...found.slice(0, 4), ...found.slice(4).sort((left, right) => (time(left) < time(right) ? -1 : Number(time(left) > time(right))))];
}

// Until all blocks were served again.
export const downSeconds = (one) => ["detect", "wait", "commit", "load"].reduce((sum, key) => sum + Math.max(0, one.phases[key]), 0);

// [bar, list]. The way back of who died is cut where it would take more than half of the bar, and looks so.
export function timeLine(one) {
  const moments = momentsOf(one);
  const bar = document.createElement("div");
  bar.className = "phases";
  bar.setAttribute("role", "img");
  bar.setAttribute("aria-label", moments.map((moment) => `${moment.word}${when(moment)}`).join(", "));
  const list = document.createElement("ul");
  list.className = "key";
  let since = 0;
  for (const moment of moments) {
    list.append(listItem(moment));
    if (moment.at === null || moment.at <= since) continue;
    const part = document.createElement("span");
    const length = moment.at - since;
    part.className = moment.key;
    const cut = moment.key === "return" && since > 0 && length > since;
    part.classList.toggle("cut", cut);
    part.style.flexGrow = (cut ? since : length) * 1000;  // a sum below 1 would leave a rest
    part.title = `until ${moment.word}: ${seconds(length)}`;
    bar.append(part);
    since = moment.at;
  }
  return [bar, list];
}

const when = (moment) => (moment.at === null ? `: ${moment.words}` : ` at ${seconds(moment.at)}`);

function listItem(moment) {
  const item = document.createElement("li");
  item.className = moment.key;
  item.dataset.seconds = moment.figure;
  const name = document.createElement("b");
  name.textContent = `${moment.word}${when(moment)}`;
  const meaning = document.createElement("span");
  meaning.className = "dim";
  meaning.textContent = moment.meaning;
  item.append(name, " ", meaning);
  return item;
}
