for (const table of document.querySelectorAll("table.stacks")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  // An exact number stands in a title where the text has a unit, as in 1.00 M.
  const number = (text) => Number.parseFloat(text.replaceAll(",", "").replace("\u2212", "-"));
  const valued = (row, column) => {
    const cell = row.cells[column];
    const text = cell.textContent.trim();
    if (cell.querySelector(".blank")) return null;
    if (!heads[column].classList.contains("number")) return text;
    const title = cell.querySelector("[title]")?.title ?? "";
    return number(/^[\d,.]+$/.test(title) ? title : text);
  };
  const sort = (column, sign) => {
    const rows = [...body.rows].map((row) => [valued(row, column), row]);
    rows.sort(([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null);
      return sign * (typeof a === "string" ? a.localeCompare(b) : a - b);
    });
    body.append(...rows.map(([, row]) => row));
    for (const row of body.rows) row.classList.remove("opens");
  };
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const falls = head.getAttribute("aria-sort") === "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", falls ? "descending" : "ascending");
      sort(column, falls ? -1 : 1);
    });
  });
}
