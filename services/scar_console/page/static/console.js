// The page: takes looks from the server and hands each part to who shows it.
import { showBlocks } from "./blocks.js";
import { LossChart } from "./chart.js";
import { byId, memberNames, plural, seconds, setText, number } from "./dom.js";
import { openFailure, showFailures } from "./failures.js";
import { showLogs } from "./logs.js";
import { showCheckpoint, showServices, showShards, showWorkers } from "./members.js";
import { Moments } from "./moments.js";
import { takeRuns } from "./runs.js";

const token = new URLSearchParams(location.search).get("token");
const moments = new Moments();
const chart = new LossChart(byId("chart"), { logarithmic: byId("log"), axis: byId("axis"), metric: byId("metric"), moments, open: openFailure });
let state = {};
let ended = false;
let shown = null;  // of a store's runs

const stream = new EventSource(`/events?token=${encodeURIComponent(token)}`);
stream.onopen = () => showLink("live", "live");
stream.onerror = () => ended || showLink("lost", "connection lost: is `scar console` still running?");
stream.onmessage = (event) => {
  const look = JSON.parse(event.data);
  if (look.names) {
    takeRuns(look, showStoredRun);
    return;
  }
  if (look.state.job && look.state.job.name !== state.job?.name) chart.clear();  // another run, of other metrics
  takeProgress(look);
  state = { ...state, ...look.state };  // what has not changed is not sent again
  showState(state);
  showBlocks(look.blocks, state);
  showLogs(look.logs, state.log_problem);
};

function takeProgress(look) {
  if (look.moments) moments.take(look.moments);
  if (look.metrics) chart.takeMetrics(look.metrics);
  if (look.curve) chart.takePoints(look.curve);
  else if (look.moments) chart.redraw();
}

// One of a store's: of its processes nothing is known.
function showStoredRun(run) {
  if (run === shown) return;
  shown = run;
  state = run.state;
  chart.clear();
  moments.clear();
  takeProgress(run);
  showTitle(state.job.name, state.job.finished_manifest
    ? ["good", `finished: the model is saved in manifest ${state.job.finished_manifest}`]
    : ["", "not finished, when it was seen last"]);
  showTiles([
    ["clock", state.clock, `iterations, ${state.job.consistency}`],
    ["loss", ...lossWords(state)],
    ["lowest loss", number(run.lowest, 4), ""],
    ["clocks a second", number(run.pace, 3), "on average"],
    failureTile(state),
  ]);
  byId("no-loss").hidden = chart.points > 0;
  chart.showFailures(state.failures);
  showFailures(state);
}

function showLink(kind, text) {
  byId("link").className = kind;
  setText(byId("link"), text);
}

function showState(state) {
  showHead(state);
  showWords(state);
  byId("no-loss").hidden = chart.points > 0;
  chart.showFailures(state.failures);
  showFailures(state);
  showShards(state, breakMember);
  showWorkers(state, breakMember);
  showCheckpoint(state.checkpoint, state.store, state.job?.choice);
  showServices(state.services, state.redis, state.store_health);
  if (state.ended) {
    ended = true;
    stream.close();
    showLink("lost", "the cluster has ended; this is what was seen last");
  }
}

function showHead(state) {
  const job = state.job;
  showTitle(job?.name, summary(state));
  const saved = state.checkpoint;
  showTiles([
    ["clock", state.clock, job ? `iterations, ${job.consistency}, epoch ${state.epoch}` : ""],
    ["loss", ...lossWords(state)],
    ["shards", `${state.shards.well} of ${state.shards.total}`, "alive"],
    ["workers", `${state.workers.well} of ${state.workers.total}`, "alive"],
    failureTile(state),
    ["saved", saved && saved.manifest ? seconds(saved.age) : "never", saved && saved.manifest ? `ago, at clock ${saved.clock}` : ""],
  ]);
}

function failureTile(state) {
  const healed = state.failures.every((one) => one.repaired);
  return ["failures", state.failure_count, !state.failure_count ? "" : healed ? "all recovered" : "recovering"];
}

function showTitle(name, [kind, text]) {
  setText(byId("job"), name ?? "no job yet");
  document.title = name ? `${name} · SCAR` : "SCAR";
  byId("summary").className = kind;
  setText(byId("summary"), text);
}

function showTiles(tiles) {
  const box = byId("facts");
  while (box.children.length < tiles.length) box.append(newTile());
  tiles.forEach(([name, value, note], index) => {
    const [term, said, under] = box.children[index].children;
    setText(term, name);
    setText(said, value);
    setText(under, note);
  });
}

function newTile() {
  const tile = document.createElement("div");
  tile.append(document.createElement("dt"), document.createElement("dd"), document.createElement("dd"));
  tile.lastChild.className = "dim";
  return tile;
}

function lossWords(state) {
  if (state.loss_clock < 0) return ["-", ""];
  if (state.loss === null) return ["not a number", "it has diverged"];
  const partial = state.loss_fraction < 1 ? `, of ${(100 * state.loss_fraction).toFixed(1)} % of the data` : "";
  return [number(state.loss, 4), `of clock ${state.loss_clock}${partial}`];
}

// The run in one sentence: its kind colours it.
function summary(state) {
  const job = state.job;
  const hurt = state.failures.filter((one) => !one.repaired);
  if (!job) return ["", "waiting for a job: `scar train FILE` starts one"];
  if (job.finished_manifest) return ["good", `finished: the model is saved in manifest ${job.finished_manifest}`];
  if (hurt.length) return ["bad", `recovering from the loss of ${hurt.map((one) => memberNames(one)).join(", ")}`];
  if (job.loading) return ["bad", `${plural(job.loading, "block")} loading`];
  if (state.problems.length || state.waits.length) return ["warn", "waiting, see below"];
  if (!state.workers.total) return ["", "nobody trains"];
  return ["good", "training"];
}

function showWords(state) {
  const lines = [
    ...state.problems.map((text) => ["problem", text]),
    ...state.waits.map((wait) => ["waiting", wait.text + (wait.seconds >= 0 ? ` (${seconds(wait.seconds)})` : "")
      + (wait.next ? `. ${wait.next}` : "")]),
  ];
  const box = byId("words");
  const key = JSON.stringify(lines);
  if (box.dataset.key === key) return;  // a reader would hear it again
  box.dataset.key = key;
  box.hidden = !lines.length;
  box.replaceChildren(...lines.map(([kind, text]) => {
    const line = document.createElement("p");
    const word = document.createElement("b");
    word.textContent = `${kind}: `;
    line.append(word, text);
    return line;
  }));
}

async function breakMember(how, name) {
  try {
    const answer = await fetch(`/${how}/${encodeURIComponent(name)}`, {
      method: "POST", headers: { "X-Scar-Token": token },
    });
    const said = await answer.json();
    say(answer.ok ? `${said.done}: watch it heal` : `${said.error}. ${said.next}`);
  } catch (error) {
    say(`nothing was done to ${name}: ${error.message}`);
  }
}

let quiet = 0;
function say(text) {
  setText(byId("said"), text);
  clearTimeout(quiet);
  quiet = setTimeout(() => setText(byId("said"), ""), 6000);
}
