"use strict";
for (const table of document.querySelectorAll("table.sorted")) {
  const body = table.tBodies[0];
  const value = (row, i) => row.cells[i].dataset.value ?? row.cells[i].textContent;
  [...table.tHead.rows[0].cells].forEach((head, i) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const order = (a, b) => {
        const [x, y] = [value(a, i), value(b, i)];
        const [m, n] = [Number(x), Number(y)];
        const sign = Number.isNaN(m) || Number.isNaN(n) ? x.localeCompare(y) : m - n;
        return down ? -sign : sign;
      };
      body.append(...[...body.rows].sort(order));
    });
  });
  const search = document.querySelector(`input[data-table="${table.id}"]`);
  search?.addEventListener("input", () => {
    const wanted = search.value.toLowerCase();
    for (const row of body.rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
  });
}
