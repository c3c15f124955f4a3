// The data of the page, series of it, and the scales that they are drawn on. Text is written as text only.
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
  { key: "shards", title: "Server of each shard", height: 84, draw: drawShards },
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
