// Failures, newest first, and one of them opened: its phases on a time line, and what it cost.
import { byId, costText, fillTable, memberNames, number, plural, seconds, setText } from "./dom.js";
import { downSeconds, timeLine } from "./timeline.js";

let opened = 0;
let shown = null;  // the last look
const buttons = new Map();

// By its flag on the curve.
export function openFailure(failure) {
  opened = failure;
  showFailures(shown);
  byId("failure").scrollIntoView({ block: "nearest" });
}

export function showFailures(state) {
  shown = state;
  const failures = [...state.failures].reverse();
  byId("no-failure").hidden = failures.length > 0;
  setText(byId("failure-count"), state.failure_count || "");
  fillTable(byId("failures"), [">#", "~details", "who", "state", ">down", ">clock", ">cost", ">blocks lost", "came back"], failures.map((one) => [
    one.number, openButton(one.number), memberNames(one),
    one.repaired ? ["recovered", "good"] : ["recovering", "bad"], one.epoch ? seconds(downSeconds(one)) : "-",
    one.clock, costText(one) || "-", `${one.lost_blocks} of ${one.total_blocks}`, sources(one),
  ]));
  showOpened(failures.find((one) => one.number === opened));
  showRevisions(state.job?.revisions ?? []);
}

// What the job was resumed with otherwise than before.
function showRevisions(revisions) {
  const list = byId("revisions");
  if (!list || list.childElementCount === revisions.length) return;
  list.replaceChildren(...revisions.map((one) => {
    const item = document.createElement("li");
    item.textContent = `${new Date(1000 * one.created).toLocaleString()}: settings changed: ${one.changes}`;
    return item;
  }));
}

function openButton(failure) {
  if (!buttons.has(failure)) {
    const button = document.createElement("button");
    button.setAttribute("aria-controls", "failure");
    button.setAttribute("aria-label", `Details of failure ${failure}`);
    buttons.set(failure, button);
  }
  const button = buttons.get(failure);
  button.onclick = () => {
    opened = opened === failure ? 0 : failure;
    showFailures(shown);
  };
  setText(button, opened === failure ? "close" : "open");
  button.setAttribute("aria-expanded", String(opened === failure));
  return button;
}

function showOpened(one) {
  const box = byId("failure");
  box.hidden = !one;
  if (!one) return;
  const title = document.createElement("h3");
  title.textContent = `Failure ${one.number}: ${memberNames(one, 20)} at clock ${one.clock}`;
  const facts = document.createElement("p");
  facts.textContent = costWords(one);
  const why = document.createElement("p");
  why.className = "dim";
  const back = one.rollback ? [`${one.rollback}: back to what was saved by clock ${one.restored_clock}`] : [];
  why.textContent = [...back, ...one.evidence, ...one.damage].join("; ");
  box.replaceChildren(title, ...timeLine(one), facts, why);
}

// Beside what was measured.
const predictedWords = (cost) => (cost.at_most !== null && cost.predicted !== null
  ? `, ${number(cost.predicted, 2)} predicted by the first loss since` : "");

function costWords(one) {
  const parts = [
    `${one.lost_blocks} of ${plural(one.total_blocks, "block")} lost, ${sources(one)}`,
    one.delta_norm === null || one.delta_norm < 0 ? "" : `the model moved by ‖δ‖ ${one.delta_exact ? "" : "~"}${number(one.delta_norm)}`,
    `${plural(one.lost_pushes, "acknowledged push", "acknowledged pushes")} touched what went back`,
    `${one.resent_pushes} sent again`,
    costText(one) ? `cost: ${costText(one)}${predictedWords(one.cost)}` : one.cost?.reason ? `what it cost is not known: ${one.cost.reason}` : "",
    one.epoch ? `epoch ${one.epoch}` : "not repaired yet",
    one.strategy,
    one.waiting_count ? `waiting for ${one.waiting.slice(0, 4).join(", ")}${one.waiting_count > 4 ? " and others" : ""}` : "",
  ];
  return parts.filter(Boolean).join(" · ");
}

const FROM = { object: "from the checkpoint", initial: "from x(0)", donor: "from a live shard", replica: "from a copy", worker: "from a worker" };
const sources = (one) => Object.entries(one.sources).filter(([, count]) => count)
  .map(([from, count]) => `${count} ${FROM[from] ?? from}`).join(", ") || "-";
