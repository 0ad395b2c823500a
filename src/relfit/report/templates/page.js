"use strict";
// Sorting by a click on a column's title, filtering the models, copying texts. Without it the page shows the same.
(() => {
  const make = (tag, text, settings) => Object.assign(document.createElement(tag), { textContent: text }, settings);
  const number = (text) => {
    const value = parseFloat(text.replace("−", "-").replace("<", ""));
    return Number.isNaN(value) ? null : value;
  };
  const key = (row, column) => {
    const cell = row.children[column];
    const text = cell.dataset.key ?? cell.textContent.trim();
    return text === "inf" ? Infinity : number(text) ?? text.toLowerCase();
  };
  const compare = (a, b) => (typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1);

  for (const table of document.querySelectorAll("table.sortable")) {
    const body = table.tBodies[0];
    if (body.rows.length < 3) continue;
    [...table.tHead.rows[0].cells].forEach((title, column) => {
      const button = make("button", "", { type: "button", className: "sort" });
      button.append(...title.childNodes);
      title.append(button);
      button.addEventListener("click", () => {
        const down = title.getAttribute("aria-sort") === "ascending";
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        title.setAttribute("aria-sort", down ? "descending" : "ascending");
        const rows = [...body.rows].sort((a, b) => compare(key(a, column), key(b, column)));
        body.append(...(down ? rows.reverse() : rows));
      });
    });
  }

  const models = document.querySelector("table.models.sortable");
  if (models && models.tBodies[0].rows.length > 5) {
    const box = make("div", "", { className: "filter" });
    const label = make("label", "Show models whose name contains ");
    const text = make("input", "", { type: "search", autocomplete: "off" });
    const which = make("label", "and whose verdict is ");
    const verdict = make("select", "");
    verdict.append(make("option", "any", { value: "" }));
    for (const part of document.querySelectorAll(".tally > span"))
      verdict.append(make("option", part.textContent.replace(/^\W*\d+\s*/u, ""), { value: part.className }));
    const found = make("output", "");
    label.append(text);
    which.append(verdict);
    box.append(label, which, found);
    models.before(box);
    const filter = () => {
      const wanted = text.value.trim().toLowerCase();
      const kept = new Set();
      for (const row of models.tBodies[0].rows)
        if (row.cells[0].textContent.toLowerCase().includes(wanted) && (!verdict.value || row.className === verdict.value))
          kept.add(row.dataset.model);
      for (const row of document.querySelectorAll("tr[data-model]")) row.hidden = !kept.has(row.dataset.model);
      const all = models.tBodies[0].rows.length;
      found.textContent = kept.size < all ? `${kept.size} of ${all} models` : "";
    };
    text.addEventListener("input", filter);
    verdict.addEventListener("change", filter);
  }

  for (const pre of document.querySelectorAll("#settings ~ pre, #settings ~ details > pre")) {
    const button = make("button", "Copy", { type: "button", className: "copy" });
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(pre.textContent);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(pre);
        button.textContent = "Selected: press Ctrl+C";
      }
      setTimeout(() => (button.textContent = "Copy"), 2000);
    });
    pre.before(button);
  }
})();
