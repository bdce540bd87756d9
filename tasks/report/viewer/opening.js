// The part of the address after # names what to open: set/task/number, or compare/task/set/number/set/number.
(() => {
  const { find, get } = loopline;
  const parts = location.hash.slice(1).split("/").map(decodeURIComponent);
  if (parts[0] === "compare") {
    const [a, b] = [find(parts[2], parts[1], parts[3]), find(parts[4], parts[1], parts[5])];
    if (a && b) loopline.compare(a, b).then(() => get("compare").scrollIntoView());
  } else {
    const row = find(...parts);
    if (row) loopline.visit(row.set.key, row.task, row.number);
  }
  document.documentElement.dataset.ready = "true";
})();
