// Draws maps, lookups, histories and images as SVG and tables, from plain data: it sends no request and keeps no state.
// The console imports this module, and each cell of a notebook contains it (accel/drawing/__init__.py).

const SVG = "http://www.w3.org/2000/svg";
const ROWS_MAX = 240; // of a map: more objects share rows
const DRAWN_MAX = 5000; // marks of one kind in one picture
const LEFT = 50; // pixels beside the picture, for what stands at its axis
const MEANING = {k: "known", ".": "absent", x: "excluded", "?": "unknown"};
const TELLING = "k?x."; // of several objects in one row the first of these wins
const WORDS = {known: "known to hold it", absent: "known not to", unknown: "unknown", excluded: "excluded by filter or list",
  hole: "hole", read: "the read", opened: "opened, with its round", picked: "in the answer"};

export function node(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

export function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// A whole number beyond 2^53: exact as text, and near enough for the place of a mark.
class Exact extends Number {
  constructor(text) { super(text); this.text = text; }
  toString() { return this.text; }
  toJSON() { return this.text; }
}

// As JSON.parse, but whole numbers beyond 2^53 are `Exact`: offsets and ids have 64 bits.
export function parseExact(text) {
  const marked = text.replace(/"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*/g, (token) => (/^-?\d{16,}$/.test(token) ? `{"$whole":"${token}"}` : token));
  return JSON.parse(marked, (_, value) => {
    const whole = value !== null && typeof value === "object" ? value.$whole : undefined;
    return typeof whole !== "string" ? value : Number.isSafeInteger(Number(whole)) ? Number(whole) : new Exact(whole);
  });
}

// The difference of two whole numbers, computed exactly.
const minus = (one, other) => (one instanceof Exact || other instanceof Exact ? Number(BigInt(`${one}`) - BigInt(`${other}`)) : one - other);
export const count = (number) => (number instanceof Exact ? BigInt(number.text) : Number(number)).toLocaleString("en");
export const counted = (number, what) => `${count(number)} ${what}${number === 1 ? "" : "s"}`;
export const share = (part, whole) => (whole ? `${((100 * part) / whole).toFixed(1)} %` : "–");
export const moment = (ms) => new Date(ms).toISOString().slice(0, 19).replace("T", " ");
const sum = (numbers) => numbers.reduce((all, one) => all + one, 0);
const span = (start, end) => `[${count(start)}, ${end === -1 ? "…" : count(end)})`;

export function size(bytes) {
  if (bytes < 0) return "unknown";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let at = 0;
  while (bytes >= 1024 && at < units.length - 1) { bytes /= 1024; at += 1; }
  return `${bytes.toFixed(at ? 1 : 0)}\u00a0${units[at]}`;
}

// Functions that all drawings share

const drawing = (label, width, height, ...parts) => svg("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label}, ...parts);
const titled = (name, attributes, text) => svg(name, attributes, svg("title", {}, text));
const boxOf = (kind, x, y, width, height, more = {}) => ({fill: `url(#p-${kind})`, x, y, width, height, ...more});

export function figure(name, value, more = "") {
  return node("div", {}, node("dt", {}, name), node("dd", {}, value), ...(more ? [node("dd", {class: "quiet small"}, more)] : []));
}

// The first cell of a row is its header. A long table scrolls separately, also by keyboard.
export function table(label, titles, rows, attributes = {}) {
  const head = node("tr", {}, ...titles.map((title) => node("th", {scope: "col"}, title)));
  const body = rows.map(([first, ...rest]) => node("tr", {}, node("th", {scope: "row"}, first), ...rest.map((cell) => node("td", {}, cell))));
  const made = node("table", {"aria-label": label, ...attributes}, node("thead", {}, head), node("tbody", {}, ...body));
  return rows.length > 12 ? node("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": label}, made) : made;
}

export function bar(part, whole) {
  const full = whole > 0 ? Math.min(1, part / whole) : 0;
  return svg("svg", {class: "level", viewBox: "0 0 100 10", preserveAspectRatio: "none", role: "img", "aria-label": share(full, 1)},
    svg("rect", {class: "bar", x: 0, y: 1, width: 100 * full, height: 8}),
    svg("rect", {class: "bound", x: .5, y: 1, width: 99, height: 8}));
}

// Patterns distinguish the kinds without colour. A document contains them once, in a picture of size 0.
export function patterns() {
  const pattern = (kind, ...lines) => svg("pattern", {id: `p-${kind}`, width: 8, height: 8, patternUnits: "userSpaceOnUse"},
    svg("rect", {class: kind, width: 8, height: 8}), ...lines);
  return svg("svg", {class: "patterns", width: 0, height: 0, "aria-hidden": "true"}, svg("defs", {}, pattern("known"), pattern("absent"),
    pattern("unknown", svg("path", {class: "hatch", d: "M0 8L8 0"})),
    pattern("excluded", svg("path", {class: "hatch", d: "M0 8L8 0M0 0L8 8"}))));
}

function swatch(kind) {
  const isFilled = Object.values(MEANING).includes(kind);
  const isLine = kind === "cut" || kind === "recorded";
  const shape = isFilled ? svg("rect", boxOf(kind, 0, 0, 18, 14))
    : isLine ? svg("line", {class: kind, x1: 9, x2: 9, y1: 0, y2: 14}) : svg("rect", {class: kind, x: 2, y: 2, width: 14, height: 10});
  return svg("svg", {viewBox: "0 0 18 14", "aria-hidden": "true"}, shape);
}

export function legend(items) {
  return node("ul", {class: "legend"}, ...items.map(([kind, text]) => node("li", {}, swatch(kind), ` ${text}`)));
}

// The map of a stream: offsets to the right, the objects of a node's list downwards, the oldest first

function offsetsOf(map, trace) {
  const spans = [...map.nodes.flatMap((each) => [...each.known.map(([, , start, end]) => [start, end]), ...each.owned]),
    ...map.stream_objects.map(([, start, end]) => [start, end])];
  let low = null;
  let high = null;
  const take = (offset) => {
    if (offset >= 0 && (low === null || minus(offset, low) < 0)) low = offset;
    if (offset >= 0 && (high === null || minus(offset, high) > 0)) high = offset;
  };
  for (const [start, end] of spans) { take(start); take(end); }
  for (const offset of trace ? [trace.request.start, trace.request.end] : []) {
    // a read far beyond would leave no room for the rest
    if (high === null || minus(high, low) <= 0 || minus(offset, high) <= minus(high, low)) take(offset);
  }
  if (low === null) return [0, 1];
  return minus(high, low) > 0 ? [low, high] : [low, low instanceof Exact ? new Exact(`${BigInt(low.text) + 1n}`) : low + 1];
}

function axis(low, high, width) {
  const whole = minus(high, low);
  const x = (offset) => LEFT + ((width - LEFT - 10) * Math.min(Math.max(minus(offset, low), 0), whole)) / whole;
  const labels = (y) => [svg("text", {x: LEFT, y}, `offset ${count(low)}`), svg("text", {x: width - 10, y, "text-anchor": "end"}, count(high))];
  return {low, high, x, labels};
}

function rowsOf(each) {
  const shown = each.marks.length;
  const rows = Math.max(1, Math.min(shown, ROWS_MAX));
  const step = Math.max(2, Math.min(16, 320 / rows));
  const row = (position) => Math.floor(((position - each.first) * rows) / Math.max(1, shown));
  return {rows, step, row, top: 24, bottom: 24 + rows * step, y: (position) => 24 + row(position) * step,
    has: (position) => position >= each.first && position < each.first + shown};
}

function drawMarks(each, {rows, step, row, top}) {
  const telling = new Array(rows).fill(TELLING.length);
  for (let at = 0; at < each.marks.length; at += 1) {
    const mine = row(each.first + at);
    telling[mine] = Math.min(telling[mine], TELLING.indexOf(each.marks[at]));
  }
  const parts = [];
  for (let at = 0, end = 0; each.marks.length && at < rows; at = end) {
    for (end = at; end < rows && telling[end] === telling[at];) end += 1;
    parts.push(svg("rect", boxOf(MEANING[TELLING[telling[at]]], 8, top + at * step, 24, (end - at) * step - .5)));
  }
  return parts;
}

// A row with unknown objects: their offsets must be between the known ranges before and after these objects.
function drawUnknown(each, {x, low, high}, {step, row, top}) {
  const parts = [];
  let before = low;
  let next = 0;
  for (let at = 0; at < each.marks.length;) {
    const mine = row(each.first + at);
    let begin = null;
    for (; at < each.marks.length && row(each.first + at) === mine; at += 1) {
      if (each.marks[at] !== "?") continue;
      const position = each.first + at;
      while (next < each.known.length && each.known[next][0] < position) { before = each.known[next][3]; next += 1; }
      begin = begin === null ? before : begin;
    }
    if (begin === null) continue;
    const after = next < each.known.length ? each.known[next][2] : high;
    parts.push(svg("rect", boxOf("unknown", x(begin), top + mine * step, Math.max(1, x(after) - x(begin)), step - .5, {opacity: .45})));
  }
  return parts;
}

// Touching neighbours are one rectangle, so that a picture has no more rectangles than pixels.
// rows: [y, id, start, end] in order; `joins` returns whether two neighbours with the same y, as drawn at x, are joined.
function drawRuns(rows, {x}, height, joins) {
  const parts = [];
  let last = null;
  const close = () => {
    if (!last || parts.length >= DRAWN_MAX) return;
    const what = last.count === 1 ? `object ${last.id} holds` : `${count(last.count)} objects hold`;
    parts.push(titled("rect", {class: "known", x: last.x, y: last.y, width: Math.max(2, last.end - last.x - .5), height}, `${what} ${span(last.from, last.to)}`));
  };
  for (const [y, id, start, end] of rows) {
    if (last && last.y === y && joins(last, x(start))) {
      Object.assign(last, {end: Math.max(last.end, x(end)), to: end, count: last.count + 1});
      continue;
    }
    close();
    last = {x: x(start), end: x(end), y, id, from: start, to: end, count: 1};
  }
  close();
  return parts;
}

const drawKnown = (each, scale, {step, y}) => drawRuns(each.known.map(([position, ...rest]) => [y(position), ...rest]), scale, step - .5,
  (last, at) => at <= last.end + 1);

const answerIds = (trace) => new Set((trace && trace.answer ? trace.answer.objects : []).map((found) => `${found.object_id}`));
const SOURCES = {image: "named by the image", memory: "known from memory", snapshot: "known from the snapshot", opened: "opened just now"};
const picked = (id, x, y, width, height) => titled("rect", {class: "picked", x, y, width: Math.max(3, width), height: Math.max(3, height)}, `the answer has object ${id}`);

function drawRead(each, trace, {x, high}, {step, top, bottom, y, has}) {
  const {start, end} = trace.request;
  const parts = [svg("rect", {class: "read", x: x(start), y: top - 4, width: Math.max(2, x(end < 0 ? high : end) - x(start)), height: bottom - top + 8})];
  const ids = answerIds(trace);
  for (const [position, id, from, to] of each.known) {
    if (ids.has(`${id}`)) parts.push(picked(id, x(from), y(position), x(to) - x(from), step - .5));
  }
  const drawn = new Set();
  const numbers = new Map(); // by place, above all boxes: where there is room
  for (const round of trace.events.filter((event) => event.opened && event.node_id === each.node_id)) {
    for (const opened of round.opened) {
      const held = opened.held;
      const at = held ? x(held.start) : LEFT - 16;
      const key = `${y(opened.position)} ${Math.round(at)}`;
      if (!has(opened.position) || drawn.has(key) || drawn.size >= DRAWN_MAX) continue;
      drawn.add(key);
      const width = held ? Math.max(3, x(held.end) - at) : 8;
      parts.push(titled("rect", {class: "opened", x: at, y: y(opened.position), width, height: Math.max(3, step - .5)},
        `round ${round.number} opened object ${opened.object_id}`));
      if (!held) continue;
      const isLate = at + width > x(high) - 14; // no room on the right
      const place = `${Math.floor(y(opened.position) / 12)} ${Math.floor(at / 12)}`;
      if (!numbers.has(place)) numbers.set(place, svg("text", {class: "round", x: isLate ? at - 3 : at + width + 3, y: y(opened.position) + step / 2 + 4, "text-anchor": isLate ? "end" : "start"}, `${round.number}`));
    }
  }
  return [...parts, ...numbers.values()];
}

function drawNode(each, scale, trace, width) {
  const rows = rowsOf(each);
  const kinds = Object.entries(MEANING).map(([mark, name]) => [name, each.marks.split(mark).length - 1]);
  const shown = each.marks.length;
  const part = shown < each.listed ? `objects ${count(each.first + 1)} to ${count(each.first + shown)} of ${count(each.listed)}` : `${counted(each.listed, "object")}`;
  const label = `Node ${each.node_id}, ${part}: ${kinds.map(([name, number]) => `${count(number)} ${name}`).join(", ")}, ${counted(each.holes.length, "hole")}`;
  const parts = [...drawMarks(each, rows), ...drawUnknown(each, scale, rows), ...drawKnown(each, scale, rows)];
  for (const [start, end] of each.holes.slice(0, DRAWN_MAX)) {
    parts.push(titled("rect", {class: "hole", x: scale.x(start), y: rows.top, width: Math.max(2, scale.x(end) - scale.x(start)), height: rows.bottom - rows.top},
      `hole ${span(start, end)}`));
  }
  if (trace) parts.push(...drawRead(each, trace, scale, rows));
  parts.push(svg("text", {x: 8, y: 14}, shown ? "oldest object first" : "the list is empty"), ...scale.labels(rows.bottom + 18));
  return node("figure", {}, node("figcaption", {}, label), drawing(label, width, rows.bottom + 24, ...parts));
}

function drawOwn(map, scale, trace, width) {
  const ids = answerIds(trace);
  const label = `${counted(map.stream_objects.length, "object")} of this stream alone`;
  const taken = map.stream_objects.filter(([id]) => ids.has(`${id}`)).slice(0, DRAWN_MAX);
  const parts = [...drawRuns(map.stream_objects.map((own) => [4, ...own]), scale, 16, (last, at) => at - last.x < 3),
    ...taken.map(([id, start, end]) => picked(id, scale.x(start), 4, scale.x(end) - scale.x(start) - 1, 16))];
  return node("figure", {}, node("figcaption", {}, label), drawing(label, width, 44, ...parts, ...scale.labels(38)));
}

// The parts of a map: its legend, and a figure for each node. With a trace, the read is drawn on the map.
export function mapView(map, trace, width) {
  const scale = axis(...offsetsOf(map, trace), width);
  const names = ["known", "absent", "unknown", "excluded", "hole", ...(trace ? ["read", "opened", "picked"] : [])];
  const own = map.stream_objects.length ? [drawOwn(map, scale, trace, width)] : [];
  return [legend(names.map((name) => [name, WORDS[name]])), ...own, ...map.nodes.map((each) => drawNode(each, scale, trace, width))];
}

// A lookup in words

export function answerText(trace) {
  const cost = trace.cost;
  if (trace.error) return `Failed: ${trace.error.type}: ${trace.error.message}`;
  return `${counted(trace.answer.objects.length, "object")}; ${trace.answer.ending} at ${count(trace.answer.resume_offset)}. `
    + `${counted(cost.rounds, "round")}, ${counted(cost.requests, "request")}, ${size(cost.bytes)}; opening everything: ${counted(cost.requests_if_everything_was_opened, "request")}.`;
}

function tell(event) {
  if (event.opened) {
    const held = event.opened.filter((one) => one.held).map((one) => `object ${one.object_id} has ${span(one.held.start, one.held.end)}`);
    const more = held.length > 6 ? `, and ${held.length - 6} more` : "";
    const opened = event.opened.length + (event.left_out || 0);
    return `Round ${event.number}: opened ${count(opened)} of ${counted(event.candidates, "candidate")}, `
      + `${counted(event.requests, "request")}, ${size(event.bytes)}; ${held.slice(0, 6).join(", ") || "none holds the stream"}${more}`;
  }
  if (event.owned) return `At ${count(event.offset)}: node ${event.owned.node_id} owns ${span(event.owned.start, event.owned.end)} and lists ${counted(event.listed_objects, "object")}`;
  if (event.found) return `Took object ${(event.found.ref ? event.found.ref.object_id : event.found.object_id)} with ${span(event.found.start, event.found.end)}, ${SOURCES[event.source] || event.source}`;
  if (event.reason) return event.reason;
  if (event.what) return `Snapshot ${event.what}: ${event.trouble || `${event.covered} of ${event.listed} objects covered`}`;
  return event.event;
}

export const traceItems = (trace) => trace.events.map((event) => node("li", {}, tell(event)));

// The same stream by two images, as after a compaction. Both are {map, trace}; a trace is of the same read, or null.
export function comparison(before, now, width) {
  const listed = ({map}) => count(sum(map.nodes.map((each) => each.listed)) + map.stream_objects.length);
  const rows = [["Version of the image", count(before.map.image_version), count(now.map.image_version)], ["Objects listed", listed(before), listed(now)],
    ["Their bytes", size(before.map.listed_bytes), size(now.map.listed_bytes)]];
  const read = now.trace || before.trace;
  if (read) {
    const told = (trace, of) => (!trace ? "not asked" : trace.answer ? of(trace) : "failed");
    const taken = (trace) => count(trace.answer.objects.length);
    const opened = (trace) => count(sum(trace.events.filter((event) => event.opened).map((event) => event.opened.length)));
    const name = `the read ${span(read.request.start, read.request.end)}`;
    rows.push([`Objects that ${name} takes`, told(before.trace, taken), told(now.trace, taken)],
      ["Objects that its lookup opened", told(before.trace, opened), told(now.trace, opened)]);
  }
  const label = "The stream before and after the image changed";
  return [node("h3", {}, label), table(label, ["What", "Before", "Now"], rows, {class: "comparison"}),
    node("details", {}, node("summary", {}, "The map before"), ...mapView(before.map, before.trace, width).slice(1))];
}

// The history of a stream: epochs to the right, keys upwards; a segment spans the epochs that it belongs to

function segmentsOf(epochs) {
  const found = new Map();
  epochs.forEach((epoch, at) => {
    for (const each of epoch.segments) {
      const known = found.get(each.segment);
      if (known) known.last = at;
      else found.set(each.segment, {name: each.segment, low: each.key_start, high: each.key_end, first: at, last: at});
    }
  });
  return found;
}

// A segment that is not in the cut is truncated if a segment of the cut with some of its keys began after it.
function goneSegments(segments, cut) {
  const kept = Object.keys(cut).map((name) => segments.get(name)).filter(Boolean);
  const isGone = (each) => !(each.name in cut) && kept.some((one) => one.low < each.high && each.low < one.high && each.first < one.first);
  return new Set([...segments.values()].filter(isGone).map((each) => each.name));
}

function timesOf(epochs, cuts) {
  const end = Math.max(epochs[epochs.length - 1].time_ms + 1, ...cuts.map((each) => each.recorded_ms));
  const times = [...epochs.map((each) => each.time_ms), end];
  return (time) => {
    let at = epochs.length - 1;
    while (at > 0 && times[at] > time) at -= 1;
    return at + Math.min(1, Math.max(0, (time - times[at]) / Math.max(1, times[at + 1] - times[at]))) * .94;
  };
}

// A line through the keys, at a place (in epochs) within the life of each segment; null if a segment is not shown.
function cutPath(cut, segments, place, {x, y}) {
  const names = Object.keys(cut);
  const found = names.map((name) => segments.get(name)).filter(Boolean).sort((one, other) => one.low - other.low);
  if (!names.length || found.length < names.length) return null;
  return found.map((each, at) => {
    const here = x(place === null ? each.first : Math.min(Math.max(place, each.first), each.last + 1));
    return `${at ? "L" : "M"}${here} ${y(each.low)}L${here} ${y(each.high)}`;
  }).join("");
}

const cutText = (cut) => Object.entries(cut).map(([name, offset]) => `${name} from ${count(offset)}`).join(", ");
const isSameCut = (one, other) => Object.keys(one).length === Object.keys(other).length && Object.entries(one).every(([name, offset]) => other[name] === offset);

function drawSegments(segments, gone, {x, y}) {
  return [...segments.values()].slice(0, DRAWN_MAX).flatMap((each) => {
    const top = y(each.high);
    const height = Math.max(1, y(each.low) - top - 1);
    const title = `segment ${each.name}: keys [${each.low}, ${each.high})`;
    const wide = (from, to) => ({x: x(from), width: Math.max(1, x(to) - x(from) - 1)});
    const isGone = gone.has(each.name);
    const whole = titled("rect", {...boxOf(isGone ? "absent" : "known", 0, top, 0, height), ...wide(each.first, each.last + 1)}, title);
    return isGone ? [whole] : [whole, titled("rect", {...boxOf("unknown", 0, top, 0, height), ...wide(each.first, each.first + .12)}, `segment ${each.name} begins`)];
  });
}

function drawCuts(told, segments, scale, head) {
  const parts = [];
  const place = timesOf(told.epochs, told.cuts);
  const begin = told.cuts.find((each) => isSameCut(each.cut, head));
  told.cuts.forEach((each, at) => {
    const path = cutPath(each.cut, segments, place(each.recorded_ms), scale);
    if (!path) return;
    parts.push(svg("path", {class: "halo", d: path}), titled("path", {class: each === begin ? "cut" : "recorded", d: path}, `cut ${at + 1}, recorded ${moment(each.recorded_ms)}: ${cutText(each.cut)}`));
    const [, left] = path.match(/^M(\S+)/);
    if (told.cuts.length <= 20) parts.push(svg("text", {class: "round", x: Number(left) + 3, y: scale.y(1) - 4}, `${at + 1}`));
  });
  const path = begin ? null : cutPath(head, segments, null, scale);
  if (path) parts.push(svg("path", {class: "halo", d: path}), titled("path", {class: "cut", d: path}, `the stream begins with ${cutText(head)}`));
  return parts;
}

function historyTables(told, head) {
  const epochs = told.epochs.map((epoch) => [`${epoch.epoch}`, moment(epoch.time_ms), count(epoch.splits), count(epoch.merges), count(epoch.segments.length)]);
  const cuts = told.cuts.map((each, at) => [`${at + 1}`, moment(each.recorded_ms), `${count(each.size)} ${told.unit}`, cutText(each.cut), isSameCut(each.cut, head) ? "yes" : ""]);
  const parts = [node("h3", {}, "Epochs"), table("Epochs", ["Epoch", "Since (UTC)", "Splits", "Merges", "Segments"], epochs, {class: "epochs"}), node("h3", {}, "Recorded cuts")];
  if (!cuts.length) return [...parts, node("p", {class: "quiet"}, "None: retention has not run, or there is no policy.")];
  return [...parts, table("Recorded cuts", ["Cut", "Recorded (UTC)", "Before it", "Segments", "Begins here"], cuts, {class: "cuts"})];
}

// told: {epochs, more, cuts, more_cuts, unit, head: {cut, is_deleting}}, as the routes below /v1/streams return.
export function historyView(told, width) {
  const {epochs, cuts} = told;
  if (!epochs.length) return [];
  const head = told.head.cut;
  const segments = segmentsOf(epochs);
  const gone = goneSegments(segments, head);
  const scale = {x: (at) => LEFT + ((width - LEFT - 10) * at) / epochs.length, y: (key) => 310 - 290 * key};
  const parts = [...drawSegments(segments, gone, scale), ...drawCuts(told, segments, scale, head)];
  const every = Math.max(1, Math.ceil((80 * epochs.length) / (width - LEFT)));
  epochs.forEach((epoch, at) => {
    if (at % every === 0) parts.push(svg("text", {x: scale.x(at), y: 328}, `epoch ${epoch.epoch}`));
  });
  for (const key of [0, .5, 1]) parts.push(svg("text", {x: 0, y: scale.y(key) + 4}, `key ${key}`));
  const label = `${counted(epochs.length, "epoch")}; the last has ${counted(epochs[epochs.length - 1].segments.length, "segment")}; `
    + `${counted(cuts.length, "recorded cut")}; ${counted(gone.size, "truncated segment")}`;
  return [legend([["unknown", "segment begins"], ["known", "goes on"], ["absent", "truncated"], ["recorded", "recorded cut"], ["cut", "the stream begins here"]]),
    drawing(label, width, 336, ...parts), ...historyTables(told, head)];
}

export function historyText(told) {
  const {epochs, cuts, head} = told;
  const more = told.more ? "; there are more, these are the first" : "";
  const last = told.more_cuts ? `, the last ${count(cuts.length)} are shown` : "";
  const deleting = head.is_deleting ? "; something is still being deleted" : "";
  return `${counted(epochs.length, "epoch")}${more}. ${counted(cuts.length, "recorded cut")}${last}. It begins with ${cutText(head.cut) || "its first segments"}${deleting}.`;
}

// The views of notebook cells; each takes the data of the Python object, and the width of the cell

function explanationView({trace, map}, width) {
  const {request} = trace;
  const head = node("h1", {}, `Stream ${request.stream_id}, offsets ${span(request.start, request.end)}, limit ${count(request.limit)}`);
  const events = trace.events_left_out ? [node("li", {}, `and ${counted(trace.events_left_out, "event")} more`)] : [];
  return [head, node("p", {}, answerText(trace)), ...(map ? mapView(map, trace, width) : []), node("ol", {class: "trace"}, ...traceItems(trace), ...events)];
}

const shortened = (text) => (text.length > 6 ? `…${text.slice(-5)}` : text);

function drawStreams(streams, width) {
  const map = {nodes: streams.map((each) => ({known: [], owned: each.owned})), stream_objects: streams.flatMap((each) => each.own.map(([start, end]) => [0, start, end]))};
  const scale = axis(...offsetsOf(map, null), width);
  const kinds = ["known", "unknown", "excluded", "absent"];
  const parts = streams.flatMap((each, at) => {
    const y = 4 + 24 * at;
    const box = (start, end) => ({x: scale.x(start), width: Math.max(2, scale.x(end < 0 ? scale.high : end) - scale.x(start))});
    const owned = each.owned.map(([start, end, nodeId]) => titled("rect", {...boxOf(kinds[nodeId % kinds.length], 0, y, 0, 12), ...box(start, end)},
      `stream ${each.stream_id}: node ${nodeId} owns ${span(start, end)}`));
    const own = each.own.map(([start, end]) => svg("rect", {class: "picked", y: y + 14, height: 4, ...box(start, end)}));
    return [svg("text", {x: LEFT - 6, y: y + 10, "text-anchor": "end"}, shortened(`${each.stream_id}`)), ...owned, ...own];
  });
  return drawing("Which node owns which offsets of these streams", width, 24 * streams.length + 28, ...parts, ...scale.labels(24 * streams.length + 20));
}

function imageView(image, width) {
  const most = Math.max(1, ...image.lists.map(([, objects]) => objects));
  const lists = image.lists.map(([nodeId, objects, bytes]) => [`${nodeId}`, count(objects), size(bytes), bar(objects, most)]);
  const streams = image.shown_streams.map((each) => [`${each.stream_id}`, count(each.start), each.owned.map(([start, end, nodeId]) => `${span(start, end)} node ${nodeId}`).join(", ")
    + (each.left_out ? `, and ${count(each.left_out)} more` : ""), count(each.own_count)]);
  const shown = (part, whole) => (part < whole ? ` (${count(part)} of ${count(whole)})` : "");
  return [node("h1", {}, `Image ${image.version} of namespace ${image.namespace}`),
    node("dl", {}, figure("Streams", count(image.streams)), figure("Nodes", count(image.nodes)), figure("Objects of nodes", count(image.objects)), figure("Their bytes", size(image.bytes))),
    ...(streams.length ? [node("h2", {}, `Streams: which node owns which offsets${shown(streams.length, image.streams)}`), drawStreams(image.shown_streams, width),
      table("Streams", ["Stream", "Kept from", "Owned", "Objects of its own"], streams, {class: "streams"})] : []),
    ...(lists.length ? [node("h2", {}, `Nodes, by the length of their lists${shown(lists.length, image.nodes)}`), table("Nodes", ["Node", "Objects", "Bytes", "Length"], lists)] : [])];
}

export const CELLS = {explanation: explanationView, image: imageView};
