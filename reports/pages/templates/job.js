"use strict";
addEventListener("error", () => { document.documentElement.dataset.drawn ||= "no"; }); // what could not be drawn hides nothing else
// The report's pictures and filters. Reads the data in the page, writes text as text only, asks for nothing else.
(() => {
  const D = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  document.documentElement.classList.add("scripted");

  // ---- words and numbers ------------------------------------------------------------------------------------
  const pad = (n) => String(n).padStart(2, "0");
  const elapsed = (s) => {
    const w = Math.trunc(Math.abs(s));
    return (s < 0 && w ? "−" : "") + Math.trunc(w / 3600) + ":" + pad(Math.trunc(w / 60) % 60) + ":" + pad(w % 60);
  };
  const short = (s) => elapsed(s).slice(0, -3);
  const utc = (s) => new Date((D.t0 + s) * 1000).toISOString().slice(0, 19).replace("T", " ") + " UTC";
  const usd = (micros, places = 4) => (micros < 0 ? "−$" : "$") + (Math.abs(micros) / 1e6).toFixed(places);
  const number = (v) => v.toLocaleString("en-US", { maximumSignificantDigits: 4, useGrouping: Math.abs(v) >= 1e4 });
  const colour = (market) => market % 8;

  // ---- building the page ------------------------------------------------------------------------------------
  const NS = "http://www.w3.org/2000/svg";
  function svg(parent, tag, attributes, text) {
    const made = document.createElementNS(NS, tag);
    for (const name in attributes) made.setAttribute(name, attributes[name]);
    if (text !== undefined) made.textContent = text;
    if (parent) parent.append(made);
    return made;
  }
  function html(parent, tag, text, className) {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    if (parent) parent.append(made);
    return made;
  }
  function swatch(parent, className, square) {
    const key = svg(parent, "svg", { width: 14, height: 11, "aria-hidden": "true" });
    if (square) svg(key, "rect", { x: 2, y: 1, width: 9, height: 9, rx: 2, class: className });
    else svg(key, "line", { x1: 0, y1: 6, x2: 14, y2: 6, "stroke-width": 2.6, class: className });
  }

  // ---- series -----------------------------------------------------------------------------------------------
  // The value of a step function at t: that of the last pair not after t.
  function pairAt(pairs, t) {
    let low = 0, high = pairs.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (pairs[middle][0] <= t) low = middle + 1; else high = middle;
    }
    return low ? pairs[low - 1] : null;
  }
  const stepAt = (pairs, t) => { const p = pairAt(pairs, t); return p ? p[1] : null; };
  function lineAt(corners, t) {
    if (!corners.length || t < corners[0][0]) return null;
    for (let i = 1; i < corners.length; i++) {
      const [t0, v0] = corners[i - 1], [t1, v1] = corners[i];
      if (t <= t1) return t1 > t0 ? v0 + (v1 - v0) * (t - t0) / (t1 - t0) : v1;
    }
    return corners[corners.length - 1][1];
  }
  const spent = [[0, 0]], charged = [[0, 0]], refunded = [[0, 0]];
  for (const [at, , , refund, , amount] of D.ledger) {
    const add = (series, sum) => series.push([at, series[series.length - 1][1] + sum]);
    add(spent, amount);
    if (refund) add(refunded, -amount); else add(charged, amount);
  }
  const held = D.allocations.map(([id, market, reliable, count, bid, from, to, cause]) =>
    ({ id, market, reliable, count, bid, from, to: to === null ? D.end : to, cause, vcpus: count * (D.vcpu[market] || 0) }));
  const lastTick = D.ticks.length ? D.ticks[D.ticks.length - 1] : 0;
  const lastLook = D.progress.length ? D.progress[D.progress.length - 1][0] : 0;
  const statusEnd = Math.max(D.trained || 0, lastLook, D.stage.length ? D.stage[D.stage.length - 1][0] : 0);
  // From the bottom: the reliable tier, then the spot markets in the order of the legend.
  const layers = [];
  for (const reliable of [1, 0]) {
    D.markets.forEach((_, market) => {
      const mine = held.filter((a) => a.reliable === reliable && a.market === market);
      if (mine.length) layers.push({ reliable, market, mine });
    });
  }
  const turns = [...new Set(held.flatMap((a) => [a.from, a.to]))].sort((a, b) => a - b);
  const vcpusAt = (layer, t) => layer.mine.reduce((sum, a) => sum + (a.from <= t && t < a.to ? a.vcpus : 0), 0);

  // ---- what is shown ----------------------------------------------------------------------------------------
  const END = Math.max(D.end, 60), TRAINED = D.trained === null ? END : Math.max(D.trained, 60), SHORTEST = 30;
  const bought = new Set(held.filter((a) => !a.reliable).map((a) => a.market));
  const seen = D.prices.flatMap((points) => points.map((p) => p[1])).filter((v) => v !== null);
  const state = {
    from: 0, to: END, at: null, brush: null, hidden: new Set(), perVcpu: false, onDemand: false,
    log: seen.length > 0 && Math.max(...minmax(seen)) / Math.min(...minmax(seen)) > 12,
  };
  function minmax(values) {
    let low = Infinity, high = -Infinity;
    for (const v of values) { if (v < low) low = v; if (v > high) high = v; }
    return [low, high];
  }
  const PANELS = [
    { key: "price", title: "Price", height: 178, draw: drawPrices },
    { key: "footprint", title: "vCPUs held", height: 112, draw: drawFootprint },
    { key: "marks", title: "What happened", height: 98, draw: drawMarks },
    { key: "learning", title: "Loss and clock", height: 128, draw: drawLearning },
    { key: "stage", title: "Stage and nodes ready", height: 50, draw: drawStage },
    { key: "pace", title: "Time per clock", height: 58, draw: drawPace },
    { key: "shards", title: "Who serves each shard", height: 84, draw: drawShards },
    { key: "dollars", title: "Dollars", height: 128, draw: drawDollars },
  ];
  const LEFT = 82, RIGHT = 84, TITLE = 24, TOP = 20, BOTTOM = 18, HEIGHT = 1066;
  let width = 0, root, overlay, x = (t) => t, when = (px) => px;
  { // the panels fill the height that the page keeps for them
    let y = TOP;
    for (const panel of PANELS) { panel.top = y + TITLE; y = panel.top + panel.height; }
    if (y + BOTTOM > HEIGHT) throw new Error("the panels are higher than the chart");
  }

  // ---- scales -----------------------------------------------------------------------------------------------
  const TIME_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800];
  function timeTicks() {
    const room = Math.max((width - LEFT - RIGHT) / 90, 2);
    const step = TIME_STEPS.find((s) => (state.to - state.from) / s <= room) || 2419200;
    const ticks = [];
    for (let t = Math.ceil(state.from / step) * step; t <= state.to; t += step) ticks.push(t);
    return { ticks, step };
  }
  function scale(panel, low, high, log) {
    const { top, height } = panel;
    if (!(high > low)) { const by = Math.abs(high) * .1 || 1; high += by; low = log ? low / 1.1 : low - by; }
    const f = log ? Math.log : (v) => v;
    const a = f(low), b = f(high);
    const y = (v) => top + height - (f(v) - a) / (b - a) * height;
    return { y, low, high, ticks: log ? logTicks(low, high) : linearTicks(low, high, height) };
  }
  function linearTicks(low, high, height) {
    const rough = (high - low) / Math.max(height / 34, 2), power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].find((m) => m * power >= rough) * power;
    const ticks = [];
    for (let i = Math.ceil(low / step); i * step <= high * (1 + 1e-9); i++) ticks.push(i * step || 0);
    return ticks;
  }
  function logTicks(low, high) {
    const ticks = [], wide = Math.log10(high / low) > 2.2;
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
      for (const m of wide ? [1] : [1, 2, 5]) { const v = m * 10 ** power; if (v >= low && v <= high) ticks.push(v); }
    }
    return ticks.length > 1 ? ticks : linearTicks(low, high, 80);
  }
  function axis(parent, panel, s, words, right) {
    for (const tick of s.ticks) {
      const y = s.y(tick);
      if (!right) svg(parent, "line", { x1: LEFT, x2: width - RIGHT, y1: y, y2: y, class: "grid" });
      svg(parent, "text", { x: right ? width - RIGHT + 6 : LEFT - 6, y: y + 4, "text-anchor": right ? "start" : "end", class: "axis" + (right || "") }, words(tick));
    }
  }
  // The part of step pairs that is seen, with the one that holds at its beginning.
  function seenSteps(pairs, until) {
    const shown = [];
    const before = pairAt(pairs, state.from);
    if (before) shown.push([state.from, before[1]]);
    for (const pair of pairs) if (pair[0] > state.from && pair[0] <= state.to) shown.push(pair);
    const last = Math.min(state.to, until);
    if (!shown.length || shown[0][0] > last) return [];
    shown.push([last, shown[shown.length - 1][1]]);
    return shown.filter((p) => p[0] <= last);
  }
  function stepPath(points, y) {
    let path = "", open = false;
    for (const [t, v] of points) {
      if (v === null) { if (open) path += "H" + x(t).toFixed(1); open = false; continue; }
      path += open ? "H" + x(t).toFixed(1) + "V" + y(v).toFixed(1) : "M" + x(t).toFixed(1) + " " + y(v).toFixed(1);
      open = true;
    }
    return path;
  }
  function linePath(points, y) {
    let path = "", open = false;
    for (const [t, v] of points) {
      if (v === null) { open = false; continue; }
      path += (open ? "L" : "M") + x(t).toFixed(1) + " " + y(v).toFixed(1);
      open = true;
    }
    return path;
  }
  // The corners of a line that are seen, with one more on either side.
  function seenLine(points) {
    let first = points.findIndex((p) => p[0] >= state.from), last = points.length - 1;
    if (first < 0) return [];
    while (last > first && points[last][0] > state.to) last--;
    return points.slice(Math.max(first - 1, 0), last + 2);
  }

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
  let g; // where marks go: above the lanes, drawn anew with each picture

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

  // A row a shard: its server, and below it, narrow, the keeper of its copy.
  function drawShards(panel) {
    title(panel, "Who serves each shard (narrow, below: who keeps its copy)");
    if (!D.shards.length) return nothing(panel, "the controller has not reported yet");
    const group = clipped(panel), rows = Math.max(...D.shards.map((map) => map[1].length)), high = panel.height / rows;
    for (const [place, share, from, extra] of [[1, .62, .08, ""], [2, .2, .72, " keeper"]]) {
      for (let shard = 0; shard < rows; shard++) {
        const steps = seenSteps(D.shards.map((map) => [map[0], map[place][shard] === undefined ? null : map[place][shard]]), statusEnd);
        for (let i = 0; i + 1 < steps.length; i++) {
          let last = i + 1;
          while (last + 1 < steps.length && steps[last][1] === steps[i][1]) last++;
          const [t, node] = steps[i], a = x(t), b = x(steps[last][0]);
          i = last - 1;
          if (node === null) continue;
          const role = place === 1 ? "server" : "keeper";
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
      svg(root, "text", { x: x(D.trained) + (right ? 5 : -5), y: top - 8, "text-anchor": right ? "start" : "end", class: "axis" }, "training ended");
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

  // ---- the read-out -----------------------------------------------------------------------------------------
  function row(table, key, square, words, value) {
    const line = html(table, "tr"), cell = html(line, "td");
    if (key) swatch(cell, key, square);
    cell.append(words);
    html(line, "td", value);
  }
  function point() {
    overlay.replaceChildren();
    const top = PANELS[0].top - 4, last = PANELS[PANELS.length - 1], bottom = last.top + last.height;
    if (state.brush) {
      const [a, b] = state.brush.map(x).sort((one, two) => one - two);
      svg(overlay, "rect", { x: a, y: top, width: b - a, height: bottom - top, class: "brush" });
    }
    const box = $("readout"), t = state.at;
    if (t === null || t < state.from || t > state.to || printing) { box.hidden = true; return; }
    svg(overlay, "line", { x1: x(t), x2: x(t), y1: top, y2: bottom, class: "cross" });
    fill(box, t);
    box.hidden = false;
    const figure = box.parentElement, chart = $("chart"), px = chart.offsetLeft + x(t) * chart.clientWidth / width;
    const left = px + 16 + box.offsetWidth < figure.clientWidth ? px + 16 : px - 16 - box.offsetWidth;
    const y = state.pointerY === undefined ? 40 : state.pointerY - box.offsetHeight / 2;
    box.style.left = Math.max(left, 4) + "px";
    box.style.top = Math.min(Math.max(y, 4), figure.clientHeight - box.offsetHeight - 4) + "px";
  }
  function fill(box, t) {
    box.replaceChildren();
    html(box, "span", elapsed(t), "when");
    html(box, "span", " · " + utc(t), "date");
    const prices = html(box, "table");
    const here = held.filter((a) => a.from <= t && t < a.to);
    const markets = D.markets.map((_, m) => m).filter((m) => !state.hidden.has(m));
    const shown = markets.length > 9 ? markets.filter((m) => bought.has(m)).slice(0, 9) : markets;
    for (const m of shown) {
      const price = t > lastTick ? null : stepAt(D.prices[m], t);
      if (price === null) continue;
      const bids = [...new Set(here.filter((a) => a.market === m && a.bid !== null).map((a) => usd(a.bid)))];
      row(prices, "k" + colour(m), false, D.markets[m], usd(price) + (bids.length ? " · bid " + bids.join(", ") : ""));
    }
    if (prices.childElementCount) html(box, "hr"); else prices.remove();
    const rest = html(box, "table");
    const sum = (reliable) => here.filter((a) => a.reliable === reliable).reduce((all, a) => all + a.vcpus, 0);
    row(rest, null, false, "vCPUs reliable + transient", `${sum(1)} + ${sum(0)}`);
    for (const layer of layers) {
      const vcpus = layer.reliable ? 0 : vcpusAt(layer, t);
      if (vcpus) row(rest, "f" + colour(layer.market), true, D.markets[layer.market], String(vcpus));
    }
    const progress = t <= statusEnd ? pairAt(D.progress, t) : null;
    if (progress) row(rest, "loss", false, "loss", progress[2] === null ? "–" : number(progress[2]));
    if (progress) row(rest, "clock", false, "clock", number(progress[1]));
    if (t <= statusEnd && stepAt(D.stage, t) !== null) row(rest, null, false, "stage · nodes ready", `${stepAt(D.stage, t)} · ${stepAt(D.ready, t)}`);
    if (t <= statusEnd && stepAt(D.pace, t) !== null) row(rest, "pace", false, "ms a clock", number(stepAt(D.pace, t)));
    const map = t <= statusEnd ? pairAt(D.shards, t) : null;
    for (const node of map ? [...new Set([...map[1], ...map[2]])].filter((n) => n !== null).sort((a, b) => a - b).slice(0, 9) : []) {
      const said = [["serves", map[1]], ["keeps", map[2]]].map(([word, of]) => [word, of.filter((n) => n === node).length]).filter((p) => p[1]);
      row(rest, "f" + node % 8, true, D.nodes[node], said.map((p) => p.join(" ")).join(", "));
    }
    row(rest, "spent", false, "spent", usd(stepAt(spent, t)));
    row(rest, "refunded", false, "refunded", usd(stepAt(refunded, t)));
    const reference = lineAt(D.reference, t);
    if (reference !== null) row(rest, "reference", false, "on demand", usd(reference));
    const near = D.events.filter((e) => Math.abs(x(e[0]) - x(t)) < 5);
    if (near.length) html(box, "hr");
    for (const [at, kind, , text] of near.slice(0, 5)) html(box, "p", `${elapsed(at)} ${WORDS[kind] || kind}: ${text.length > 110 ? text.slice(0, 109) + "…" : text}`);
    if (near.length > 5) html(box, "p", `and ${near.length - 5} more`);
  }
  function say() {
    const t = state.at;
    const near = D.events.filter((e) => Math.abs(x(e[0]) - x(t)) < 5).map((e) => e[1]);
    $("spoken").textContent = `${elapsed(t)}: ${here(t)} vCPUs held, spent ${usd(stepAt(spent, t))}` + (near.length ? ", " + near.map((kind) => WORDS[kind] || kind).join(", ") : "");
  }
  const here = (t) => held.reduce((sum, a) => sum + (a.from <= t && t < a.to ? a.vcpus : 0), 0);

  // ---- the pointer, the wheel and the keyboard --------------------------------------------------------------
  let printing = false, drag = null, scrolled = -Infinity;
  root = svg($("chart"), "svg", { "aria-hidden": "true" });
  const pointerX = (event) => (event.clientX - root.getBoundingClientRect().left) * width / root.getBoundingClientRect().width;
  const inPlot = (px) => px >= LEFT && px <= width - RIGHT;
  const clamp = (t) => Math.min(Math.max(t, state.from), state.to);
  root.addEventListener("pointermove", (event) => {
    const px = pointerX(event);
    state.pointerY = event.clientY - $("chart").parentElement.getBoundingClientRect().top;
    if (drag && drag.move) {
      const by = (drag.px - px) / (width - LEFT - RIGHT) * (drag.to - drag.from);
      state.at = null;
      return show(drag.from + by, drag.to + by);
    }
    if (drag) state.brush = Math.abs(px - drag.px) > 4 ? [clamp(drag.t), clamp(when(px))] : null;
    state.at = inPlot(px) || drag ? clamp(when(px)) : null;
    point();
  });
  root.addEventListener("pointerleave", () => { if (!drag) { state.at = null; point(); } });
  root.addEventListener("pointerdown", (event) => {
    const px = pointerX(event);
    if (event.button !== 0 || event.pointerType === "touch" || !inPlot(px)) return;
    drag = { px, t: when(px), from: state.from, to: state.to, move: event.shiftKey };
    root.setPointerCapture(event.pointerId);
  });
  root.addEventListener("pointerup", () => {
    const brush = state.brush;
    drag = null;
    state.brush = null;
    if (brush) show(Math.min(...brush), Math.max(...brush)); else point();
  });
  root.addEventListener("pointercancel", () => { drag = null; state.brush = null; point(); });
  root.addEventListener("dblclick", () => show(0, END));
  // A scroll that began outside the chart goes on as one, and so does one that could only zoom out further.
  addEventListener("scroll", (event) => { scrolled = event.timeStamp; }, { passive: true });
  root.addEventListener("wheel", (event) => {
    const px = pointerX(event), pixels = event.deltaMode === 1 ? 20 : 1;
    if (!inPlot(px) || (event.timeStamp - scrolled < 250 && !event.ctrlKey)) return;
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      const by = event.deltaX * pixels / (width - LEFT - RIGHT) * (state.to - state.from);
      event.preventDefault();
      return show(state.from + by, state.to + by);
    }
    if (event.deltaY > 0 && state.from <= 0 && state.to >= END && !event.ctrlKey) return;
    event.preventDefault();
    zoom(Math.exp(Math.min(Math.max(event.deltaY * pixels, -240), 240) * (event.ctrlKey ? .012 : .0022)), when(px));
  }, { passive: false });
  $("chart").addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const span = state.to - state.from, way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (way && event.shiftKey) show(state.from + way * span / 8, state.to + way * span / 8);
    else if (way) { state.at = clamp((state.at === null ? state.from + span / 2 : state.at) + way * span / 120); point(); say(); }
    else if (event.key === "+" || event.key === "=") zoom(.6, middle());
    else if (event.key === "-") zoom(1 / .6, middle());
    else if (event.key === "0" || event.key === "Home") show(0, END);
    else if (event.key === "Escape") { state.at = null; show(0, END); }
    else return;
    event.preventDefault();
  });
  $("chart").addEventListener("blur", () => { state.at = null; point(); });
  $("whole").addEventListener("click", () => show(0, END));
  $("training").addEventListener("click", () => show(0, TRAINED));
  $("in").addEventListener("click", () => zoom(.5, (state.from + state.to) / 2));
  $("out").addEventListener("click", () => zoom(2, (state.from + state.to) / 2));
  for (const [id, name] of [["per-vcpu", "perVcpu"], ["log", "log"], ["on-demand", "onDemand"]]) {
    $(id).setAttribute("aria-pressed", state[name]);
    $(id).addEventListener("click", () => { state[name] = !state[name]; $(id).setAttribute("aria-pressed", state[name]); redraw(); });
  }
  D.markets.forEach((name, market) => {
    const button = html($("legend"), "button");
    button.type = "button";
    button.setAttribute("aria-pressed", "true");
    swatch(button, "k" + colour(market), false);
    button.append(name);
    button.addEventListener("click", () => {
      if (!state.hidden.delete(market)) state.hidden.add(market);
      button.setAttribute("aria-pressed", !state.hidden.has(market));
      redraw();
    });
  });

  // ---- decisions --------------------------------------------------------------------------------------------
  const rows = [...document.querySelectorAll("tbody tr.decision")];
  const verdictOf = (tr) => D.decisions[Number(tr.dataset.index)][1];
  const perWork = (v) => v === null ? "no work" : v.toFixed(5);
  function weigh(tr) {
    if (tr.weighed) return tr.weighed;
    const [, verdict, now, candidates, left] = D.decisions[Number(tr.dataset.index)];
    const made = document.createElement("tr");
    made.className = "weighed";
    const cell = html(made, "td");
    cell.colSpan = 6;
    const table = html(cell, "table"), head = html(html(table, "thead"), "tr"), body = html(table, "tbody");
    for (const name of ["candidate", "price", "bid", "eviction within the hour", "$ per work", "verdict"]) {
      const th = html(head, "th", name, name === "candidate" || name === "verdict" ? "" : "n");
      th.scope = "col";
    }
    candidates.forEach(([market, count, price, delta, eviction, each, why], place) => {
      const line = html(body, "tr"), chosen = verdict === "acquire" && place === 0;
      if (chosen) line.className = "chosen";
      html(line, "td", `${count} × ${D.markets[market] || "an unknown market"}`);
      for (const text of [usd(price), usd(price + delta), (eviction * 100).toFixed(0) + " %", perWork(each)]) html(line, "td", text, "n");
      html(line, "td", chosen ? "chosen" : D.texts[why] || "–");
    });
    html(body, "tr").append(html(null, "td", "the footprint as it is"), ...[1, 2, 3].map(() => html(null, "td")), html(null, "td", perWork(now), "n"), html(null, "td", verdict === "acquire" ? "dearer than with the chosen one" : "kept"));
    if (left) html(cell, "p", `and ${left} more, in the journal`, "note");
    tr.weighed = made;
    return made;
  }
  function fold(tr, open) {
    const button = tr.lastElementChild.querySelector("button");
    if (!button) return;
    button.setAttribute("aria-expanded", open);
    button.textContent = `${tr.dataset.count} ${open ? "▾" : "▸"}`;
    if (open) tr.after(weigh(tr)); else if (tr.weighed) tr.weighed.remove();
    if (tr.weighed) tr.weighed.hidden = tr.hidden;
  }
  const isOpen = (tr) => Boolean(tr.weighed && tr.weighed.isConnected);
  for (const tr of rows) {
    const time = tr.firstElementChild, go = document.createElement("button");
    go.type = "button";
    go.textContent = time.textContent;
    go.title = "Show this moment in the chart";
    go.addEventListener("click", () => {
      const at = Number(tr.dataset.at), span = Math.min(1800, END);
      state.at = at;
      state.pointerY = undefined;
      show(at - span / 2, at + span / 2);
      $("time").scrollIntoView();
      $("chart").focus({ preventScroll: true });
    });
    time.replaceChildren(go);
    const last = tr.lastElementChild, count = D.decisions[Number(tr.dataset.index)][3].length;
    if (!count) continue;
    tr.dataset.count = last.textContent;
    const button = document.createElement("button");
    button.type = "button";
    last.replaceChildren(button);
    button.addEventListener("click", () => fold(tr, !isOpen(tr)));
    fold(tr, false);
  }
  function filter() {
    const off = new Set([...document.querySelectorAll("#filter [data-verdict][aria-pressed=false]")].map((b) => b.dataset.verdict));
    const words = $("find").value.toLowerCase().split(/\s+/).filter(Boolean);
    let kept = 0;
    for (const tr of rows) {
      const text = tr.textContent.toLowerCase();
      tr.hidden = off.has(verdictOf(tr)) || !words.every((word) => text.includes(word));
      if (tr.weighed) tr.weighed.hidden = tr.hidden;
      if (!tr.hidden) kept++;
    }
    $("found").textContent = `${kept} of ${rows.length} rows`;
  }
  for (const button of document.querySelectorAll("#filter [data-verdict]")) {
    button.addEventListener("click", () => { button.setAttribute("aria-pressed", button.getAttribute("aria-pressed") === "false"); filter(); });
  }
  $("find").addEventListener("input", filter);
  $("unfold").addEventListener("click", () => {
    const open = $("unfold").getAttribute("aria-pressed") === "false";
    $("unfold").setAttribute("aria-pressed", open);
    for (const tr of rows) fold(tr, open);
  });
  filter();

  // ---- print and size ---------------------------------------------------------------------------------------
  // Paper cannot be opened: purchases show their candidates there, and folded tables their rows.
  let closed = [];
  addEventListener("beforeprint", () => {
    if (printing) return;
    printing = true;
    for (const tr of rows) if (verdictOf(tr) === "acquire" && !isOpen(tr)) { fold(tr, true); closed.push(() => fold(tr, false)); }
    for (const details of document.querySelectorAll("details:not([open])")) { details.open = true; closed.push(() => { details.open = false; }); }
    draw();
  });
  addEventListener("afterprint", () => {
    for (const undo of closed) undo();
    closed = [];
    printing = false;
    draw();
  });
  new ResizeObserver(() => { if (!printing && $("chart").clientWidth !== width) redraw(); }).observe($("chart"));
  draw();
  document.documentElement.dataset.drawn = "yes";
})();
