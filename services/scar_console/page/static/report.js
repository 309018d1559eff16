// A report that is a file: its curves, by the components of the page.
import { drawCurves, fitCurves } from "./curves.js";
import { byId } from "./dom.js";

const report = JSON.parse(byId("report-data").textContent);
let shown = null;

function drawReport() {
  shown?.destroy();
  shown = drawCurves(byId("comparison"), report.curves, report.marks);
}

drawReport();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawReport);
new ResizeObserver(() => fitCurves(shown, byId("comparison"))).observe(byId("comparison"));
