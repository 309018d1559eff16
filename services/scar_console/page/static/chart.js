// The loss by clock or by time, with every failure and recovery marked on it.
/* global uPlot */
import { costText, memberNames } from "./dom.js";

const HEIGHT = 280;
const FLAG_WIDTH = 36;
const FLAG_HEIGHT = 26;
const FLAG_ROWS = 8;
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// Clocks, and losses.
export function lossAxes() {
  const axis = { stroke: colour("dim"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line") } };
  return [{ ...axis }, { ...axis, size: 70, values: (_plot, ticks) => ticks.map(shortNumber) }];
}

export class LossChart {
  // `axis`: what the loss is drawn by, "clock" or "time". `moments`: when clocks were closed. `open`: what a
  // click on a failure's flag does, with its number. `metric`: which curve is drawn, "loss" or a metric's name.
  constructor(box, { logarithmic, axis, metric, moments, open }) {
    this.box = box;
    this.open = open;
    this.marks = new Map();
    this.logarithmic = logarithmic;
    this.axis = axis;
    this.metric = metric;
    this.moments = moments;
    this.curves = new Map();  // name -> clocks, losses
    this.failures = [];
    this.plot = null;
    logarithmic.addEventListener("change", () => this.draw());
    axis.addEventListener("change", () => this.draw());
    metric.addEventListener("change", () => this.draw());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    new ResizeObserver(() => this.plot?.setSize({ width: box.clientWidth, height: HEIGHT })).observe(box);
  }

  get points() {
    return this.clocks.length;
  }

  get clocks() {
    return this.curves.get(this.metric.value)?.clocks ?? [];
  }

  get losses() {
    return this.curves.get(this.metric.value)?.losses ?? [];
  }

  // Another run: nothing of the last one stays.
  clear() {
    this.plot?.destroy();
    this.plot = null;
    this.curves.clear();
    this.marks.clear();
    this.key = "";
  }

  // Points from one clock on take the place of those that were there.
  takePoints(curve, name = "loss") {
    const { clocks, losses } = this.curves.get(name) ?? { clocks: [], losses: [] };
    let kept = clocks.findIndex((clock) => clock >= curve.from);
    if (kept < 0) kept = clocks.length;
    this.curves.set(name, { clocks: [...clocks.slice(0, kept), ...curve.clocks], losses: [...losses.slice(0, kept), ...curve.losses] });
    if (this.metric.value === name) this.redraw();
  }

  takeMetrics(metrics) {
    for (const [name, curve] of Object.entries(metrics)) this.takePoints(curve, name);
    this.offerMetrics();
  }

  offerMetrics() {
    const names = ["loss", ...[...this.curves.keys()].filter((name) => name !== "loss").sort()];
    const select = this.metric;
    if (names.join("\n") === [...select.options].map((option) => option.value).join("\n")) return;
    const chosen = select.value;
    select.replaceChildren(...names.map((name) => new Option(name, name)));
    select.value = names.includes(chosen) ? chosen : "loss";
    select.parentElement.hidden = names.length < 2;
    if (select.value !== chosen) this.draw();
  }

  // There are new points, or new moments.
  redraw() {
    if (!this.plot) this.draw();
    else this.plot.setData(this.data());
  }

  get byTime() {
    return this.axis.value === "time";
  }

  // By time only clocks of which it is known.
  data() {
    const losses = this.drawable();
    if (!this.byTime) return [this.clocks, losses];
    const when = this.clocks.map((clock) => this.moments.closing(clock));
    return [when.filter((at) => at !== null), losses.filter((_, index) => when[index] !== null)];
  }

  // From where to where a failure is on the axis; and until where its cost, null: that is not known.
  spanOf(one, end) {
    if (!this.byTime) {
      const until = !one.repaired ? end : one.healed_clock >= 0 ? one.healed_clock : one.clock;
      return [one.clock, until, one.cost?.back ?? null];
    }
    const phases = ["wait", "commit", "load"].map((key) => Math.max(0, one.phases[key]));
    const until = one.repaired ? one.created + phases.reduce((sum, part) => sum + part, 0) : end;
    return [one.created, until, one.cost?.back == null ? null : this.moments.closing(one.cost.back)];
  }

  showFailures(failures) {
    const key = JSON.stringify(failures.map((one) => [one.number, one.clock, one.healed_clock, one.repaired, one.cost?.back]));
    if (key === this.key) return;
    this.key = key;
    this.failures = failures;
    const shown = new Set(failures.flatMap((one) => [`outage ${one.number}`, `flag ${one.number}`, `cost ${one.number}`]));
    for (const known of this.marks.keys()) if (!shown.has(known)) this.marks.delete(known);
    if (this.plot) this.placeMarks(this.plot);
  }

  // A logarithm has no place for what is not positive.
  drawable() {
    return this.logarithmic.checked ? this.losses.map((loss) => (loss > 0 ? loss : null)) : this.losses;
  }

  draw() {
    if (!this.clocks.length) return;
    this.plot?.destroy();
    this.plot = new uPlot({
      width: this.box.clientWidth,
      height: HEIGHT,
      legend: { show: true, live: true, isolate: false },
      scales: { x: { time: this.byTime }, y: { distr: this.logarithmic.checked ? 3 : 1 } },
      axes: lossAxes(),
      series: [
        this.byTime ? { label: "time", value: (_plot, at) => timeOfDay(at) } : { label: "clock" },
        { label: this.metric.value, stroke: colour("curve"), width: 2, points: { show: (plot) => plot.data[0].length < 2 } },
      ],
      hooks: { ready: [(plot) => this.placeMarks(plot)], draw: [(plot) => this.placeMarks(plot)] },
    }, this.data(), this.box);
  }

  // Elements, not paint: they can be focused, clicked and read out.
  placeMarks(plot) {
    const marks = this.failures.flatMap((one) => this.marksOf(plot, one));
    stackFlags(marks.filter((mark) => mark.tagName === "BUTTON"));
    for (const old of plot.over.querySelectorAll(".outage, .flag, .cost")) if (!marks.includes(old)) old.remove();
    for (const mark of marks) if (mark.parentNode !== plot.over) plot.over.append(mark);
  }

  // A band from the failure to the recovery, and a flag that opens the failure.
  marksOf(plot, one) {
    const { min, max } = plot.scales.x;
    const [begin, until, back] = this.spanOf(one, max);
    if (!(Math.max(until, back ?? until) >= min && begin <= max)) return [];  // no scale yet: neither holds
    const band = this.markFor(`outage ${one.number}`, "span");
    const left = placeBetween(plot, band, begin, until);
    band.className = `outage ${one.healed_clock >= 0 ? "healed" : ""}`;
    const flag = this.markFor(`flag ${one.number}`, "button");
    flag.className = `flag ${one.repaired ? "healed" : ""}`;
    flag.dataset.failure = one.number;
    flag.textContent = one.number;
    flag.at = left;
    flag.title = `failure ${one.number}: ${memberNames(one)} at clock ${one.clock}, `
      + (one.repaired ? "recovered" : "recovering") + (costText(one) && `, cost ${costText(one)}`);
    flag.setAttribute("aria-label", flag.title);
    flag.onclick = () => this.open(one.number);
    flag.onmousedown = (event) => event.stopPropagation();  // it would begin a zoom
    if (back === null) return [band, flag];
    const cost = this.markFor(`cost ${one.number}`, "span");
    cost.className = "cost";
    placeBetween(plot, cost, begin, back);
    return [band, cost, flag];
  }

  markFor(key, tag) {
    if (!this.marks.has(key)) this.marks.set(key, document.createElement(tag));
    return this.marks.get(key);
  }
}

// Returns where it begins, in pixels.
function placeBetween(plot, mark, begin, end) {
  const { min, max } = plot.scales.x;
  const left = plot.valToPos(Math.max(begin, min), "x");
  mark.style.left = `${left}px`;
  mark.style.width = `${Math.max(2, plot.valToPos(Math.min(end, max), "x") - left)}px`;
  return left;
}

// Those that would cover each other lie below each other.
function stackFlags(flags) {
  const ends = Array(FLAG_ROWS).fill(-Infinity);
  for (const flag of [...flags].sort((one, other) => one.at - other.at)) {
    const row = Math.max(0, ends.findIndex((end) => end <= flag.at));
    ends[row] = flag.at + FLAG_WIDTH;
    flag.style.left = `${flag.at}px`;
    flag.style.top = `${row * FLAG_HEIGHT}px`;
  }
}

const timeOfDay = (at) => (at === null ? "" : new Date(1000 * at).toLocaleTimeString());
const shortNumber = (value) => (value === null ? "" : String(Number(value.toPrecision(3))));
