// Headings sort their table; columns marked for it get a choice above, names a search.
for (const table of document.querySelectorAll("main .scroll > table:not(.cell-sets)")) {
  const body = table.tBodies[0];
  const head = table.tHead.rows[0];
  if (!body || body.rows.length < 2) continue;
  const heads = [...head.cells];
  const number = (text) => Number.parseFloat(text.replaceAll(",", "").replace("\u2212", "-"));
  // An exact number stands in data-sort, or in a title where the text has a unit, as in 1.00 M.
  const valued = (row, column) => {
    const cell = row.cells[column];
    if (cell.querySelector(".blank")) return null;
    if (cell.dataset.sort !== undefined) return Number(cell.dataset.sort);
    const text = cell.textContent.trim();
    if (!heads[column].classList.contains("number")) return text;
    const title = cell.querySelector("[title]")?.title ?? "";
    const found = number(/^[\d,.]+$/.test(title) ? title : text);
    return Number.isNaN(found) ? null : found;
  };
  const first = new Map([...body.rows].map((row, place) => [row, place]));
  const sort = (column, sign) => {
    const rows = [...body.rows].map((row) => [valued(row, column), row]);
    rows.sort(([a, one], [b, other]) => {
      const tied = first.get(one) - first.get(other);
      if (a === null || b === null) return (a === null) - (b === null) || tied;
      return sign * (typeof a === "string" ? a.localeCompare(b) : a - b) || tied;
    });
    body.append(...rows.map(([, row]) => row));
    for (const row of body.rows) row.classList.remove("opens");
  };
  heads.forEach((cell, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...cell.childNodes);
    cell.append(button);
    button.addEventListener("click", () => {
      const falls = cell.getAttribute("aria-sort") === "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", falls ? "descending" : "ascending");
      sort(column, falls ? -1 : 1);
    });
  });

  const chosen = heads.map((cell, column) => column).filter((column) => "filter" in heads[column].dataset);
  if (!chosen.length) continue;
  const bar = document.createElement("div");
  bar.className = "filters";
  bar.setAttribute("role", "group");
  bar.setAttribute("aria-label", "Which rows are shown");
  const field = (words, control) => {
    const label = document.createElement("label");
    label.append(words, control);
    bar.append(label);
    return control;
  };
  const search = field("Design ", document.createElement("input"));
  search.type = "search";
  search.placeholder = "part of a name";
  const kind = (row, column) => {
    const cell = row.cells[column];
    return cell.querySelector(".blank") ? "none" : (cell.dataset.kind ?? cell.textContent.trim());
  };
  const selects = chosen.flatMap((column) => {
    const kinds = [...new Set([...body.rows].map((row) => kind(row, column)))];
    if (kinds.length < 2) return [];
    const select = document.createElement("select");
    for (const text of ["all", ...kinds]) {
      const option = document.createElement("option");
      option.textContent = text;
      option.value = text === "all" ? "" : `=${text}`;
      select.append(option);
    }
    field(`${heads[column].textContent.trim()} `, select);
    return [[column, select]];
  });
  const clear = document.createElement("button");
  clear.type = "button";
  clear.textContent = "Show all rows";
  const told = document.createElement("output");
  const apply = () => {
    const part = search.value.trim().toLowerCase();
    let shown = 0;
    for (const row of body.rows) {
      const named = row.cells[0].textContent.toLowerCase().includes(part);
      const fits = selects.every(([column, { value }]) => !value || value === `=${kind(row, column)}`);
      row.hidden = !(named && fits);
      shown += !row.hidden;
    }
    const all = shown === body.rows.length;
    clear.hidden = all;
    told.textContent = all ? "" : `${shown} of ${body.rows.length} rows`;
  };
  search.addEventListener("input", apply);
  for (const [, select] of selects) select.addEventListener("change", apply);
  clear.addEventListener("click", () => {
    search.value = "";
    for (const [, select] of selects) select.value = "";
    apply();
    search.focus();
  });
  bar.append(told, clear);
  clear.hidden = true;
  table.parentElement.before(bar);
}
