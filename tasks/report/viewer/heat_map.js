// The heat map answers the pointer: which task, which iteration, what came of it; a click lists its rollouts.
(() => {
  const { sets, get, make, instruction } = loopline;
  const plot = get("heat-plot");
  const note = get("heat-note");
  const labels = [...document.querySelectorAll("#heat li")];
  const last = Number(plot.dataset.last);
  let lit;

  function cellAt(event) {
    const box = plot.getBoundingClientRect();
    const iteration = 1 + Math.min(last - 1, Math.max(0, Math.floor(((event.clientX - box.x) / box.width) * last)));
    const place = Math.floor(((event.clientY - box.y) / box.height) * labels.length);
    const label = labels[Math.min(labels.length - 1, Math.max(0, place))];
    const set = sets.get(`i${String(iteration).padStart(3, "0")}`);
    const played = set ? set.rows.filter((row) => row.task === label.textContent) : [];
    return { iteration, label, set, task: label.textContent, played };
  }

  function describe({ iteration, task, played }) {
    const ended = played.filter((row) => !plot.dataset.void.split(" ").includes(row.end));
    const mean = ended.reduce((sum, row) => sum + row.return, 0) / ended.length;
    const good = ended.filter((row) => row.success).length;
    const outcome = ended.length
      ? `mean return ${mean.toFixed(2)}, ${good} of ${ended.length} succeed`
      : played.length
        ? "no rollout ended by itself"
        : "not drawn";
    return [make("b", "", `${task}, iteration ${iteration}`), make("br"), outcome, make("br"), instruction(task)];
  }

  function point(event) {
    const cell = cellAt(event);
    if (lit) lit.classList.remove("lit");
    lit = cell.label;
    lit.classList.add("lit");
    plot.classList.toggle("played", cell.played.length > 0);
    note.replaceChildren(...describe(cell));
    note.hidden = false;
    const left = Math.min(event.clientX + 14, document.documentElement.clientWidth - note.offsetWidth - 8);
    const below = event.clientY + 14;
    const top = below + note.offsetHeight > window.innerHeight ? event.clientY - note.offsetHeight - 14 : below;
    note.style.transform = `translate(${Math.max(8, left)}px,${top}px)`;
  }

  function leave() {
    note.hidden = true;
    if (lit) lit.classList.remove("lit");
  }

  plot.addEventListener("pointermove", point);
  plot.addEventListener("pointerleave", leave);
  plot.addEventListener("click", (event) => {
    const { set, task, played } = cellAt(event);
    if (played.length) loopline.visit(set.key, task);
  });
  get("heat-figure").addEventListener("change", (event) => (get("heat").dataset.shows = event.target.value));
})();
