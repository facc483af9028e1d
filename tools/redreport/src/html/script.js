"use strict";
// What is sorted and filtered is also in the address, so that a view can be passed on.
const state = new URLSearchParams(location.hash.slice(1));
const filter = document.getElementById("filter");

function sort(table, column, descending) {
  const key = (row) => row.cells[column].dataset.key ?? row.cells[column].textContent;
  const heads = table.tHead.rows[0].cells;
  const isNumber = heads[column].classList.contains("number");
  const order = (one, other) => isNumber ? Number(key(one)) - Number(key(other)) : key(one).localeCompare(key(other));
  const rows = [...table.tBodies[0].rows].sort((one, other) => descending ? order(other, one) : order(one, other));
  table.tBodies[0].append(...rows);
  for (const head of heads) head.removeAttribute("aria-sort");
  heads[column].setAttribute("aria-sort", descending ? "descending" : "ascending");
}

function show() {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0, all = 0;
  for (const row of document.querySelectorAll("table.filtered tbody tr")) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word));
    all += 1;
    shown += row.hidden ? 0 : 1;
  }
  document.getElementById("shown").textContent = words.length ? `${shown} of ${all} rows` : "";
}

function remember() {
  history.replaceState(null, "", "#" + state);
}

for (const table of document.querySelectorAll("table.sorted")) {
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const descending = head.getAttribute("aria-sort") === "ascending";
      sort(table, column, descending);
      state.set("sort", `${table.id}:${column}:${descending ? "down" : "up"}`);
      remember();
    });
  });
}
filter.addEventListener("input", () => {
  state.set("filter", filter.value);
  remember();
  show();
});
filter.value = state.get("filter") ?? "";
const [id, column, direction] = (state.get("sort") ?? "").split(":");
const wanted = document.getElementById(id);
if (wanted?.tHead?.rows[0].cells[column]) sort(wanted, Number(column), direction === "down");
show();
