// Shards, workers, checkpoints and services.
import { byId, fillTable, seconds, setText, size } from "./dom.js";

const SURE_SECONDS = 4;  // in which a second click kills
const COLOURS = { alive: "good", running: "good", learning: "", suspect: "warn" };
const buttons = new Map();
const bars = new Map();

export function showShards(state, kill) {
  const most = Math.max(1, ...state.shards.rows.map((row) => row.blocks));
  showCount("shard-count", state.shards);
  fillTable(byId("shards"), ["shard", "", "health", "owns", ">blocks", ">bytes", ">clock", ">saved"],
    state.shards.rows.map((row) => [
      row.name, killButton(row, state, kill), health(row), shareBar(row.name, row.blocks / most, row.blocks / (state.job?.blocks || 1)),
      row.loading ? [`${row.blocks} (${row.loading} loading)`, "warn"] : row.blocks,
      size(row.bytes), clockWord(row.clock, row.blocks), row.saved_age < 0 ? "-" : `${seconds(row.saved_age)} ago`,
    ]));
}

export function showWorkers(state, kill) {
  showCount("worker-count", state.workers);
  fillTable(byId("workers"), ["worker", "", "health", "state", ">clock", ">per clock", ">restarts"],
    state.workers.rows.map((row) => [
      row.name, killButton(row, state, kill), health(row), row.state || "-", clockWord(row.clock, true), seconds(row.seconds_per_clock || -1),
      row.restarts,
    ]));
}

export function showCheckpoint(saved) {
  setText(byId("checkpoint"), saved && saved.manifest
    ? `Manifest ${saved.manifest}, ${seconds(saved.age)} old, of clock ${saved.clock}: a restore would read ${size(saved.bytes)} in ${saved.objects} objects.`
    : "None yet: the first comes after some clocks.");
  fillTable(byId("rounds"), [">round", ">clock", ">blocks", ">bytes", ">took", "note"],
    (saved?.recent ?? []).map((one) => [
      one.round, one.clock, one.blocks, size(one.bytes), seconds(one.seconds),
      one.error ? [one.error, "bad"] : one.missed.length ? `missed by ${one.missed.join(", ")}` : "saved",
    ]));
}

export function showServices(rows) {
  fillTable(byId("services"), ["service", "health", "leads", ">restarts"],
    rows.map((row) => [row.name, health(row), row.leader === null ? "" : row.leader ? "leader" : "standby", row.restarts]));
}

function showCount(id, table) {
  const shown = table.rows.length;
  setText(byId(id), shown < table.total ? `${shown} of ${table.total}, the unwell first` : table.total || "");
}

function health(row) {
  return [row.health + (row.restarts ? `, restarted ${row.restarts}×` : ""), COLOURS[row.health] ?? "bad"];
}

const clockWord = (clock, known) => (clock === null ? (known ? "done" : "-") : clock);

// `width`: against the one that owns most.
function shareBar(name, width, share) {
  if (!bars.has(name)) {
    const bar = document.createElement("span");
    bar.className = "share";
    bar.append(document.createElement("i"), document.createElement("span"));
    bars.set(name, bar);
  }
  const bar = bars.get(name);
  bar.firstChild.style.width = `${Math.max(1, 100 * width)}%`;
  setText(bar.lastChild, `${(100 * share).toFixed(1)} %`);
  return bar;
}

// The first click asks, the second one kills.
function killButton(row, state, kill) {
  if (!state.can_kill) return "";
  if (!buttons.has(row.name)) {
    const button = document.createElement("button");
    button.className = "kill";
    button.textContent = "kill";
    button.setAttribute("aria-label", `Kill ${row.name}`);
    button.onclick = () => (button.classList.contains("sure") ? (ask(button, row.name, false), kill(row.name)) : ask(button, row.name, true));
    buttons.set(row.name, button);
  }
  const button = buttons.get(row.name);
  button.disabled = !row.running || state.ended;
  return button;
}

function ask(button, name, sure) {
  clearTimeout(button.timer);
  button.classList.toggle("sure", sure);
  button.textContent = sure ? "sure?" : "kill";
  button.setAttribute("aria-label", sure ? `Really kill ${name}?` : `Kill ${name}`);
  if (sure) button.timer = setTimeout(() => ask(button, name, false), SURE_SECONDS * 1000);
}
