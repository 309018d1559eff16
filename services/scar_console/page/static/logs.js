// What members write, the newest last: filtered by who and how severe. Text, never markup: anybody may write it.
import { byId, setText } from "./dom.js";

const KEPT = 2000;  // lines
const RANKS = { debug: 0, printed: 1, info: 1, warning: 2, error: 3 };
const NEAR = 40;  // pixels from the end, within which the newest line stays in view
let lines = [];

byId("log-member").addEventListener("change", drawAll);
byId("log-level").addEventListener("change", drawAll);

// `fresh`: those since the look before, which may have been sent already.
export function showLogs(fresh, problem) {
  setText(byId("log-problem"), problem);
  byId("log-problem").hidden = !problem;
  let last = lines.at(-1)?.number ?? 0;
  if (fresh.length && fresh.at(-1).number < last) {  // the page's server has begun anew
    lines = [];
    last = 0;
    drawAll();
  }
  const added = fresh.filter((line) => line.number > last);
  if (!added.length) return;
  lines = [...lines, ...added].slice(-KEPT);
  offerMembers();
  append(added);
}

function offerMembers() {
  const choice = byId("log-member");
  const names = [...new Set(lines.map((line) => line.member))].sort(new Intl.Collator("en", { numeric: true }).compare);
  const key = names.join(" ");
  if (choice.dataset.key === key) return;
  choice.dataset.key = key;
  const chosen = choice.value;
  choice.replaceChildren(new Option("everybody", ""), ...names.map((name) => new Option(name, name)));
  choice.value = names.includes(chosen) ? chosen : "";
  if (choice.value !== chosen) drawAll();
}

function drawAll() {
  byId("log-lines").replaceChildren();
  append(lines);
}

function append(added) {
  const box = byId("log-lines");
  const follows = box.scrollHeight - box.scrollTop - box.clientHeight < NEAR;
  box.append(...added.filter(isWanted).map(lineOf));
  while (box.children.length > KEPT) box.firstChild.remove();
  if (follows) box.scrollTop = box.scrollHeight;
}

function isWanted(line) {
  const member = byId("log-member").value;
  return (!member || line.member === member) && RANKS[line.level] >= Number(byId("log-level").value);
}

function lineOf(line) {
  const row = document.createElement("p");
  row.className = line.level;
  for (const [kind, text] of [["time", clockTime(line.time)], ["member", line.member], ["level", line.level], ["text", line.text]]) {
    const part = document.createElement("span");
    part.className = kind;
    part.textContent = text;
    row.append(part, " ");
  }
  return row;
}

const clockTime = (time) => (time ? new Date(1000 * time).toTimeString().slice(0, 8) : "");
