// The console: asks the sidecar's routes and draws what they tell. No library, nothing from elsewhere.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const POLL_MS = 5000;
const SAMPLES_MAX = 720;
const ROWS_MAX = 240;
const MEANING = {k: "known", ".": "absent", x: "excluded", "?": "unknown"};
const samples = [];
const mapsBefore = new Map();
let token = "";
let prices = null;

const byId = (id) => document.getElementById(id);

function node(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const count = (number) => Number(number).toLocaleString("en");
const counted = (number, what) => `${count(number)} ${what}${number === 1 ? "" : "s"}`;
const share = (part, whole) => (whole ? `${((100 * part) / whole).toFixed(1)} %` : "–");
const offsetText = (end) => (end === -1 ? "…" : count(end));

function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (bytes >= 1024 && at < units.length - 1) { bytes /= 1024; at += 1; }
  return `${bytes.toFixed(at ? 1 : 0)}\u00a0${units[at]}`;
}

class Problem extends Error {}

async function ask(path) {
  let reply;
  try {
    reply = await fetch(path, {headers: token ? {Authorization: `Bearer ${token}`} : {}, cache: "no-store"});
  } catch (error) {
    throw new Problem("The sidecar does not answer. It is asked again.");
  }
  if (reply.status === 401) byId("token-form").hidden = false;
  const text = await reply.text();
  let told = null;
  try { told = JSON.parse(text); } catch (error) { throw new Problem(`The sidecar answered ${reply.status}, without JSON.`); }
  if (!reply.ok && path !== "/readyz") {
    throw new Problem([told.title, told.detail, told.advice].filter(Boolean).join(" — ") || `The sidecar answered ${reply.status}.`);
  }
  return told;
}

function showError(error) {
  byId("error").hidden = !error;
  byId("error").textContent = error ? error.message : "";
}

// What it saves

function figure(name, value, more = "") {
  return node("div", {}, node("dt", {}, name), node("dd", {}, value), ...(more ? [node("dd", {class: "quiet small"}, more)] : []));
}

function showFigures(stats) {
  const lookups = stats.lookups;
  const saved = lookups.objects_listed - lookups.objects_opened;
  const worth = prices ? (saved / 1000) * prices.per_thousand_reads : 0;
  byId("figures").replaceChildren(
    figure("Lookups", count(lookups.lookups)),
    figure("Answered from memory", share(lookups.warm, lookups.lookups)),
    figure("Requests saved", count(saved)),
    figure("… of those of opening all", share(saved, lookups.objects_listed)),
    figure("Their price", prices ? `${worth ? worth.toPrecision(2) : 0} ${prices.currency}` : "–"),
    figure("Memory", `${size(stats.memory_bytes)} of ${size(stats.memory_bytes_max)}`),
  );
}

function showMemory(stats) {
  const rows = Object.entries(stats.caches).map(([name, cache]) => {
    const full = cache.size_bytes_max ? Math.min(1, cache.size_bytes / cache.size_bytes_max) : 0;
    const bar = svg("svg", {viewBox: "0 0 100 10", role: "img", "aria-label": `${share(full, 1)} of its bound`},
      svg("rect", {class: "bar", x: 0, y: 1, width: 100 * full, height: 8}),
      svg("rect", {class: "bound", x: .5, y: 1, width: 99, height: 8}));
    return node("tr", {}, node("th", {scope: "row"}, name), node("td", {}, size(cache.size_bytes)),
      node("td", {}, size(cache.size_bytes_max)), node("td", {}, bar));
  });
  const head = node("tr", {}, ...["Cache", "Size", "Bound", "Full"].map((text) => node("th", {scope: "col"}, text)));
  byId("memory").replaceChildren(node("table", {}, node("thead", {}, head), node("tbody", {}, ...rows)));
}

function byRounds(histogram) {
  const [bounds, counts] = histogram;
  const told = {"0 rounds": 0, "1 to 2": 0, "3 to 5": 0, "6 and more": 0};
  counts.forEach((number, at) => {
    const bound = at < bounds.length ? bounds[at] : Infinity;
    told[bound < 1 ? "0 rounds" : bound <= 2 ? "1 to 2" : bound <= 5 ? "3 to 5" : "6 and more"] += number;
  });
  return told;
}

function showRounds() {
  const steps = samples.slice(1).map((now, at) => {
    const before = samples[at].rounds;
    return Object.entries(now.rounds).map(([name, number]) => [name, Math.max(0, number - before[name])]);
  });
  const most = Math.max(1, ...steps.map((step) => step.reduce((sum, [, number]) => sum + number, 0)));
  const kinds = ["known", "absent", "unknown", "excluded"];
  const width = 600 / Math.max(1, steps.length, 24);
  const bars = steps.flatMap((step, at) => {
    let y = 140;
    return step.map(([name, number], kind) => {
      const height = (130 * number) / most;
      y -= height;
      return svg("rect", {x: at * width, y, width: Math.max(.5, width - 1), height, fill: `url(#p-${kinds[kind]})`});
    });
  });
  const totals = samples.length ? samples[samples.length - 1].rounds : {};
  const text = Object.entries(totals).map(([name, number]) => `${name}: ${count(number)}`).join(", ");
  const drawing = svg("svg", {viewBox: "0 0 600 160", role: "img", "aria-label": `Since the sidecar began: ${text}`}, patterns(),
    ...bars, svg("line", {class: "axis", x1: 0, x2: 600, y1: 140, y2: 140}),
    svg("text", {x: 0, y: 155}, `at most ${count(most)} in ${POLL_MS / 1000} s`));
  const items = Object.keys(totals).map((name, kind) => node("li", {}, swatch(kinds[kind]), ` ${name} (${count(totals[name])} in all)`));
  byId("rounds").replaceChildren(drawing, node("ul", {class: "legend"}, ...items));
}

// Patterns tell the kinds apart without colour.

function patterns() {
  const pattern = (kind, ...lines) => svg("pattern", {id: `p-${kind}`, width: 8, height: 8, patternUnits: "userSpaceOnUse"},
    svg("rect", {class: kind, width: 8, height: 8}), ...lines);
  return svg("defs", {}, pattern("known"), pattern("absent"),
    pattern("unknown", svg("path", {class: "hatch", d: "M0 8L8 0"})),
    pattern("excluded", svg("path", {class: "hatch", d: "M0 8L8 0M0 0L8 8"})));
}

function swatch(kind) {
  const shape = kind === "hole" || kind === "read" || kind === "opened" || kind === "picked" || kind === "cut"
    ? svg("rect", {class: kind === "cut" ? "hole" : kind, x: 2, y: 2, width: 14, height: 10})
    : svg("rect", {fill: `url(#p-${kind})`, width: 18, height: 14});
  return svg("svg", {viewBox: "0 0 18 14", "aria-hidden": "true"}, shape);
}

// The map of a stream

function offsetsOf(map, read) {
  const known = map.nodes.flatMap((each) => each.known.flatMap(([, , start, end]) => [start, end]));
  const owned = map.nodes.flatMap((each) => each.owned.flat());
  const own = map.stream_objects.flatMap(([, start, end]) => [start, end]);
  const all = [...known, ...owned, ...own, ...(read ? [read.start, read.end] : [])].filter((offset) => offset >= 0);
  const low = all.reduce((least, offset) => Math.min(least, offset), Infinity);
  const high = all.reduce((most, offset) => Math.max(most, offset), -Infinity);
  return high > low ? [low, high] : [0, 1];
}

function drawNode(each, low, high, trace) {
  const shown = each.marks.length;
  const rows = Math.max(1, Math.min(shown, ROWS_MAX));
  const step = Math.max(2, Math.min(16, 320 / rows));
  const top = 24;
  const bottom = top + rows * step;
  const y = (position) => top + Math.floor(((position - each.first) * rows) / Math.max(1, shown)) * step;
  const x = (offset) => 40 + (950 * (Math.min(Math.max(offset, low), high) - low)) / (high - low);
  const parts = [patterns()];
  for (let at = 0; at < shown;) {
    let end = at;
    while (end < shown && each.marks[end] === each.marks[at]) end += 1;
    const begin = y(each.first + at);
    parts.push(svg("rect", {x: 0, y: begin, width: 24, height: Math.max(step, y(each.first + end - 1) + step - begin) - .5,
      fill: `url(#p-${MEANING[each.marks[at]]})`}));
    at = end;
  }
  const known = each.known;
  let before = low;
  let next = 0;
  for (let at = 0; at < shown; at += 1) {
    const position = each.first + at;
    while (next < known.length && known[next][0] < position) { before = known[next][3]; next += 1; }
    if (each.marks[at] !== "?" || (at && each.marks[at - 1] === "?" && y(position) === y(position - 1))) continue;
    const after = next < known.length ? known[next][2] : high;
    parts.push(svg("rect", {x: x(before), y: y(position), width: Math.max(1, x(after) - x(before)), height: step - .5,
      fill: "url(#p-unknown)", opacity: .45}));
  }
  for (const [position, id, start, end] of known) {
    parts.push(svg("rect", {class: "known", x: x(start), y: y(position), width: Math.max(2, x(end) - x(start)), height: step - .5},
      svg("title", {}, `object ${id} holds [${start}, ${end})`)));
  }
  for (const [start, end] of each.holes) {
    parts.push(svg("rect", {class: "hole", x: x(start), y: top, width: Math.max(2, x(end) - x(start)), height: bottom - top},
      svg("title", {}, `hole [${start}, ${end})`)));
  }
  if (trace) parts.push(...drawRead(each, trace, {x, y, step, top, bottom, high}));
  for (const [anchor, offset] of [["start", low], ["end", high]]) {
    parts.push(svg("text", {x: anchor === "start" ? 40 : 990, y: bottom + 16, "text-anchor": anchor}, `offset ${count(offset)}`));
  }
  parts.push(svg("text", {x: 0, y: 14}, `oldest of ${count(each.listed)} objects`));
  const kinds = Object.entries(MEANING).map(([mark, name]) => `${[...each.marks].filter((one) => one === mark).length} ${name}`);
  const label = `Node ${each.node_id}: ${kinds.join(", ")}, ${each.holes.length} holes`;
  return node("figure", {}, node("figcaption", {}, label),
    svg("svg", {viewBox: `0 0 1000 ${bottom + 24}`, role: "img", "aria-label": label}, ...parts));
}

function drawRead(each, trace, scale) {
  const {x, y, step, top, bottom, high} = scale;
  const {start, end} = trace.request;
  const parts = [svg("rect", {class: "read", x: x(start), y: top - 4, width: Math.max(2, x(end < 0 ? high : end) - x(start)), height: bottom - top + 8})];
  for (const round of trace.events.filter((event) => event.opened && event.node_id === each.node_id)) {
    for (const opened of round.opened) {
      if (opened.position < each.first) continue;
      const held = opened.held;
      const at = held ? x(held.start) : 26;
      const width = held ? Math.max(3, x(held.end) - at) : 8;
      parts.push(svg("rect", {class: "opened", x: at, y: y(opened.position), width, height: Math.max(3, step - .5)},
        svg("title", {}, `round ${round.number} opened object ${opened.object_id}`)));
      if (held && step >= 4) parts.push(svg("text", {x: Math.min(985, at + width + 2), y: y(opened.position) + step}, `${round.number}`));
    }
  }
  const ids = new Set((trace.answer ? trace.answer.objects : []).map((found) => found.object_id));
  for (const [position, id, from, to] of each.known) {
    if (ids.has(id)) {
      parts.push(svg("rect", {class: "picked", x: x(from), y: y(position), width: Math.max(3, x(to) - x(from)), height: Math.max(3, step - .5)},
        svg("title", {}, `the answer has object ${id}`)));
    }
  }
  return parts;
}

function showMap(map, trace) {
  const read = trace && {start: trace.request.start, end: trace.request.end};
  const [low, high] = offsetsOf(map, read);
  const drawn = map.nodes.map((each) => drawNode(each, low, high, trace));
  const names = ["known", "absent", "unknown", "excluded", "hole", ...(trace ? ["read", "opened", "picked"] : [])];
  const words = {known: "known to hold it", absent: "known not to", unknown: "unknown", excluded: "excluded by filter or list",
    hole: "hole", read: "the read", opened: "opened, with its round", picked: "in the answer"};
  const legend = node("ul", {class: "legend"}, ...names.map((name) => node("li", {}, swatch(name), ` ${words[name]}`)));
  const parts = [legend, ...drawn];
  const before = mapsBefore.get(map.stream_id);
  if (before && before.image_version !== map.image_version) {
    const was = before.nodes.map((each) => drawNode(each, low, high, null));
    const listed = (told) => told.nodes.reduce((sum, each) => sum + each.listed, 0);
    const text = `Before the last change of the image: ${count(listed(before))} objects listed, now ${count(listed(map))}`;
    parts.push(node("details", {}, node("summary", {}, text), ...was));
  }
  if (!before || before.image_version !== map.image_version) mapsBefore.set(map.stream_id, map);
  if (mapsBefore.size > 50) mapsBefore.delete(mapsBefore.keys().next().value);
  byId("map").replaceChildren(...parts);
}

function tell(event) {
  if (event.opened) {
    const held = event.opened.filter((one) => one.held).map((one) => `object ${one.object_id} has [${one.held.start}, ${one.held.end})`);
    const more = held.length > 6 ? `, and ${held.length - 6} more` : "";
    return `Round ${event.number}: opened ${event.opened.length} of ${event.candidates} candidates, `
      + `${event.requests} requests, ${size(event.bytes)}; ${held.slice(0, 6).join(", ") || "none holds the stream"}${more}`;
  }
  if (event.owned) return `At ${count(event.offset)}: node ${event.owned.node_id} owns [${count(event.owned.start)}, ${offsetText(event.owned.end)}) and lists ${count(event.listed_objects)} objects`;
  if (event.found) return `Took object ${(event.found.ref ? event.found.ref.object_id : event.found.object_id)} with [${event.found.start}, ${event.found.end}), known from ${event.source}`;
  if (event.reason) return event.reason;
  if (event.what) return `Snapshot ${event.what}: ${event.trouble || `${event.covered} of ${event.listed} objects covered`}`;
  return event.event;
}

async function explain(form) {
  const query = new URLSearchParams(new FormData(form));
  const trace = await ask(`/v1/explain?${query}`);
  const cost = trace.cost;
  const told = trace.error
    ? `Failed: ${trace.error.type}: ${trace.error.message}`
    : `${counted(trace.answer.objects.length, "object")}; ${trace.answer.ending} at ${count(trace.answer.resume_offset)}. `
      + `${counted(cost.rounds, "round")}, ${counted(cost.requests, "request")}, ${size(cost.bytes)}; opening everything: ${count(cost.requests_if_everything_was_opened)}.`;
  byId("answer").textContent = told;
  byId("trace").replaceChildren(...trace.events.map((event) => node("li", {}, tell(event))));
  showMap(await ask(`/v1/map?stream_id=${trace.request.stream_id}`), trace);
}

async function mapOnly(form) {
  byId("answer").textContent = "";
  byId("trace").replaceChildren();
  showMap(await ask(`/v1/map?stream_id=${encodeURIComponent(form.stream_id.value)}`), null);
}

// The history of a stream

function showEpochs(epochs, head) {
  const width = 940 / Math.max(1, epochs.length);
  const y = (key) => 310 - 290 * key;
  const parts = [patterns()];
  const cut = new Map(Object.entries(head.cut));
  const begun = new Set();
  let lead = true;
  epochs.forEach((epoch, at) => {
    const names = epoch.segments.map((each) => each.segment);
    if (names.some((name) => cut.has(name))) lead = false;
    for (const each of epoch.segments) {
      const top = y(each.key_end);
      const isGone = lead && !cut.has(each.segment);
      parts.push(svg("rect", {x: 50 + at * width, y: top, width: Math.max(1, width - 1), height: Math.max(1, y(each.key_start) - top - 1),
        fill: isGone ? "url(#p-absent)" : begun.has(each.segment) ? "url(#p-known)" : "url(#p-unknown)"},
        svg("title", {}, `segment ${each.segment}: keys [${each.key_start}, ${each.key_end}) in epoch ${epoch.epoch}`)));
      if (!begun.has(each.segment) && cut.has(each.segment)) {
        parts.push(svg("line", {class: "cut", x1: 50 + at * width, x2: 50 + at * width, y1: top, y2: y(each.key_start)},
          svg("title", {}, `the stream begins at offset ${cut.get(each.segment)} of it`)));
      }
      begun.add(each.segment);
    }
    if (width > 60 || at === 0 || at === epochs.length - 1) {
      parts.push(svg("text", {x: 50 + at * width, y: 328}, `epoch ${epoch.epoch}`));
    }
  });
  for (const key of [0, .5, 1]) parts.push(svg("text", {x: 0, y: y(key) + 4}, `key ${key}`));
  const label = `${epochs.length} epochs; the last has ${epochs[epochs.length - 1].segments.length} segments`;
  const legend = node("ul", {class: "legend"}, ...[["unknown", "segment begins"], ["known", "goes on"], ["absent", "truncated"],
    ["cut", "the stream begins here"]].map(([kind, text]) => node("li", {}, swatch(kind), ` ${text}`)));
  const rows = epochs.map((epoch) => node("tr", {}, node("th", {scope: "row"}, `${epoch.epoch}`), node("td", {}, new Date(epoch.time_ms).toISOString()),
    node("td", {}, `${epoch.splits}`), node("td", {}, `${epoch.merges}`), node("td", {}, `${epoch.segments.length}`)));
  const titles = node("tr", {}, ...["Epoch", "Since", "Splits", "Merges", "Segments"].map((text) => node("th", {scope: "col"}, text)));
  byId("epochs").replaceChildren(legend, svg("svg", {viewBox: "0 0 1000 336", role: "img", "aria-label": label}, ...parts),
    node("table", {}, node("thead", {}, titles), node("tbody", {}, ...rows)));
}

async function history(form) {
  const path = `/v1/streams/${encodeURIComponent(form.scope.value)}/${encodeURIComponent(form.stream.value)}`;
  const [told, head] = await Promise.all([ask(`${path}/epochs?limit=1000`), ask(`${path}/head`)]);
  const more = told.more ? "; there are more, these are the first" : "";
  const deleting = head.is_deleting ? "; something is still being deleted" : "";
  const begins = Object.entries(head.cut).map(([name, offset]) => `${name} from ${count(offset)}`).join(", ");
  byId("history-text").textContent = `${counted(told.epochs.length, "epoch")}${more}. It begins with ${begins || "its first segments"}${deleting}.`;
  if (told.epochs.length) showEpochs(told.epochs, head);
}

// The page's life

function guarded(work) {
  return async () => {
    try { await work(); showError(null); } catch (error) { showError(error instanceof Problem ? error : new Problem(`The page failed: ${error.message}`)); }
  };
}

async function poll() {
  const ready = await ask("/readyz");
  byId("state").textContent = [ready.state || ready.title, ...(ready.reasons || [])].join(": ");
  if (!prices) prices = await ask("/v1/prices");
  const stats = await ask("/v1/stats");
  samples.push({rounds: byRounds(stats.lookups.rounds_each)});
  if (samples.length > SAMPLES_MAX) samples.shift();
  showFigures(stats);
  showMemory(stats);
  showRounds();
}

let pollFailed = false;

async function keepPolling() {
  try {
    await poll();
    if (pollFailed) showError(null);
    pollFailed = false;
  } catch (error) {
    pollFailed = true;
    showError(error instanceof Problem ? error : new Problem(`The page failed: ${error.message}`));
  }
  setTimeout(keepPolling, POLL_MS);
}

function onSubmit(id, work) {
  byId(id).addEventListener("submit", (event) => { event.preventDefault(); guarded(() => work(event.target))(); });
}

onSubmit("read", explain);
onSubmit("history-form", history);
onSubmit("token-form", async () => {
  token = byId("token").value;
  byId("token-form").hidden = true;
  await poll();
});
byId("map-only").addEventListener("click", () => {
  if (byId("read").stream_id.reportValidity()) guarded(() => mapOnly(byId("read")))();
});
keepPolling();
