// A map of the blocks, each cell as strong as what is saved of it is old.
import { byId, plural, setText } from "./dom.js";
import { Flights } from "./flights.js";

const CELL = 12;  // pixels, with its gap
const GAP = 2;
const STEPS = 5;  // that a person tells apart
const NEVER = -1;
let map = null;
let clock = 0;
const flights = new Flights();

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
new ResizeObserver(draw).observe(byId("block-map"));

// `blocks`: the map, when there is a new one. Ages are of the clock of the look.
export function showBlocks(blocks, state) {
  if (blocks) map = blocks;
  clock = state.clock;
  byId("block-section").hidden = !map?.blocks;
  if (blocks?.blocks) flights.take(blocks, draw);
  draw();
}

function draw() {
  if (!map?.blocks) return;
  const ages = map.cells.map((saved) => (saved === NEVER ? null : Math.max(0, clock - saved)));
  const known = ages.filter((age) => age !== null);
  const most = Math.max(1, ...known);
  paint(ages.map((age) => (age === null ? "never" : `age-${Math.min(STEPS - 1, Math.floor((STEPS * age) / (most + 1)))}`)));
  const never = ages.length - known.length;
  const each = map.width > 1 ? `; a cell is ${map.width} blocks, and as old as the oldest of them` : "";
  setText(byId("block-words"), `${plural(map.blocks, "block")}, the oldest saved ${plural(known.length ? most : 0, "clock")} ago`
    + (never ? `, ${plural(never, "cell")} never` : "") + each);
  setText(byId("block-most"), plural(most, "clock"));
  byId("block-never").hidden = !never;
}

const placeOf = (index, columns) => [(index % columns) * CELL, Math.floor(index / columns) * CELL];

function paint(kinds) {
  const canvas = byId("block-map");
  const columns = Math.max(1, Math.floor(canvas.clientWidth / CELL));
  const height = Math.ceil(kinds.length / columns) * CELL;
  const ratio = devicePixelRatio;
  canvas.style.height = `${height}px`;
  canvas.width = canvas.clientWidth * ratio;
  canvas.height = height * ratio;
  const style = getComputedStyle(document.documentElement);
  const colours = new Map();
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  kinds.forEach((kind, index) => {
    if (!colours.has(kind)) colours.set(kind, style.getPropertyValue(`--${kind}`).trim());
    pen.fillStyle = colours.get(kind);
    pen.fillRect(...placeOf(index, columns), CELL - GAP, CELL - GAP);
  });
  flights.paint(pen, (index) => placeOf(index, columns), CELL - GAP, canvas.clientWidth);
}
