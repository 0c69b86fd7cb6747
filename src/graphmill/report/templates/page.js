"use strict";
// A click on the head of a column sorts its table: rising, then falling. Numbers by value, texts by letters; empty cells last.
for (const table of document.querySelectorAll("div.wide table")) {
  const heads = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  const key = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.order === undefined ? cell.textContent.trim() : Number(cell.dataset.order);
  };
  const isEmpty = (value) => value === "" || value === "-" || Number.isNaN(value);
  const compare = (one, other) =>
    typeof one === "number" && typeof other === "number"
      ? one - other
      : String(one).localeCompare(String(other), "en", { numeric: true });
  heads.forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const falling = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((each) => each.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", falling ? "descending" : "ascending");
      const rows = [...body.rows].sort((one, other) => {
        const [first, second] = [key(one, column), key(other, column)];
        if (isEmpty(first) || isEmpty(second)) return isEmpty(first) - isEmpty(second);
        return falling ? compare(second, first) : compare(first, second);
      });
      body.append(...rows);
    });
  });
}
// A link to a folded section opens it, and paper shows what is folded.
const open = (section) => section?.querySelectorAll("details").forEach((each) => (each.open = true));
const follow = () => open(document.getElementById(location.hash.slice(1)));
addEventListener("hashchange", follow);
addEventListener("beforeprint", () => open(document.body));
follow();
