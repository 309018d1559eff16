// The runs of a store side by side: a curve and a row for each, and which one is shown below.
import { byId, fillTable, number, plural, setText } from "./dom.js";
import { drawPanel, fitPanel } from "./panels.js";

const links = new Map();
let names = [];
let runs = new Map();  // by name, as they were sent last
let plot = null;
let show = () => {};

// `onShow`: is called with a run when another one is chosen, or it has changed.
export function takeRuns(look, onShow) {
  show = onShow;
  names = look.names;
  for (const run of look.runs) runs.set(run.name, run);
  runs = new Map(names.map((name) => [name, runs.get(name)]));
  document.body.classList.add("of-store");
  setText(byId("runs-store"), look.problem || `Store: ${look.store}`);
  byId("runs-store").className = look.problem ? "warn" : "dim";
  setText(byId("run-count"), look.total > names.length ? `${names.length} of ${look.total}, those seen last` : look.total || "");
  draw();
  choose();
}

addEventListener("hashchange", () => choose());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw());
new ResizeObserver(() => fitPanel(plot, byId("comparison"))).observe(byId("comparison"));

const readable = () => [...runs.values()].filter((run) => !run.error);
const chosen = () => runs.get(decodeURIComponent(location.hash.slice(1))) ?? readable()[0];

function choose() {
  const run = chosen();
  fillTable(byId("runs"), ["run", "state", ">clock", ">last loss", ">lowest loss", ">failures", ">clocks/s", ">workers", ">shards", "last seen"],
    [...runs.values()].map((one) => rowOf(one, one === run)));
  if (run && !run.error) show(run);
}

function rowOf(run, isShown) {
  const link = linkTo(run.name, isShown);
  if (run.error) return [link, [run.error, "bad"], ...Array(8).fill("-")];
  const state = run.state;
  const ended = state.job.finished_manifest;
  return [
    link, ended ? ["finished", "good"] : "not finished", state.clock, state.loss_clock < 0 ? "-" : number(state.loss, 6),
    number(run.lowest, 6), state.failure_count, number(run.pace, 3), run.workers, run.shards, run.seen ? ago(run.seen) : "never",
  ];
}

function linkTo(name, isShown) {
  if (!links.has(name)) {
    const link = document.createElement("a");
    link.href = `#${encodeURIComponent(name)}`;
    link.textContent = name;
    links.set(name, link);
  }
  const link = links.get(name);
  if (isShown) link.setAttribute("aria-current", "true");
  else link.removeAttribute("aria-current");
  return link;
}

function ago(time) {
  const minutes = Math.max(0, Math.round((Date.now() / 1000 - time) / 60));
  if (minutes < 120) return `${plural(minutes, "minute")} ago`;
  return minutes < 2880 ? `${plural(Math.round(minutes / 60), "hour")} ago` : `${plural(Math.round(minutes / 1440), "day")} ago`;
}

function draw() {
  plot?.destroy();
  plot = null;
  const drawn = readable().filter((run) => run.curve.clocks.length);
  if (drawn.length < 2) return;  // one is shown below
  const series = drawn.map((run) => ({ label: run.name, x: run.curve.clocks, y: run.curve.losses }));
  plot = drawPanel(byId("comparison"), { x: "clock", series });
}
