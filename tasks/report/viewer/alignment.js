// Which turns of two rollouts belong together, and which lines of two texts are equal. Pure.
(() => {
  // Longest common subsequence, or any best chain: `score(i, j) >= 0` for pairing, nothing for leaving out.
  function bestChain(n, m, score) {
    const best = Array.from({ length: n + 1 }, () => new Float64Array(m + 1));
    for (let i = n - 1; i >= 0; i--) {
      for (let j = m - 1; j >= 0; j--) {
        const paired = score(i, j);
        best[i][j] = Math.max(best[i + 1][j], best[i][j + 1], paired > 0 ? paired + best[i + 1][j + 1] : 0);
      }
    }
    const pairs = [];
    for (let i = 0, j = 0; i < n && j < m; ) {
      const paired = score(i, j);
      if (paired > 0 && best[i][j] === paired + best[i + 1][j + 1]) pairs.push([i++, j++]);
      else if (best[i][j] === best[i + 1][j]) i++;
      else j++;
    }
    return pairs;
  }

  // Dice coefficient of two bags of words, in [0, 1].
  function likeness(a, b) {
    if (a === b) return 1;
    const bag = new Map();
    const [left, right] = [a.match(/\w+/g) || [], b.match(/\w+/g) || []];
    for (const word of left) bag.set(word, (bag.get(word) || 0) + 1);
    let shared = 0;
    for (const word of right) {
      const count = bag.get(word) || 0;
      if (count) shared++;
      bag.set(word, count - 1 > 0 ? count - 1 : 0);
    }
    return left.length + right.length ? (2 * shared) / (left.length + right.length) : 1;
  }

  // Pairs [i or -1, j or -1] in order: every turn once, alike turns beside each other.
  function alignTurns(a, b) {
    const known = a.map((left) => b.map((right) => 0.1 + likeness(left, right)));
    const rows = [];
    let [i, j] = [0, 0];
    for (const [left, right] of [...bestChain(a.length, b.length, (x, y) => known[x][y]), [a.length, b.length]]) {
      while (i < left) rows.push([i++, -1]);
      while (j < right) rows.push([-1, j++]);
      if (i < a.length && j < b.length) rows.push([i++, j++]);
    }
    return rows;
  }

  // For each line of both texts: is it in the other one too, in order?
  function sameLines(a, b) {
    const [left, right] = [a.split("\n"), b.split("\n")];
    const same = [left.map(() => false), right.map(() => false)];
    if (left.length * right.length > 1e6) return same;
    for (const [i, j] of bestChain(left.length, right.length, (x, y) => (left[x] === right[y] ? 1 : 0))) {
      same[0][i] = same[1][j] = true;
    }
    return same;
  }

  Object.assign(loopline, { alignTurns, sameLines });
})();
