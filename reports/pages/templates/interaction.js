// The read-out, the pointer and the keyboard, the list of decisions, printing; and the first drawing.
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
