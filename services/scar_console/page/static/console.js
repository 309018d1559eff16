// The page: takes looks from the server and hands each part to who shows it.
import { LossChart } from "./chart.js";
import { byId, seconds, setText, number } from "./dom.js";
import { showFailures } from "./failures.js";
import { showCheckpoint, showServices, showShards, showWorkers } from "./members.js";

const token = new URLSearchParams(location.search).get("token");
const chart = new LossChart(byId("chart"), byId("log"));
let ended = false;

const stream = new EventSource(`/events?token=${encodeURIComponent(token)}`);
stream.onopen = () => showLink("live", "live");
stream.onerror = () => ended || showLink("lost", "connection lost: is `scar console` still running?");
stream.onmessage = (event) => {
  const look = JSON.parse(event.data);
  if (look.curve) chart.takePoints(look.curve);
  showState(look.state);
};

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
  showShards(state, kill);
  showWorkers(state, kill);
  showCheckpoint(state.checkpoint);
  showServices(state.services);
  if (state.ended) {
    ended = true;
    stream.close();
    showLink("lost", "the cluster has ended; this is what was seen last");
  }
}

function showHead(state) {
  const job = state.job;
  setText(byId("job"), job ? job.name : "no job yet");
  document.title = job ? `${job.name} · SCAR` : "SCAR";
  const partial = state.loss_fraction < 1 ? ` of ${(100 * state.loss_fraction).toFixed(1)} % of the data` : "";
  const loss = state.loss_clock < 0 ? "-" : state.loss === null ? "not a number: it has diverged" : number(state.loss) + partial;
  const facts = job
    ? [["clock", state.clock], ["loss", loss], ["epoch", state.epoch], ["blocks", job.blocks],
       ["consistency", job.consistency], ["recovery", job.recovery]]
    : [["start one by", "scar train FILE"]];
  if (job && job.loading) facts.push(["loading", `${job.loading} blocks`]);
  if (job && job.finished_manifest) facts.push(["finished", `manifest ${job.finished_manifest}`]);
  byId("facts").replaceChildren(...facts.map(([name, value]) => {
    const pair = document.createElement("div");
    const term = document.createElement("dt");
    const said = document.createElement("dd");
    term.textContent = name;
    said.textContent = value;
    pair.append(term, said);
    return pair;
  }));
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

async function kill(name) {
  try {
    const answer = await fetch(`/kill/${encodeURIComponent(name)}`, {
      method: "POST", headers: { "X-Scar-Token": token },
    });
    const said = await answer.json();
    say(answer.ok ? `${said.done}: watch it heal` : `${said.error}. ${said.next}`);
  } catch (error) {
    say(`${name} was not killed: ${error.message}`);
  }
}

let quiet = 0;
function say(text) {
  setText(byId("said"), text);
  clearTimeout(quiet);
  quiet = setTimeout(() => setText(byId("said"), ""), 6000);
}
