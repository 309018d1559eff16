// Blocks that change hands, on their way to their places in the map: from where each comes, by colour and word.
import { byId, plural } from "./dom.js";

const SECONDS = 2.5;
const SPREAD = 0.4;  // of that time, over which they set off
// In the order of their ports, from left to right.
const SOURCES = [["object", "the checkpoint"], ["worker", "workers"], ["replica", "copies"], ["donor", "live shards"], ["initial", "x(0)"]];
const still = matchMedia("(prefers-reduced-motion: reduce)");

export class Flights {
  constructor() {
    this.epoch = null;
    this.began = 0;
    this.cells = [];  // [cell, source, its turn from 0 to 1]
  }

  // Of a new map: its moves set off, unless they are older than the page. `redraw`: draws the map once more.
  take(map, redraw) {
    if (map.epoch === this.epoch) return;
    const seen = this.epoch !== null;
    this.epoch = map.epoch;
    showWords(map);
    if (!seen) return;
    this.cells = SOURCES.flatMap(([source]) => (map.moved[source] ?? []).map((cell) => [cell, source]));
    this.cells = this.cells.map(([cell, source], index) => [cell, source, index / this.cells.length]);
    this.began = performance.now();
    const step = () => {
      redraw();
      if (this.underway) requestAnimationFrame(step);
    };
    if (this.cells.length) requestAnimationFrame(step);
  }

  get underway() {
    return performance.now() < this.began + 1000 * SECONDS;
  }

  // `placeOf`: where a cell is, in pixels of the map; `width`: of the map.
  paint(pen, placeOf, size, width) {
    if (!this.underway) return;
    const style = getComputedStyle(document.documentElement);
    const ports = new Map(SOURCES.map(([source], index) => [source, {
      x: ((index + 0.5) / SOURCES.length) * width, colour: style.getPropertyValue(`--${source}`).trim(),
    }]));
    const time = (performance.now() - this.began) / (1000 * SECONDS);
    for (const [cell, source, turn] of this.cells) {
      const way = Math.min(1, Math.max(0, (time - SPREAD * turn) / (1 - SPREAD)));
      const eased = still.matches ? 1 : 1 - (1 - way) ** 3;
      const [x, y] = placeOf(cell);
      const port = ports.get(source);
      pen.fillStyle = port.colour;
      pen.fillRect(port.x + (x - port.x) * eased, y * eased, size, size);
    }
  }
}

function showWords(map) {
  const told = SOURCES.filter(([source]) => map.moved[source]?.length);
  const each = map.width > 1 ? "cell" : "block";
  byId("block-moves").replaceChildren(...(told.length ? [`Epoch ${map.epoch} moved`] : []), ...told.flatMap(([source, words]) => {
    const colour = document.createElement("i");
    colour.style.background = `var(--${source})`;
    return [colour, `${plural(map.moved[source].length, each)} from ${words}`];
  }));
}
