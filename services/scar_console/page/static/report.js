// A report that is a file: its panels, by the components of the page.
import { byId } from "./dom.js";
import { drawPanel, fitPanel } from "./panels.js";

const panels = JSON.parse(byId("report-data").textContent);
const shown = new Map();
const boxOf = (index) => byId(`panel-${index}`);

function drawReport() {
  panels.forEach((panel, index) => {
    shown.get(index)?.destroy();
    shown.set(index, drawPanel(boxOf(index), panel));
  });
}

drawReport();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawReport);
panels.forEach((_, index) => new ResizeObserver(() => fitPanel(shown.get(index), boxOf(index))).observe(boxOf(index)));
