// Two rollouts of one task side by side, say of the policy before and after training; alike turns stand together.
(() => {
  const { sets, rows, get, make, option, load, instruction, alignTurns, sameLines, remember } = loopline;
  const byTask = new Map();
  for (const row of rows) {
    if (!byTask.has(row.task)) byTask.set(row.task, []);
    byTask.get(row.task).push(row);
  }
  let asked = 0;

  const describe = (row) => `#${row.number}, return ${row.return.toFixed(2)}, ${row.end.replaceAll("_", " ")}`;
  const rowsOf = (side) => (byTask.get(get("pair-task").value) || []).filter((row) => row.set.key === get(`${side}-set`).value);
  const chosen = (side) => rowsOf(side).find((row) => row.number === Number(get(`${side}-number`).value));

  function offerSets(side, wanted) {
    const played = new Set((byTask.get(get("pair-task").value) || []).map((row) => row.set));
    get(`${side}-set`).replaceChildren();
    for (const set of played) option(get(`${side}-set`), set.key, set.label);
    if (wanted && played.has(sets.get(wanted))) get(`${side}-set`).value = wanted;
    offerNumbers(side);
  }

  function offerNumbers(side, wanted) {
    get(`${side}-number`).replaceChildren();
    for (const row of rowsOf(side)) option(get(`${side}-number`), row.number, describe(row));
    if (wanted !== undefined) get(`${side}-number`).value = wanted;
  }

  function prepare(a, b) {
    get("pair-task").value = a.task;
    for (const [side, row] of [["a", a], ["b", b]]) {
      offerSets(side, row.set.key);
      offerNumbers(side, row.number);
    }
    get("pair-instruction").textContent = instruction(a.task);
  }

  function compare() {
    const [a, b] = [chosen("a"), chosen("b")];
    const turn = ++asked;
    if (!a || !b) return get("pair").replaceChildren(make("p", "hint", "No rollouts of this task."));
    remember("compare", a.task, a.set.key, a.number, b.set.key, b.number);
    return Promise.all([load(a.set), load(b.set)]).then(
      ([left, right]) => turn === asked && fill(a, b, left, right),
      (error) => turn === asked && get("pair").replaceChildren(make("p", "fail", error.message)),
    );
  }

  // [what the agent said, what the world answered] per turn.
  function turnsOf(row, data) {
    const turns = [];
    data.rollouts[row.place].segments.forEach(([turn, , place], i) => {
      if (turn >= 0) turns.push({ said: data.texts[place], seen: "", number: turn });
      else if (i > 0) turns[turns.length - 1].seen = data.texts[place].trim();
    });
    return turns;
  }

  function fill(a, b, left, right) {
    const [before, after] = [turnsOf(a, left), turnsOf(b, right)];
    const parts = [[head("A", a, left), head("B", b, right)]];
    for (const [i, j] of alignTurns(before.map((turn) => turn.said), after.map((turn) => turn.said))) {
      parts.push(...pairOf(a, before[i], left, b, after[j], right));
    }
    get("pair").replaceChildren(...parts.map((pair) => make("div", "pair", ...pair)));
  }

  function head(name, row, data) {
    return make("div", "side", make("h3", "", `${name}: ${row.set.label} #${row.number}`), make("p", "hint", loopline.facts(row)), loopline.tests(data.rollouts[row.place]));
  }

  function pairOf(a, x, left, b, y, right) {
    const said = x && y ? sameLines(x.said, y.said) : [];
    const seen = x && y ? sameLines(x.seen, y.seen) : [];
    const agent = [cell("agent", "A", x, "said", said[0], a, left), cell("agent", "B", y, "said", said[1], b, right)];
    const world = [cell("world", "A", x, "seen", seen[0], a, left), cell("world", "B", y, "seen", seen[1], b, right)];
    return (x && x.seen) || (y && y.seen) ? [agent, world] : [agent];
  }

  function cell(kind, name, turn, field, same, row, data) {
    if (!turn || !turn[field]) return make("div", "side empty");
    const failed = kind === "agent" && data.rollouts[row.place].failed_turns.includes(turn.number);
    const title = kind === "agent" ? `${name}, turn ${turn.number + 1}${failed ? ", its code failed" : ""}` : `${name}, observation`;
    const pre = make("pre");
    turn[field].split("\n").forEach((text, i) => {
      const line = loopline.put(make("span", !same || same[i] ? "" : "differs"), text);
      pre.append(line, "\n");
    });
    return make("div", `side segment ${kind}${failed ? " failed" : ""}`, make("div", "", title), pre);
  }

  // The other checkpoint that says most: the other policy of the same split, else the latest that played the task.
  function compareFrom(row) {
    const others = byTask.get(row.task).filter((other) => other.set !== row.set);
    const twin = others.find((other) => other.set.name === row.set.name);
    const other = twin || others[others.length - 1] || row;
    if (other.set.key.endsWith(":base")) prepare(other, row);
    else prepare(row, other);
    return compare().then(() => get("compare").scrollIntoView());
  }

  // A task that the base fails and the selected policy solves is what a reader wants to see first.
  function example() {
    const gained = rows.find((row) => row.set.key.endsWith(":selected") && row.success && twinOf(row) && !twinOf(row).success);
    const row = gained || rows[0];
    if (!row) return;
    prepare(gained ? twinOf(row) : row, row);
  }
  const twinOf = (row) => byTask.get(row.task).find((other) => other.set.name === row.set.name && other.set.key.endsWith(":base"));

  for (const task of [...byTask.keys()].sort()) option(get("task-ids"), task, instruction(task));
  get("pair-task").addEventListener("change", () => {
    for (const side of ["a", "b"]) offerSets(side, get(`${side}-set`).value);
    get("pair-instruction").textContent = instruction(get("pair-task").value);
    compare();
  });
  for (const side of ["a", "b"]) {
    get(`${side}-set`).addEventListener("change", () => (offerNumbers(side), compare()));
    get(`${side}-number`).addEventListener("change", compare);
  }
  get("pair-form").addEventListener("submit", (event) => (event.preventDefault(), compare()));
  loopline.compareFrom = compareFrom;
  loopline.compare = (a, b) => (prepare(a, b), compare());
  example();
})();
