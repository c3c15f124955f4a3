// The panels and the picture that they make.
// ---- panels -----------------------------------------------------------------------------------------------
function clipped(panel) {
  const id = "clip-" + panel.key, clip = svg(root, "clipPath", { id });
  svg(clip, "rect", { x: LEFT, y: panel.top - 1, width: width - LEFT - RIGHT, height: panel.height + 2 });
  return svg(root, "g", { "clip-path": `url(#${id})`, id: "panel-" + panel.key });
}
// A panel's title, and after it what its lines mean.
function title(panel, text, keys = []) {
  const y = panel.top - 8;
  const label = svg(root, "text", { x: LEFT, y, class: "title" }, text);
  let at = LEFT + label.getComputedTextLength() + 16;
  for (const [className, words] of keys) {
    if (className === "hatch") svg(root, "rect", { x: at, y: y - 9, width: 16, height: 9, fill: "url(#hatch)" });
    else svg(root, "line", { x1: at, x2: at + 18, y1: y - 4, y2: y - 4, class: "s " + className });
    const text_ = svg(root, "text", { x: at + 23, y, class: "axis" }, words);
    at += 23 + text_.getComputedTextLength() + 14;
  }
}
function nothing(panel, text) {
  svg(root, "text", { x: LEFT + 10, y: panel.top + panel.height / 2 + 4, class: "axis" }, text);
}

function drawPrices(panel) {
  const unit = (market) => state.perVcpu ? D.vcpu[market] || 1 : 1;
  title(panel, state.perVcpu ? "Price per vCPU-hour" : "Price per instance-hour",
    [["thin nodes", "price"], ["bid nodes", "bid while held"]].concat(state.onDemand ? [["od nodes", "on demand"]] : []));
  const shown = D.markets.map((_, market) => market).filter((market) => !state.hidden.has(market));
  const lines = shown.map((market) => ({ market, points: seenSteps(D.prices[market], lastTick) }));
  const bids = held.filter((a) => a.bid !== null && !state.hidden.has(a.market) && a.to >= state.from && a.from <= state.to);
  const values = lines.flatMap(({ market, points }) => points.filter((p) => p[1] !== null).map((p) => p[1] / unit(market)));
  for (const a of bids) values.push(a.bid / unit(a.market));
  if (state.onDemand) for (const m of shown) if (D.onDemand[m]) values.push(D.onDemand[m] / unit(m));
  if (!values.length) return nothing(panel, D.ticks.length ? "no price in this stretch of time" : "no price was seen yet");
  const [low, high] = minmax(values);
  const s = state.log && low > 0 ? scale(panel, low / 1.15, high * 1.15, true) : scale(panel, 0, high * 1.08, false);
  axis(root, panel, s, (v) => usd(v, v >= 1e6 ? 2 : high < 2e4 ? 4 : 3));
  const g = clipped(panel);
  for (const { market, points } of lines.slice().reverse()) {
    const path = stepPath(points.map(([t, v]) => [t, v === null ? null : v / unit(market)]), s.y);
    svg(g, "path", { d: path, class: `s k${colour(market)}` + (bought.has(market) ? "" : " thin"), "data-market": D.markets[market] });
    if (state.onDemand && D.onDemand[market]) {
      const y = s.y(D.onDemand[market] / unit(market));
      svg(g, "path", { d: `M${LEFT} ${y}H${width - RIGHT}`, class: `s od k${colour(market)}` });
    }
  }
  for (const a of bids) {
    const y = s.y(a.bid / unit(a.market));
    svg(g, "path", { d: `M${x(a.from).toFixed(1)} ${y.toFixed(1)}H${x(a.to).toFixed(1)}`, class: `s bid k${colour(a.market)}`, "data-bid": a.id });
    svg(g, "circle", { cx: x(a.from), cy: y, r: 3, class: `dot k${colour(a.market)}` });
    if (a.cause === "evicted") svg(g, "path", { d: cross(x(a.to), y, 3.5), class: "mark evicted" });
  }
}

function drawFootprint(panel) {
  title(panel, "vCPUs held", [["hatch", "reliable tier (on demand)"]]);
  if (!layers.length) return nothing(panel, "nothing was bought yet");
  const corners = [state.from, ...turns.filter((t) => t > state.from && t < state.to)];
  const sums = corners.map((t) => layers.reduce((sum, layer) => sum + vcpusAt(layer, t), 0));
  const s = scale(panel, 0, Math.max(...sums, 1) * 1.06, false);
  axis(root, panel, { ...s, ticks: s.ticks.filter(Number.isInteger) }, number);
  const g = clipped(panel), floor = corners.map(() => 0), ends = [...corners.slice(1), state.to];
  for (const layer of layers) {
    let top = "", back = "";
    corners.forEach((t, i) => {
      const under = floor[i];
      floor[i] += vcpusAt(layer, t);
      const a = x(t).toFixed(1), b = x(ends[i]).toFixed(1);
      top += `${i ? "L" : "M"}${a} ${s.y(floor[i]).toFixed(1)}L${b} ${s.y(floor[i]).toFixed(1)}`;
      back = `L${b} ${s.y(under).toFixed(1)}L${a} ${s.y(under).toFixed(1)}` + back;
    });
    const names = { "data-tier": layer.reliable ? "reliable" : "transient", "data-market": D.markets[layer.market] };
    if (layer.reliable) svg(g, "path", { d: top + back + "Z", fill: "url(#hatch)", class: "area", ...names });
    else svg(g, "path", { d: top + back + "Z", class: `area f${colour(layer.market)}`, ...names });
  }
}

const cross = (cx, cy, r) => `M${cx - r} ${cy - r}L${cx + r} ${cy + r}M${cx - r} ${cy + r}L${cx + r} ${cy - r}`;
const SHAPES = {
  granted: (cx, cy) => `M${cx} ${cy - 5}L${cx + 5} ${cy + 4}H${cx - 5}Z`,
  refused: (cx, cy) => `M${cx - 5} ${cy}H${cx + 5}`,
  renewed: (cx, cy) => `M${cx - 4} ${cy}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0Z`,
  lapse: (cx, cy) => `M${cx - 4} ${cy}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0Z`,
  notice: (cx, cy) => `M${cx} ${cy - 5}L${cx + 5} ${cy}L${cx} ${cy + 5}L${cx - 5} ${cy}Z`,
  evicted: (cx, cy) => cross(cx, cy, 4.5),
  "let go": (cx, cy) => `M${cx - 4.5} ${cy - 4}H${cx + 4.5}L${cx} ${cy + 5}Z`,
};
// One lane a kind, so that nothing covers another kind; marks of a kind that would touch become one with a count.
function drawMarks(panel) {
  title(panel, "What happened");
  const kinds = Object.keys(SHAPES).filter((kind) => D.events.some((event) => event[1] === kind));
  if (!kinds.length) return nothing(panel, "nothing yet");
  const lane = panel.height / kinds.length;
  kinds.forEach((kind, place) => {
    const cy = panel.top + lane * (place + .5);
    svg(root, "line", { x1: LEFT, x2: width - RIGHT, y1: cy, y2: cy, class: "grid" });
    svg(root, "text", { x: LEFT - 6, y: cy + 4, "text-anchor": "end", class: "axis" }, WORDS[kind] || kind);
    const groups = [];
    for (const [t, k] of D.events) {
      if (k !== kind || t < state.from || t > state.to) continue;
      const last = groups[groups.length - 1];
      if (last && x(t) - x(last.to) < (last.n > 1 ? 30 : 10)) { last.n++; last.to = t; } else groups.push({ t, to: t, n: 1 });
    }
    for (const { t, to, n } of groups) {
      const cx = x((t + to) / 2);
      const mark = svg(g, "path", { d: SHAPES[kind](cx, cy), class: "mark " + kind, "data-kind": kind, "data-at": t, "data-count": n });
      svg(mark, "title", {}, `${elapsed(t)} ${WORDS[kind] || kind}` + (n > 1 ? ` × ${n}` : ""));
      if (n > 1) svg(g, "text", { x: cx + 8, y: cy + 4, class: "axis" }, "×" + n);
    }
  });
}
const WORDS = { granted: "bought", lapse: "let lapse", "let go": "ended" };
let g; // where marks go: above the lanes, drawn again with each picture

function drawLearning(panel) {
  title(panel, "Loss and clock", [["loss", "loss"], ["clock", "clock (right)"]]);
  if (!D.progress.length) return nothing(panel, "no clock was finished yet");
  const points = seenLine(D.progress);
  const losses = points.map((p) => [p[0], p[2]]), known = losses.map((p) => p[1]).filter((v) => v !== null);
  const group = clipped(panel);
  const clocks = seenSteps(D.progress, statusEnd);
  if (clocks.length) {
    const [low, high] = minmax(clocks.map((p) => p[1]));
    const s = scale(panel, low === high ? low : low - (high - low) * .04, high + (high - low) * .06, false);
    axis(root, panel, { ...s, ticks: s.ticks.filter((v) => Number.isInteger(v) && v >= 0) }, number, " t-clock");
    svg(group, "path", { d: linePath(points.map((p) => [p[0], p[1]]), s.y), class: "s clock" });
  }
  if (known.length) {
    const [low, high] = minmax(known), log = low > 0 && high / low > 4;
    const s = log ? scale(panel, low / 1.12, high * 1.12, true) : scale(panel, low - (high - low) * .06, high + (high - low) * .06, false);
    axis(root, panel, s, number);
    svg(group, "path", { d: linePath(losses, s.y), class: "s loss" });
  }
}

function drawStage(panel) {
  title(panel, "Stage and nodes ready", [["nodes", "nodes"]]);
  if (!D.stage.length) return nothing(panel, "the controller has not reported yet");
  const group = clipped(panel), stages = seenSteps(D.stage, statusEnd);
  for (let i = 0; i + 1 < stages.length; i++) {
    const [t, stage] = stages[i], a = x(t), b = x(stages[i + 1][0]);
    svg(group, "rect", { x: a, y: panel.top, width: Math.max(b - a, 0), height: 17, class: "stage" + stage, "data-stage": stage });
    if (b - a > 18) svg(group, "text", { x: a + 6, y: panel.top + 12.5, class: "on-stage" }, b - a > 58 ? "stage " + stage : stage);
  }
  const ready = seenSteps(D.ready, statusEnd);
  if (ready.length) {
    const lower = { top: panel.top + 22, height: panel.height - 22 };
    const s = scale(lower, 0, Math.max(...minmax(ready.map((p) => p[1])), 1) * 1.05, false);
    const most = Math.floor(s.high);
    axis(root, lower, { ...s, ticks: most > 0 ? [0, most] : [0] }, number);
    const path = stepPath(ready, s.y);
    svg(group, "path", { d: `${path}V${s.y(0)}H${x(ready[0][0]).toFixed(1)}Z`, class: "nodes-area" });
    svg(group, "path", { d: path, class: "s nodes" });
  }
}

function drawPace(panel) {
  title(panel, "Time per clock", [["pace", "real ms, the last clocks together"]]);
  if (!D.pace.length) return nothing(panel, "no clock was finished yet");
  const points = seenLine(D.pace), group = clipped(panel);
  if (!points.length) return;
  const s = scale(panel, 0, Math.max(...minmax(points.map((p) => p[1]))) * 1.08 || 1, false);
  axis(root, panel, s, number);
  svg(group, "path", { d: linePath(points, s.y), class: "s pace" });
}

// A row a shard: its server, and below it, narrow, the backup of its copy.
function drawShards(panel) {
  title(panel, "Server of each shard (narrow, below: its backup)");
  if (!D.shards.length) return nothing(panel, "the controller has not reported yet");
  const group = clipped(panel), rows = Math.max(...D.shards.map((map) => map[1].length)), high = panel.height / rows;
  for (const [place, share, from, extra] of [[1, .62, .08, ""], [2, .2, .72, " backup"]]) {
    for (let shard = 0; shard < rows; shard++) {
      const steps = seenSteps(D.shards.map((map) => [map[0], map[place][shard] === undefined ? null : map[place][shard]]), statusEnd);
      for (let i = 0; i + 1 < steps.length; i++) {
        let last = i + 1;
        while (last + 1 < steps.length && steps[last][1] === steps[i][1]) last++;
        const [t, node] = steps[i], a = x(t), b = x(steps[last][0]);
        i = last - 1;
        if (node === null) continue;
        const role = place === 1 ? "server" : "backup";
        svg(group, "rect", { x: a, y: panel.top + (shard + from) * high, width: Math.max(b - a, 0), height: share * high, class: `f${node % 8}${extra}`, "data-shard": shard, "data-role": role, "data-node": D.nodes[node] });
      }
    }
  }
  for (const shard of rows > 8 ? [0, rows - 1] : [...Array(rows).keys()])
    svg(root, "text", { x: LEFT - 6, y: panel.top + (shard + .5) * high + 4, "text-anchor": "end", class: "axis" }, shard);
}

function drawDollars(panel) {
  const keys = [["spent", "spent"], ["thin charged", "charged"], ["refunded", "refunded"]];
  title(panel, "Dollars", D.reference.length ? keys.concat([["reference", "the same vCPUs on demand"]]) : keys);
  const steps = [["thin charged", charged], ["refunded", refunded], ["spent", spent]].map(([name, series]) => [name, seenSteps(series, D.end)]);
  const from = lineAt(D.reference, state.from), to = lineAt(D.reference, state.to);
  const reference = D.reference.filter((p) => p[0] > state.from && p[0] < state.to);
  if (from !== null) reference.unshift([state.from, from]);
  if (to !== null) reference.push([state.to, to]);
  const [low, high] = minmax([...steps.flatMap(([, points]) => points.map((p) => p[1])), ...reference.map((p) => p[1])]);
  const bottom = state.from > 0 && low > high * .2 ? low - (high - low) * .08 : 0;
  const s = scale(panel, bottom, high > bottom ? high + (high - bottom) * .07 : bottom + 1e4, false);
  axis(root, panel, s, (v) => usd(v, s.high - s.low < 5e4 ? 4 : s.high < 1e7 ? 2 : 0));
  const group = clipped(panel);
  if (reference.length) svg(group, "path", { d: linePath(reference, s.y), class: "s reference" });
  for (const [name, points] of steps) svg(group, "path", { d: stepPath(points, s.y), class: "s " + name });
  const labels = [["t-spent", steps[2][1]], ["t-refunded", steps[1][1]], ["t-reference", reference]]
    .filter(([, points]) => points.length).map(([name, points]) => ({ name, v: points[points.length - 1][1] })).sort((a, b) => b.v - a.v);
  let above = -Infinity;
  for (const { name, v } of labels) {
    const y = Math.max(s.y(v) + 4, above + 13);
    svg(root, "text", { x: width - RIGHT + 6, y, class: "axis " + name }, usd(v));
    above = y;
  }
}

// ---- the picture ------------------------------------------------------------------------------------------
function draw() {
  width = printing ? 900 : Math.max($("chart").clientWidth, 560);
  const span = width - LEFT - RIGHT;
  x = (t) => LEFT + (t - state.from) / (state.to - state.from) * span;
  when = (px) => state.from + (px - LEFT) / span * (state.to - state.from);
  const top = PANELS[0].top, bottom = PANELS[PANELS.length - 1].top + PANELS[PANELS.length - 1].height;
  root.replaceChildren();
  root.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
  root.dataset.from = state.from;
  root.dataset.to = state.to;
  const defs = svg(root, "defs", {}), hatch = svg(defs, "pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
  svg(hatch, "rect", { width: 6, height: 6, class: "hatch-back" });
  svg(hatch, "line", { x1: 0, y1: 0, x2: 0, y2: 6, class: "hatch-line" });
  const { ticks, step } = timeTicks();
  for (const panel of PANELS) {
    const after = D.trained !== null && D.trained < state.to ? Math.max(x(D.trained), LEFT) : null;
    if (after !== null) svg(root, "rect", { x: after, y: panel.top, width: Math.max(width - RIGHT - after, 0), height: panel.height, class: "after" });
    for (const t of ticks) svg(root, "line", { x1: x(t), x2: x(t), y1: panel.top, y2: panel.top + panel.height, class: "grid" });
  }
  for (const t of ticks) {
    for (const y of [TOP - 6, bottom + 15]) svg(root, "text", { x: x(t), y, "text-anchor": "middle", class: "axis time", "data-at": t }, step < 60 ? elapsed(t) : short(t));
  }
  svg(root, "text", { x: LEFT - 6 - 26, y: bottom + 15, "text-anchor": "end", class: "axis" }, step < 60 ? "h:mm:ss" : "h:mm");
  // An eviction is seen through all panels.
  for (const t of new Set(D.events.filter((e) => e[1] === "evicted" && e[0] >= state.from && e[0] <= state.to).map((e) => e[0]))) {
    svg(root, "line", { x1: x(t), x2: x(t), y1: top, y2: bottom, class: "taken" });
  }
  if (D.trained !== null && D.trained >= state.from && D.trained <= state.to) {
    svg(root, "line", { x1: x(D.trained), x2: x(D.trained), y1: top - 4, y2: bottom, class: "ended" });
    const right = x(D.trained) < width - RIGHT - 130;
    svg(root, "text", { x: x(D.trained) + (right ? 5 : -5), y: top + 13, "text-anchor": right ? "start" : "end", class: "axis" }, "training ended");
  }
  g = svg(null, "g", { id: "marks" });
  for (const panel of PANELS) {
    panel.draw(panel);
    svg(root, "rect", { x: LEFT, y: panel.top, width: span, height: panel.height, class: "frame" });
  }
  root.append(g);
  svg(root, "rect", { x: LEFT, y: top - 4, width: span, height: bottom - top + 4, class: "plot", id: "plot" });
  overlay = svg(root, "g", { "pointer-events": "none" });
  const part = state.from <= 0 && state.to >= END ? "everything" : `${elapsed(state.from)} – ${elapsed(state.to)}`;
  $("shown").textContent = `${part} · ${elapsed(state.to - state.from)} shown`;
  point();
}
let due = false;
function redraw() {
  if (!due) { due = true; requestAnimationFrame(() => { due = false; draw(); }); }
}
// Show [from, to], kept within the job and not shorter than half a minute.
function show(from, to) {
  let span = Math.min(Math.max(to - from, Math.min(SHORTEST, END)), END);
  const middle = (from + to) / 2;
  state.from = Math.min(Math.max(middle - span / 2, 0), END - span);
  state.to = state.from + span;
  redraw();
}
const zoom = (by, around) => show(around - (around - state.from) * by, around + (state.to - around) * by);
const middle = () => state.at !== null ? Math.min(Math.max(state.at, state.from), state.to) : (state.from + state.to) / 2;
