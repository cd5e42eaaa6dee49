// Tables that sort: a heading becomes a button; numbers compare by data-value, everything else as text.
"use strict";
(function () {
  function key(row, column) {
    const cell = row.cells[column];
    const number = cell.dataset.value;
    if (number === undefined) return cell.textContent.trim().toLowerCase();
    return number === "" ? null : Number(number);
  }
  function compare(a, b, sign) {
    if (a === null || b === null) return (a === null) - (b === null); // what is missing stays last
    if (typeof a === "number" && typeof b === "number") return sign * (a - b);
    return sign * String(a).localeCompare(String(b), undefined, { numeric: true });
  }
  function sort(table, column) {
    const headings = table.tHead.rows[0].cells;
    const down = headings[column].getAttribute("aria-sort") === "ascending";
    for (const heading of headings) heading.removeAttribute("aria-sort");
    headings[column].setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = Array.from(table.tBodies[0].rows, (row) => [key(row, column), row]);
    rows.sort((a, b) => compare(a[0], b[0], down ? -1 : 1));
    table.tBodies[0].append(...rows.map((pair) => pair[1]));
  }
  for (const table of document.querySelectorAll("table.sortable")) {
    Array.from(table.tHead.rows[0].cells).forEach((heading, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = heading.textContent;
      heading.replaceChildren(button);
      button.addEventListener("click", () => sort(table, column));
    });
  }
})();
