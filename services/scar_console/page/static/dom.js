// Small words about elements, and numbers for people.

export const byId = (id) => document.getElementById(id);

export function setText(element, text) {
  if (element.textContent !== String(text)) element.textContent = text;
}

// Fills a table. Cells are text, or [text, class], or an element. Rows keep their elements from look to look, so that
// the focus and a selection stay. `columns`: names; a leading ">" is for numbers, a leading "~" for
// one that only readers of the screen need.
export function fillTable(table, columns, rows) {
  if (!table.tHead) {
    const head = table.createTHead().insertRow();
    for (const name of columns) {
      const cell = document.createElement("th");
      cell.scope = "col";
      const said = document.createElement("span");
      said.textContent = name.replace(/^[>~]/, "");
      if (name.startsWith("~")) said.className = "unseen";
      if (name.startsWith(">")) cell.className = "number";
      cell.append(said);
      head.append(cell);
    }
    table.createTBody();
  }
  table.hidden = !rows.length;
  const body = table.tBodies[0];
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((row, index) => {
    const line = body.rows[index] ?? body.insertRow();
    row.forEach((value, column) => {
      const cell = line.cells[column] ?? line.insertCell();
      fillCell(cell, value, columns[column].startsWith(">") ? "number" : "");
    });
  });
}

function fillCell(cell, value, kind) {
  if (value instanceof Element) {
    if (cell.firstChild !== value) cell.replaceChildren(value);
    return;
  }
  const [text, extra] = Array.isArray(value) ? value : [value, ""];
  setText(cell, text);
  cell.className = `${kind} ${extra}`.trim();
}

export function seconds(value) {
  if (value < 0 || value === null) return "-";
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  return value < 120 ? `${value.toFixed(1)} s` : `${Math.round(value / 60)} min`;
}

export function size(count) {
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (count < 1024) return unit === "B" ? `${count} B` : `${count.toFixed(1)} ${unit}`;
    count /= 1024;
  }
  return `${count.toFixed(1)} TiB`;
}

export function number(value, digits = 6) {
  if (value === null) return "-";
  if (value !== 0 && Math.abs(value) < 1e-3) return value.toExponential(digits - 1);
  return String(Number(value.toPrecision(digits)));
}

export const plural = (count, one, many = `${one}s`) => `${count} ${count === 1 ? one : many}`;

// Of a failure; the whole cluster may have died.
export function memberNames(failure, most = 4) {
  const shown = failure.members.slice(0, most);
  const more = failure.member_count - shown.length;
  return (more ? `${shown.join(", ")} and ${more} more` : shown.join(", ")) || (failure.rollback ? "rollback" : "damage");
}

// What a failure has cost, in clocks, as `scar failures` says it, or what is expected; empty: neither is known.
export function costText(failure) {
  const cost = failure.cost;
  if (!cost) return "";
  if (cost.at_most === null) return isExpected(cost) ? `about ${plural(Math.round(cost.predicted), "clock")} expected` : "";
  const exact = cost.more_than === cost.at_most - 1;
  return `${exact ? "" : "at most "}${plural(cost.at_most, "clock")}`;
}

// The next failure may have come before it could be measured.
const isExpected = (cost) => cost.predicted !== null && cost.more_than !== null;
