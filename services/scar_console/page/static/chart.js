// The loss by clock, with every failure and recovery marked on it.
/* global uPlot */

const HEIGHT = 280;
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

export class LossChart {
  constructor(box, logarithmic) {
    this.box = box;
    this.logarithmic = logarithmic;
    this.clocks = [];
    this.losses = [];
    this.failures = [];
    this.plot = null;
    logarithmic.addEventListener("change", () => this.draw());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    new ResizeObserver(() => this.plot?.setSize({ width: box.clientWidth, height: HEIGHT })).observe(box);
  }

  get points() {
    return this.clocks.length;
  }

  // Points from one clock on take the place of those that were there.
  takePoints(curve) {
    let kept = this.clocks.findIndex((clock) => clock >= curve.from);
    if (kept < 0) kept = this.clocks.length;
    this.clocks = [...this.clocks.slice(0, kept), ...curve.clocks];
    this.losses = [...this.losses.slice(0, kept), ...curve.losses];
    if (!this.plot) this.draw();
    else this.plot.setData([this.clocks, this.drawable()]);
  }

  showFailures(failures) {
    const key = JSON.stringify(failures.map((one) => [one.number, one.clock, one.healed_clock, one.repaired]));
    if (key === this.key) return;
    this.key = key;
    this.failures = failures;
    this.plot?.redraw();
  }

  // A logarithm has no place for what is not positive.
  drawable() {
    return this.logarithmic.checked ? this.losses.map((loss) => (loss > 0 ? loss : null)) : this.losses;
  }

  draw() {
    if (!this.clocks.length) return;
    this.plot?.destroy();
    const axis = { stroke: colour("dim"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line") } };
    this.plot = new uPlot({
      width: this.box.clientWidth,
      height: HEIGHT,
      legend: { show: true, live: true },
      scales: { x: { time: false }, y: { distr: this.logarithmic.checked ? 3 : 1 } },
      axes: [{ ...axis }, { ...axis, size: 70, values: (_plot, ticks) => ticks.map(shortNumber) }],
      series: [
        { label: "clock" },
        { label: "loss", stroke: colour("curve"), width: 2, points: { show: this.clocks.length < 2 } },
      ],
      hooks: { draw: [(plot) => this.drawMarks(plot)] },
    }, [this.clocks, this.drawable()], this.box);
  }

  drawMarks(plot) {
    for (const one of this.failures) {
      markClock(plot, one.clock, colour("fail"), [6, 4], `${one.number}: ${one.members.join(", ") || "damage"}`);
      if (one.repaired && one.healed_clock >= 0) markClock(plot, one.healed_clock, colour("heal"), [], "");
    }
  }
}

const shortNumber = (value) => (value === null ? "" : String(Number(value.toPrecision(3))));

function markClock(plot, clock, stroke, dash, text) {
  const { min, max } = plot.scales.x;
  if (clock < min || clock > max) return;
  const { left, top, width, height } = plot.bbox;
  const x = Math.round(plot.valToPos(clock, "x", true));
  const draw = plot.ctx;
  draw.save();
  draw.strokeStyle = draw.fillStyle = stroke;
  draw.lineWidth = 2 * devicePixelRatio;
  draw.setLineDash(dash.map((one) => one * devicePixelRatio));
  draw.beginPath();
  draw.moveTo(x, top);
  draw.lineTo(x, top + height);
  draw.stroke();
  draw.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
  const before = x > left + width * 0.85;
  draw.textAlign = before ? "right" : "left";
  draw.fillText(text, x + (before ? -5 : 5) * devicePixelRatio, top + 14 * devicePixelRatio);
  draw.restore();
}
