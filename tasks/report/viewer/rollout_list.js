// The list of rollouts: search, filter, sort; a click shows one.
(() => {
  const PAGE = 200;
  const { sets, rows, get, make, option, advantage, instruction, text } = loopline;
  let found = [];
  let shown = 0;
  let order = { column: "", sign: 1 };

  const matches = {
    set: (row, wanted) => row.set.key === wanted,
    find: (row, wanted) => wanted.toLowerCase().split(/\s+/).every((word) => text(row.task).includes(word)),
    end: (row, wanted) => row.end === wanted,
    outcome: (row, wanted) => row.success === (wanted === "success"),
    low: (row, wanted) => row.return >= Number(wanted),
    high: (row, wanted) => row.return <= Number(wanted),
    kept: (row, wanted) =>
      wanted === "dropped" ? row.advantage === null : wanted === "+" ? row.advantage > 0 : row.advantage < 0,
  };
  const columns = {
    task: (row) => row.task,
    number: (row) => row.number,
    return: (row) => row.return,
    advantage: (row) => (typeof row.advantage === "number" ? row.advantage : -Infinity),
    turns: (row) => row.turns,
    end: (row) => row.end,
  };

  function filter() {
    const wanted = Object.keys(matches).map((id) => [matches[id], get(id).value.trim()]).filter((pair) => pair[1]);
    found = rows.filter((row) => wanted.every(([match, value]) => match(row, value)));
    if (order.column) found.sort(byColumn);
    shown = 0;
    get("rows").replaceChildren();
    get("list").classList.toggle("one-set", get("set").value !== "");
    get("count").textContent = `${found.length} of ${rows.length} rollouts`;
    more();
  }

  function byColumn(a, b) {
    const [x, y] = [columns[order.column](a), columns[order.column](b)];
    return order.sign * (x < y ? -1 : x > y ? 1 : 0);
  }

  function sortBy(head) {
    const column = head.dataset.column;
    order = { column, sign: order.column === column ? -order.sign : 1 };
    document.querySelectorAll("#list th[aria-sort]").forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", order.sign > 0 ? "ascending" : "descending");
    filter();
  }

  function more() {
    const part = document.createDocumentFragment();
    for (const row of found.slice(shown, shown + PAGE)) part.append(line(row));
    get("rows").append(part);
    shown = Math.min(shown + PAGE, found.length);
    get("more").hidden = shown === found.length;
  }

  function line(row) {
    const task = make("td", "task", row.task, make("small", "", instruction(row.task)));
    task.title = instruction(row.task);
    const element = make(
      "tr",
      "",
      make("td", "set", row.set.label),
      task,
      make("td", "", String(row.number)),
      make("td", row.success ? "pass" : "", row.return.toFixed(2)),
      make("td", "", advantage(row)),
      make("td", "", String(row.turns)),
      make("td", "end", row.end.replaceAll("_", " ")),
    );
    element.tabIndex = 0;
    element.addEventListener("click", () => choose(row, element));
    element.addEventListener("keydown", (event) => {
      const next = { ArrowDown: element.nextElementSibling, ArrowUp: element.previousElementSibling }[event.key];
      if (event.key === "Enter") choose(row, element);
      if (!next) return;
      event.preventDefault();
      next.focus();
      next.click();
    });
    return element;
  }

  function choose(row, element) {
    document.querySelectorAll("tr.chosen").forEach((other) => other.classList.remove("chosen"));
    element.classList.add("chosen");
    return loopline.show(row);
  }

  // Lists the rollouts of one task in one set, those of longer names too, and shows the one with this number, or the first.
  function visit(set, task, number) {
    for (const id of Object.keys(matches)) get(id).value = "";
    get("set").value = set;
    get("find").value = task;
    filter();
    const place = Math.max(0, found.findIndex((row) => row.task === task && (number === undefined || row.number === number)));
    if (found.length) choose(found[place], get("rows").children[place]);
    get("rollouts").scrollIntoView();
  }

  for (const set of sets.values()) option(get("set"), set.key, set.label);
  option(get("set"), "", "all");
  for (const end of [...new Set(rows.map((row) => row.end))].sort()) option(get("end"), end, end.replaceAll("_", " "));
  get("filters").addEventListener("input", filter);
  get("filters").addEventListener("submit", (event) => event.preventDefault());
  get("filters").addEventListener("reset", () => setTimeout(filter));
  get("more").addEventListener("click", more);
  for (const head of document.querySelectorAll("#list th[data-column]")) {
    head.addEventListener("click", () => sortBy(head));
    head.addEventListener("keydown", (event) => event.key === "Enter" && sortBy(head));
  }
  loopline.visit = visit;
  filter();
})();
