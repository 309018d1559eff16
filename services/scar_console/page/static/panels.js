// One pair of axes for several series: lines, marks with intervals, or many points, told apart by colour, dash
// and shape.
/* global uPlot */
import { lossAxes } from "./chart.js";

const PANEL_HEIGHT = 280;
const STROKES = ["curve", "fail", "heal", "warn", "dim"];  // of the theme; then again, dashed
const DASHES = [[], [8, 4], [2, 4], [12, 4, 2, 4]];
const MARK = 4;  // half of its size, in pixels
const POINT = 2;
const CAP = 4;
const LONG_NAMES = 5;  // ticks, from which on their names are written at a slant
const LOGARITHMIC = 3;  // for uPlot

// `panel`: x and y are the names of its axes; `series`: label, x, y, and perhaps low and high, the ends of
// intervals, with the style "line", "dashed", "marks" or "points"; `ticks`: places on the x axis and their
// names; `scale`, `y_scale`: "linear" or "log"; `zero`: the y axis shows 0; `marks`: places at which something
// died. Returns the plot.
export function drawPanel(box, panel) {
  const ticks = panel.ticks ?? [];
  const [across, up] = lossAxes();
  return new uPlot({
    width: box.clientWidth,
    height: PANEL_HEIGHT,
    legend: { show: panel.series.some((one) => one.label) },
    scales: { x: xScale(panel, ticks), y: yScale(panel) },
    axes: [{ ...across, ...(ticks.length ? namedTicks(ticks) : {}), label: panel.x || null, labelSize: 20 }, up],
    series: [{ label: panel.x || "x", value: (_plot, at) => nameAt(ticks, at) }, ...panel.series.map(drawnSeries)],
    hooks: { draw: [(plot) => panel.series.forEach((one, index) => drawMarks(plot, one, index)), (plot) => placeDeaths(plot, panel.marks ?? [])] },
  }, uPlot.join(panel.series.map(ascending)), box);
}

export const fitPanel = (plot, box) => plot?.setSize({ width: box.clientWidth, height: PANEL_HEIGHT });

const strokeOf = (index) => getComputedStyle(document.documentElement).getPropertyValue(`--${STROKES[index % STROKES.length]}`).trim();
const colourOf = (one, index) => strokeOf(one.style === "dashed" ? STROKES.indexOf("dim") : index);
const drawsLine = (one) => !["marks", "points"].includes(one.style);
const nameAt = (ticks, at) => (at === null ? "" : ticks.find(([place]) => place === at)?.[1] ?? String(Number(at.toPrecision(6))));

function drawnSeries(one, index) {
  const line = drawsLine(one);
  return {
    label: one.label || "value",
    stroke: colourOf(one, index),
    dash: one.style === "dashed" ? [4, 4] : DASHES[Math.floor(index / STROKES.length)],
    width: 2,
    spanGaps: true,
    paths: line ? undefined : () => null,
    points: { show: line && one.x.length < 2 },
  };
}

// As the library wants it: by ascending x, each once.
function ascending(one) {
  const order = [...one.x.keys()].sort((a, b) => one.x[a] - one.x[b]);
  const kept = order.filter((at, place) => place === 0 || one.x[at] !== one.x[order[place - 1]]);
  return [kept.map((at) => one.x[at]), kept.map((at) => one.y[at])];
}

function xScale(panel, ticks) {
  if (ticks.length) {
    const places = ticks.map(([place]) => place).sort((one, other) => one - other);
    const room = 0.5 * places.slice(1).reduce((least, place, index) => Math.min(least, place - places[index]), 1);
    return { time: false, range: () => [places[0] - room, places.at(-1) + room] };
  }
  return { time: false, distr: panel.scale === "log" ? LOGARITHMIC : 1 };
}

function yScale(panel) {
  const distr = panel.y_scale === "log" ? LOGARITHMIC : 1;
  const values = panel.series.flatMap((one) => [...one.y, ...(one.low ?? []), ...(one.high ?? [])])
    .filter((value) => value !== null && (distr === 1 || value > 0));
  if (!values.length || (!panel.zero && panel.series.every((one) => drawsLine(one) && !one.low?.length))) return { distr };
  const low = values.reduce((a, b) => Math.min(a, b), panel.zero ? 0 : Infinity);
  const high = values.reduce((a, b) => Math.max(a, b), panel.zero ? 0 : -Infinity);
  return { distr, range: () => (distr === 1 ? uPlot.rangeNum(low, high, 0.1, true) : uPlot.rangeLog(low, high, 10, true)) };
}

function namedTicks(ticks) {
  const many = ticks.length >= LONG_NAMES;
  return {
    splits: () => ticks.map(([place]) => place),
    values: () => ticks.map(([, name]) => name),
    ...(many ? { rotate: -35, size: 90 } : {}),
  };
}

// What the library has no shapes for: intervals, and marks that are no line.
function drawMarks(plot, one, index) {
  const pen = plot.ctx;
  const ratio = devicePixelRatio;
  pen.save();
  pen.beginPath();
  pen.rect(plot.bbox.left, plot.bbox.top, plot.bbox.width, plot.bbox.height);
  pen.clip();
  pen.strokeStyle = pen.fillStyle = colourOf(one, index);
  pen.lineWidth = ratio;
  pen.setLineDash([]);
  pen.globalAlpha = one.style === "points" ? 0.6 : 1;
  one.x.forEach((at, place) => {
    if (one.y[place] === null) return;
    const x = plot.valToPos(at, "x", true);
    if (one.low?.length) drawInterval(pen, x, plot.valToPos(one.low[place], "y", true), plot.valToPos(one.high[place], "y", true), CAP * ratio);
    if (drawsLine(one) && !one.low?.length) return;
    const half = (one.style === "points" ? POINT : MARK) * ratio;
    SHAPES[one.style === "points" ? 0 : index % SHAPES.length](pen, x, plot.valToPos(one.y[place], "y", true), half);
  });
  pen.restore();
}

function drawInterval(pen, x, low, high, cap) {
  pen.beginPath();
  pen.moveTo(x, low);
  pen.lineTo(x, high);
  for (const end of [low, high]) {
    pen.moveTo(x - cap, end);
    pen.lineTo(x + cap, end);
  }
  pen.stroke();
}

const polygon = (pen, corners) => {
  pen.beginPath();
  corners.forEach(([x, y], index) => (index ? pen.lineTo(x, y) : pen.moveTo(x, y)));
  pen.fill();
};
const SHAPES = [
  (pen, x, y, half) => { pen.beginPath(); pen.arc(x, y, half, 0, 2 * Math.PI); pen.fill(); },
  (pen, x, y, half) => pen.fillRect(x - half, y - half, 2 * half, 2 * half),
  (pen, x, y, half) => polygon(pen, [[x, y - half], [x + half, y + half], [x - half, y + half]]),
  (pen, x, y, half) => polygon(pen, [[x, y - half], [x + half, y], [x, y + half], [x - half, y]]),
  (pen, x, y, half) => polygon(pen, [[x, y + half], [x + half, y - half], [x - half, y - half]]),
];

function placeDeaths(plot, marks) {
  plot.over.querySelectorAll(".outage").forEach((old) => old.remove());
  for (const at of marks) {
    const band = document.createElement("span");
    band.className = "outage";
    band.style.left = `${plot.valToPos(at, "x")}px`;
    plot.over.append(band);
  }
}
