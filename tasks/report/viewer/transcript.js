// One rollout, turn by turn.
(() => {
  const { get, make, advantage, instruction, load, remember } = loopline;
  let asked = 0;

  // The chat template's own tokens are what the policy saw, but not what a reader looks for.
  function put(pre, text) {
    for (const part of text.split(/(<\|[^|<>\s]*\|>)/)) {
      if (part) pre.append(/^<\|[^|<>\s]*\|>$/.test(part) ? make("span", "special", part) : part);
    }
    return pre;
  }

  function facts(row) {
    const trained = advantage(row);
    return [
      row.set.label,
      `difficulty ${row.difficulty}`,
      `return ${row.return.toFixed(3)}${row.success ? ", success" : ""}`,
      trained && (trained === "dropped" ? "did not train" : `advantage ${trained}`),
      `ended: ${row.end}`,
    ]
      .filter(Boolean)
      .join(" · ");
  }

  function tests(rollout) {
    const list = make("ul", "tests");
    for (const text of rollout.failed) list.append(make("li", "fail", `failed: ${text}`));
    for (const text of rollout.passed) list.append(make("li", "pass", `passed: ${text}`));
    return list;
  }

  function segment(turn, tokens, text, isPrompt, failed) {
    const agent = turn >= 0;
    const element = make(agent ? "div" : "details", `segment ${agent ? "agent" : "world"}${failed ? " failed" : ""}`);
    const title = agent ? `turn ${turn + 1}${failed ? ", its code failed" : ""}` : isPrompt ? "prompt" : "observation";
    element.append(make(agent ? "div" : "summary", "", `${title} · ${tokens} tokens`), put(make("pre"), text.replace(/^\n+/, "")));
    if (!agent) element.open = !isPrompt;
    return element;
  }

  // Of the few rollouts that MLflow holds as traces: data/traces.js, beside the report, says which.
  function traceLink(row) {
    const address = loopline.trace(row);
    if (!address) return undefined;
    const link = make("a", "trace", "trace in MLflow");
    link.href = address;
    link.target = "_blank";
    return link;
  }

  function show(row) {
    const turn = ++asked;
    const box = get("rollout");
    box.replaceChildren(make("p", "hint", "loading…"));
    remember(row.set.key, row.task, row.number);
    return load(row.set).then(
      (data) => turn === asked && fill(box, row, data),
      (error) => turn === asked && box.replaceChildren(make("p", "fail", error.message)),
    );
  }

  function fill(box, row, data) {
    const rollout = data.rollouts[row.place];
    const beside = make("button", "beside", "compare");
    beside.type = "button";
    beside.title = "beside another checkpoint on the same task";
    beside.addEventListener("click", () => loopline.compareFrom(row));
    const segments = rollout.segments.map(([turn, tokens, place], i) =>
      segment(turn, tokens, data.texts[place], i === 0, rollout.failed_turns.includes(turn)),
    );
    box.replaceChildren(
      make("h3", "", `${row.task} #${row.number} `, beside, traceLink(row)),
      make("p", "instruction", instruction(row.task)),
      make("p", "hint", facts(row)),
      tests(rollout),
      ...segments,
    );
    box.scrollTop = 0;
  }

  Object.assign(loopline, { show, facts, tests, put });
})();
