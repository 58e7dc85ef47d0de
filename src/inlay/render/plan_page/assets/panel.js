"use strict";

/* The panel beside the graph: tabs, details, and tables that are sorted and lead to the graph. */

const tabs = [...document.querySelectorAll("[role=tab]")];

function showTab(name, takesFocus = false) {
  for (const tab of tabs) {
    const isShown = tab.id === `tab-${name}`;
    tab.setAttribute("aria-selected", String(isShown));
    tab.tabIndex = isShown ? 0 : -1;
    document.getElementById(tab.getAttribute("aria-controls")).hidden = !isShown;
    if (isShown && takesFocus) tab.focus();
  }
}

const firstDetails = [...document.getElementById("details").childNodes];

/* Show all that is known of marks; the first text again if there are none. */
function showDetails(marks) {
  const details = document.getElementById("details");
  if (marks.length) details.replaceChildren(describeMarks(marks));
  else details.replaceChildren(...firstDetails);
  showTab("details");
}

/* Select the steps of a row, or one of the time line, and show the first of them. */
function selectSteps(steps) {
  const those = new Set(steps);
  const marks = graph.marks.flatMap((mark, i) => (those.has(mark.step) ? [i] : []));
  selectMarks(marks);
  reveal(nodeOf(marks[0]), true);
}

/* Sort a table by a column: numbers from the largest on, texts by their letters; the other way the second time. */
function sortTable(head) {
  const table = head.closest("table");
  const column = head.cellIndex;
  const body = table.tBodies[0];
  const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
  const rows = [...body.rows];
  const isNumeric = rows.some((row) => "value" in row.cells[column].dataset);
  const order = head.getAttribute("aria-sort");
  const isDescending = order ? order === "ascending" : isNumeric;
  const number = (row) => Number(row.cells[column].dataset.value?.replace("inf", "Infinity") ?? -Infinity);
  rows.sort((a, b) => (isNumeric ? number(a) - number(b) : key(a).localeCompare(key(b), "en", { numeric: true })));
  if (isDescending) rows.reverse();
  for (const other of table.querySelectorAll("th[aria-sort]")) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", isDescending ? "descending" : "ascending");
  body.append(...rows);
}

function followTable(event) {
  const head = event.target.closest("th button");
  if (head) {
    sortTable(head.closest("th"));
    return;
  }
  const row = event.target.closest("tr[data-steps]");
  if (row) selectSteps(numbersOf(row, "steps"));
}

function switchTab(event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const next = tabs[(tabs.indexOf(event.target) + step + tabs.length) % tabs.length];
  showTab(next.id.replace("tab-", ""), true);
  event.preventDefault();
}

for (const tab of tabs) {
  tab.addEventListener("click", () => showTab(tab.id.replace("tab-", "")));
  tab.addEventListener("keydown", switchTab);
}
for (const table of document.querySelectorAll("aside table")) table.addEventListener("click", followTable);
