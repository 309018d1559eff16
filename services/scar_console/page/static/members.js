// Shards, workers, checkpoints and services.
import { byId, fillTable, number, plural, seconds, setText, size } from "./dom.js";

const SURE_SECONDS = 4;  // in which a second click does it
const COLOURS = { alive: "good", running: "good", learning: "", suspect: "warn" };
const PARTS = ["pull", "compute", "push", "wait"];  // of a worker's time, in the order of its `split`
const buttons = new Map();
const bars = new Map();

export function showShards(state, breakMember) {
  const most = Math.max(1, ...state.shards.rows.map((row) => row.blocks));
  showCount("shard-count", state.shards);
  setText(byId("cannot-break"), state.cannot_break.join(" "));
  fillTable(byId("shards"), ["shard", "~break", "health", "owns", ">blocks", ">bytes", ">pushes/s", ">traffic/s", ">clock", ">last saved", ">oldest block"],
    state.shards.rows.map((row) => [
      row.name, breakButtons(row, state, breakMember), health(row), barOf(row.name, row.blocks / most, `${(100 * row.blocks / (state.job?.blocks || 1)).toFixed(1)} %`),
      row.loading ? [`${row.blocks} (${row.loading} loading)`, "warn"] : row.blocks,
      size(row.bytes), row.rate < 0 ? "-" : number(row.rate, 3), row.traffic < 0 ? "-" : size(row.traffic), clockWord(row.clock, row.blocks),
      row.saved_age < 0 ? "-" : `${seconds(row.saved_age)} ago`, oldestWords(row, state.clock),
    ]));
}

export function showWorkers(state, breakMember) {
  showCount("worker-count", state.workers);
  const { rows } = state.workers;
  const slowest = Math.max(1e-9, ...rows.map((row) => row.seconds_per_clock));
  const first = Math.max(...rows.map((row) => row.clock ?? 0));
  const columns = ["worker", "~break", "health", "state", ">clock", "per clock", ...PARTS.map((part) => `>${part}`), ">last clock"];
  fillTable(byId("workers"), columns, rows.map((row) => [
    row.name, breakButtons(row, state, breakMember), health(row), row.straggler ? [`${row.state}, straggler`, "warn"] : row.state || "-",
    workerClock(row, first), splitBarOf(row.name, row.split.map((part) => part / slowest), seconds(row.seconds_per_clock || -1)),
    ...row.split.map((part) => seconds(row.seconds_per_clock ? part : -1)),
    row.state === "training" ? `${seconds(row.waited)} ago` : "-",
  ]));
}

export function showCheckpoint(saved, store, choice) {
  setText(byId("choice"), choice && `Recovery was chosen: ${choice}.`);
  setText(byId("store"), store && `Store: ${store}`);
  setText(byId("checkpoint"), saved && saved.manifest
    ? `Manifest ${saved.manifest}, ${seconds(saved.age)} old, of clock ${saved.clock}: a restore would read ${size(saved.bytes)} in ${saved.objects} objects.`
    : "None yet: the first comes after some clocks.");
  const plan = saved?.plan;
  setText(byId("plan"), plan
    && `Rounds save ${(100 * plan.fraction).toPrecision(3)} % of the blocks every ${plan.every} clocks: ${plan.reason}.`);
  fillTable(byId("rounds"), [">round", ">clock", ">blocks", ">bytes", ">choose", ">copy", ">store", "note"],
    (saved?.recent ?? []).map((one) => [
      one.round, one.clock, `${one.blocks} of ${one.blocks_total}`, size(one.bytes), seconds(one.select), seconds(one.copy), seconds(one.commit),
      one.error ? [one.error, "bad"] : one.missed.length ? `missed by ${one.missed.join(", ")}` : "saved",
    ]));
}

export function showServices(rows, redis, store) {
  setText(byId("redis-health"), redis === null ? "" : `Redis ${redis ? "answers" : "does not answer"} the detector.`);
  byId("redis-health").className = redis === false ? "warn" : "dim";
  setText(byId("store-health"), storeWords(store));
  byId("store-health").className = store?.problem ? "warn" : "dim";
  fillTable(byId("services"), ["service", "health", "leads", ">restarts"],
    rows.map((row) => [row.name, health(row), row.leader === null ? "" : row.leader ? "leader" : "standby", row.restarts]));
}

function storeWords(store) {
  if (!store) return "";
  const last = store.age < 0 ? "" : `The store answered ${seconds(store.age)} ago, in ${seconds(store.seconds)}.`;
  return store.problem ? `The store does not answer: ${store.problem}. ${last}` : last;
}

function showCount(id, table) {
  const shown = table.rows.length;
  setText(byId(id), shown < table.total ? `${shown} of ${table.total}, the unwell first` : table.total || "");
}

function health(row) {
  const words = [row.health, row.hindered, row.restarts ? `restarted ${row.restarts}×` : ""];
  return [words.filter(Boolean).join(", "), row.hindered ? "warn" : COLOURS[row.health] ?? "bad"];
}

const clockWord = (clock, known) => (clock === null ? (known ? "done" : "-") : clock);

const oldestWords = (row, clock) => (row.oldest === null ? "-" : row.oldest < 0 ? ["never saved", "warn"]
  : `${plural(Math.max(0, clock - row.oldest), "clock")} ago`);

// Who is behind the first one holds it up, in BSP.
function workerClock(row, first) {
  const behind = row.clock === null || !row.state ? 0 : first - row.clock;
  return behind > 1 ? [`${row.clock}, ${behind} behind`, "warn"] : clockWord(row.clock, Boolean(row.state));
}

// `width`: against the longest of its column, from 0 to 1.
const barOf = (name, width, text) => splitBarOf(name, [Math.max(0.01, width)], text, [""]);

// One bar of several parts, with their widths.
function splitBarOf(name, widths, text, kinds = PARTS) {
  if (!bars.has(name)) {
    const bar = document.createElement("span");
    bar.className = "bar";
    bar.append(...kinds.map((kind) => Object.assign(document.createElement("i"), { className: kind })), document.createElement("span"));
    bars.set(name, bar);
  }
  const bar = bars.get(name);
  widths.forEach((width, index) => { bar.children[index].style.width = `${100 * width}%`; });
  setText(bar.lastChild, text);
  return bar;
}

function breakButtons(row, state, breakMember) {
  if (!state.can_break.length) return "";
  if (!buttons.has(row.name)) {
    const box = document.createElement("span");
    box.className = "breaks";
    box.append(...state.can_break.map((how) => breakButton(how, row.name, breakMember)));
    buttons.set(row.name, box);
  }
  const box = buttons.get(row.name);
  for (const button of box.children) button.disabled = !row.running || state.ended;
  return box;
}

// The first click asks, the second one does it.
function breakButton(how, name, breakMember) {
  const button = document.createElement("button");
  button.className = "break";
  button.onclick = () => {
    const sure = button.classList.contains("sure");
    ask(button, how, name, !sure);
    if (sure) breakMember(how, name);
  };
  ask(button, how, name, false);
  return button;
}

function ask(button, how, name, sure) {
  clearTimeout(button.timer);
  button.classList.toggle("sure", sure);
  setText(button, sure ? "sure?" : how);
  button.setAttribute("aria-label", sure ? `Really ${how} ${name}?` : `${how[0].toUpperCase()}${how.slice(1)} ${name}`);
  if (sure) button.timer = setTimeout(() => ask(button, how, name, false), SURE_SECONDS * 1000);
}
