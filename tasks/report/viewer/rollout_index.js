// Every rollout in one line each (rollouts/index.js); its transcript is loaded when it is asked for.
// What agents wrote is hostile: it enters the page only as text nodes, never as HTML.
const loopline = (() => {
  const index = window.loopline_index || {};
  const tasks = Object.assign({}, ...Object.values(window.loopline_tasks || {}));
  const sets = new Map();
  const rows = [];

  // A file of score rollouts holds two policies; in the page each is a set of its own.
  function addFile(name, { label, columns }) {
    const several = new Set(columns.policy || []).size > 1;
    columns.task_id.forEach((task, place) => {
      const key = several ? `${name}:${columns.policy[place]}` : name;
      if (!sets.has(key)) sets.set(key, { key, name, label: several ? `${label}, ${columns.policy[place]}` : label, rows: [] });
      const row = { set: sets.get(key), place, task, number: columns.rollout_index[place] };
      row.difficulty = columns.difficulty[place];
      row.return = columns.return[place];
      row.success = columns.success[place];
      row.end = columns.end_reason[place];
      row.turns = columns.turns[place];
      row.advantage = columns.advantage && columns.advantage[place]; // undefined: none is computed; null: dropped; or text
      row.set.rows.push(row);
      rows.push(row);
    });
  }
  for (const [name, file] of Object.entries(index)) addFile(name, file);

  const instruction = (task) => tasks[task] || "";
  const searchable = new Map();
  function text(task) {
    if (!searchable.has(task)) searchable.set(task, `${task} ${instruction(task)}`.toLowerCase());
    return searchable.get(task);
  }

  function load(set) {
    const loaded = (window.loopline_rollouts || {})[set.name];
    if (loaded) return Promise.resolve(loaded);
    return new Promise((resolve, reject) => {
      const script = make("script");
      script.src = `rollouts/${set.name}.js`;
      script.onload = () => resolve(window.loopline_rollouts[set.name]);
      script.onerror = () => reject(new Error(`${script.src} is missing: keep the whole report folder together`));
      document.head.append(script);
    });
  }

  const get = (id) => document.getElementById(id);
  function make(tag, className, ...children) {
    const element = document.createElement(tag);
    if (className) element.className = className;
    element.append(...children.filter((child) => child !== undefined && child !== null));
    return element;
  }
  function option(select, value, label) {
    const element = make("option", "", label);
    element.value = value;
    select.append(element);
  }
  const signed = (x) => (x > 0 ? "+" : "") + x.toFixed(3);
  const advantage = (row) =>
    row.advantage === undefined ? "" : typeof row.advantage === "number" ? signed(row.advantage) : (row.advantage ?? "dropped");
  const find = (set, task, number) =>
    sets.has(set) ? sets.get(set).rows.find((row) => row.task === task && row.number === Number(number)) : undefined;
  const place = (...parts) => parts.map(encodeURIComponent).join("/");
  const remember = (...parts) => history.replaceState(null, "", `#${place(...parts)}`);
  const trace = (row) => (window.loopline_traces || {})[place(row.set.key, row.task, row.number)];

  return { sets, rows, instruction, text, load, get, make, option, advantage, find, remember, trace };
})();
