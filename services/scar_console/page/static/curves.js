// Curves of several runs in one picture, told apart by colour and dash.
/* global uPlot */
import { lossAxes } from "./chart.js";

const CURVES_HEIGHT = 280;
const STROKES = ["curve", "fail", "heal", "warn", "dim"];  // of the theme; then again, dashed
const DASHES = [[], [8, 4], [2, 4], [12, 4, 2, 4]];

// `curves`: name, clocks and losses of each. `marks`: clocks at which something died. Returns the plot.
export function drawCurves(box, curves, marks = []) {
  const style = getComputedStyle(document.documentElement);
  const series = curves.map((one, index) => ({
    label: one.name,
    stroke: style.getPropertyValue(`--${STROKES[index % STROKES.length]}`).trim(),
    dash: DASHES[Math.floor(index / STROKES.length)],
    width: 2,
    spanGaps: true,
    points: { show: one.clocks.length < 2 },
  }));
  return new uPlot({
    width: box.clientWidth,
    height: CURVES_HEIGHT,
    scales: { x: { time: false } },
    axes: lossAxes(),
    series: [{ label: "clock" }, ...series],
    hooks: { draw: [(plot) => placeDeaths(plot, marks)] },
  }, uPlot.join(curves.map((one) => [one.clocks, one.losses])), box);
}

export const fitCurves = (plot, box) => plot?.setSize({ width: box.clientWidth, height: CURVES_HEIGHT });

function placeDeaths(plot, marks) {
  plot.over.querySelectorAll(".outage").forEach((old) => old.remove());
  for (const clock of marks) {
    const band = document.createElement("span");
    band.className = "outage";
    band.style.left = `${plot.valToPos(clock, "x")}px`;
    plot.over.append(band);
  }
}
