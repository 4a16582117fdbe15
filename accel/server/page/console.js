// The console: asks the sidecar's routes, and shows what they tell. No library, nothing from elsewhere.
import {answerText, bar, comparison, count, figure, historyText, historyView, legend, mapView, node, parseExact, patterns, share, size, svg, table,
  traceItems} from "/drawing.js";

const POLL_MS = 5000;
const SAMPLES_MAX = 720;
const STREAMS_MAX = 50;
const CUTS_MAX = 50;
const ROUNDS = ["known", "absent", "unknown", "excluded"];
const samples = [];
const seen = new Map(); // stream id -> what was drawn of it last, and by the image before: {now, before}
const drawn = new Map(); // id of an element -> draws it again at another width
let token = "";
let prices = null;
let imageVersion = null;
let mapShown = null;

const byId = (id) => document.getElementById(id);

class Problem extends Error {}
class TokenNeeded extends Problem {}

async function ask(path) {
  let reply;
  try {
    reply = await fetch(path, {headers: token ? {Authorization: `Bearer ${token}`} : {}, cache: "no-store"});
  } catch (error) {
    throw new Problem("The sidecar does not answer. It is asked again.");
  }
  const text = await reply.text();
  let told = null;
  try { told = parseExact(text); } catch (error) { throw new Problem(`The sidecar answered ${reply.status}, without JSON.`); }
  if (reply.status === 401) throw new TokenNeeded(told.title);
  if (!reply.ok && path !== "/readyz") {
    throw new Problem([told.title, told.detail, told.advice].filter(Boolean).join(" — ") || `The sidecar answered ${reply.status}.`);
  }
  return told;
}

function askForToken() {
  const isRefused = token !== "";
  token = "";
  showError(isRefused ? new Problem("The sidecar refused this token. Type the one that it was started with.") : null);
  byId("token-text").textContent = "This sidecar needs a token to read from it.";
  showParts(false);
  byId("token").focus();
}

// Without a token there is nothing to show but the question for it.
function showParts(isKnown) {
  byId("token-form").hidden = isKnown;
  for (const part of document.querySelectorAll("main > section")) part.hidden = !isKnown;
}

function showError(error) {
  if (error instanceof TokenNeeded) { askForToken(); return; }
  byId("error").hidden = !error;
  byId("error").textContent = !error ? "" : error instanceof Problem ? error.message : `The page failed: ${error.message}`;
}

// Draws into an element at its width, now and when that changes.
function draw(id, make) {
  const again = () => byId(id).replaceChildren(...make(Math.max(280, Math.round(byId(id).clientWidth))));
  drawn.set(id, again);
  again();
}

// What it saves

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
  const rows = Object.entries(stats.caches).map(([name, cache]) => [name.replaceAll("_", " "), size(cache.size_bytes), size(cache.size_bytes_max), bar(cache.size_bytes, cache.size_bytes_max)]);
  byId("memory").replaceChildren(table("Memory by cache", ["Cache", "Size", "Bound", "Full"], rows));
}

const money = (value) => (value === null ? "–" : value ? value.toPrecision(3) : "0");

function showBill(bill, store) {
  const rows = Object.entries(bill.by_cause).sort(([, one], [, other]) => other.price - one.price).map(([cause, part]) =>
    [cause.replaceAll("-", " "), count(part.requests), count(part.repeated_requests), size(part.sent_bytes + part.received_bytes), money(part.month_price)]);
  const throttled = Object.values(store).reduce((all, each) => all + each.throttled, 0);
  byId("bill-title").textContent = bill.month_price === null
    ? "What the requests cost: a price of the month in a minute"
    : `What the requests cost: ${money(bill.month_price)} ${bill.currency} a month at the present rate`;
  byId("bill").replaceChildren(
    table("Requests by cause", ["Cause", "Requests", "Sent again", "Bytes", `${bill.currency} a month`], rows),
    Object.assign(document.createElement("p"), {textContent: `The store asked for fewer requests ${count(throttled)} times.`}));
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

function roundsView(width) {
  const steps = samples.slice(1).map((now, at) => {
    const before = samples[at].rounds;
    return Object.entries(now.rounds).map(([name, number]) => [name, Math.max(0, number - before[name])]);
  });
  const most = Math.max(1, ...steps.map((step) => step.reduce((all, [, number]) => all + number, 0)));
  const wide = width / Math.max(24, steps.length);
  const bars = steps.flatMap((step, at) => {
    let y = 140;
    return step.filter(([, number]) => number).map(([name, number]) => {
      const height = (130 * number) / most;
      y -= height;
      const kind = ROUNDS[Object.keys(samples[0].rounds).indexOf(name)];
      return svg("rect", {x: at * wide, y, width: Math.max(.5, wide - 1), height, fill: `url(#p-${kind})`});
    });
  });
  const totals = samples.length ? samples[samples.length - 1].rounds : {};
  const text = Object.entries(totals).map(([name, number]) => `${name}: ${count(number)}`).join(", ");
  const picture = svg("svg", {viewBox: `0 0 ${width} 160`, role: "img", "aria-label": `Since the sidecar began: ${text}`},
    ...bars, svg("line", {class: "axis", x1: 0, x2: width, y1: 140, y2: 140}),
    svg("text", {x: 0, y: 155}, bars.length ? `at most ${count(most)} in ${POLL_MS / 1000} s` : "no lookup since this page was opened"));
  return [picture, legend(Object.keys(totals).map((name, kind) => [ROUNDS[kind], `${name} (${count(totals[name])} in all)`]))];
}

// Slow lookups, and hot streams and nodes

const seconds = (number) => (number < 1 ? `${Math.round(number * 1000)} ms` : `${number.toPrecision(3)} s`);

function showSlow(slow) {
  byId("slow-text").textContent = slow.seconds === null ? "Slow lookups are not recorded." : slow.lookups.length
    ? `The last ${count(slow.lookups.length)} that took ${seconds(slow.seconds)} or longer, the latest first.` : `No lookup took ${seconds(slow.seconds)}.`;
  const open = new Set([...byId("slow-list").querySelectorAll("details[open]")].map((each) => each.dataset.key));
  byId("slow-list").replaceChildren(...slow.lookups.map((each) => {
    const {request, cost} = each;
    const key = `${each.ended_ms} ${request.stream_id} ${request.start}`;
    const text = `${new Date(each.ended_ms).toISOString().slice(0, 19).replace("T", " ")}: stream ${request.stream_id} from ${count(request.start)}: ${seconds(cost.seconds)}, by ${each.reason}`
      + ` (image ${seconds(cost.image_seconds)}; ${count(cost.requests)} requests, the longest ${seconds(cost.longest_seconds)})`;
    const attributes = {"data-key": key, ...(open.has(key) ? {open: ""} : {})};
    return node("details", attributes, node("summary", {}, text), node("pre", {tabindex: 0}, each.lines.join("\n")));
  }));
}

function showHot(hot) {
  const {lookups, gets, bytes} = hot.totals;
  byId("hot-text").textContent = `Last ${count(Math.round(hot.seconds / 60))} minutes: ${count(lookups)} lookups, ${count(gets)} GETs, ${size(bytes)}.`;
  const columns = (what) => {
    const ids = [...new Set(["lookups", "gets", "bytes"].flatMap((kind) => hot[what][kind].map((each) => each.id)))].slice(0, 20);
    const of = (kind, id) => hot[what][kind].find((each) => each.id === id);
    const shown = (kind, id, form) => (of(kind, id) ? form(of(kind, id).count) : "–");
    return ids.map((id) => [`${id}`, shown("lookups", id, count), shown("gets", id, count), shown("bytes", id, size)]);
  };
  byId("hot-list").replaceChildren(...["Streams", "Nodes"].map((name) =>
    table(`Hot ${name.toLowerCase()}`, [name.slice(0, -1), "Lookups", "GETs", "Bytes"], columns(name.toLowerCase()))));
}

// A stream and a read

const keyOf = (trace) => (trace ? JSON.stringify(trace.request) : "");

// What was drawn of a stream is kept, with the last trace of each read, and the same of the image before.
function remember(map, trace) {
  const key = `${map.stream_id}`;
  let kept = seen.get(key);
  if (!kept || kept.now.map.image_version !== map.image_version) kept = {before: kept ? kept.now : null, now: {map, traces: new Map()}};
  kept.now.map = map;
  if (trace) {
    const first = kept.now.traces.get(keyOf(trace)); // a repeated lookup opens nothing: the first one is what is compared
    if (!first && kept.now.traces.size < STREAMS_MAX) kept.now.traces.set(keyOf(trace), trace);
  }
  seen.delete(key);
  seen.set(key, kept);
  if (seen.size > STREAMS_MAX) seen.delete(seen.keys().next().value);
  return kept;
}

function showMap(map, trace) {
  const {before, now} = remember(map, trace);
  mapShown = map;
  showChanged();
  draw("map", (width) => mapView(map, trace, width));
  const of = (one) => ({map: one.map, trace: one.traces.get(keyOf(trace)) || null});
  draw("comparison", (width) => (before ? comparison(of(before), of(now), width) : []));
}

function showChanged() {
  const isOld = mapShown !== null && imageVersion !== null && imageVersion > mapShown.image_version;
  byId("changed").hidden = !isOld;
  byId("changed").textContent = isOld
    ? `This map is of image ${count(mapShown.image_version)}; now there is image ${count(imageVersion)}. Explain or Map only compares the two.` : "";
}

// What was asked before is not shown beside an error of what is asked now.
function clearRead() {
  mapShown = null;
  drawn.delete("map");
  drawn.delete("comparison");
  byId("answer").textContent = "";
  for (const id of ["trace", "map", "comparison"]) byId(id).replaceChildren();
  showChanged();
}

async function asked(path) {
  try { return await ask(path); } catch (error) { clearRead(); throw error; }
}

async function explain(form) {
  const query = new URLSearchParams(new FormData(form));
  remain(query);
  const trace = await asked(`/v1/explain?${query}`);
  byId("answer").textContent = answerText(trace);
  byId("trace").replaceChildren(...traceItems(trace));
  showMap(await ask(`/v1/map?stream_id=${trace.request.stream_id}&offset=${trace.request.start}`), trace);
}

async function mapOnly(form) {
  const map = await asked(`/v1/map?stream_id=${encodeURIComponent(form.stream_id.value)}`);
  byId("answer").textContent = "";
  byId("trace").replaceChildren();
  showMap(map, null);
}

// The history of a stream

async function history(form) {
  const path = `/v1/streams/${encodeURIComponent(form.scope.value)}/${encodeURIComponent(form.stream.value)}`;
  remain(new URLSearchParams(new FormData(form)));
  byId("history-text").textContent = "";
  byId("epochs").replaceChildren();
  drawn.delete("epochs");
  const [epochs, head, cuts] = await Promise.all([ask(`${path}/epochs?limit=1000`), ask(`${path}/head`), ask(`${path}/cuts?limit=${CUTS_MAX}`)]);
  const told = {epochs: epochs.epochs, more: epochs.more, cuts: cuts.cuts, more_cuts: cuts.more, unit: cuts.unit, head};
  byId("history-text").textContent = historyText(told);
  draw("epochs", (width) => historyView(told, width));
}

// The page's life

// What is shown is in the page's URL, which may be shared; the token is not.
const remain = (query) => window.history.replaceState(null, "", `#${query}`);

let hasOpened = false;

function openShared() {
  if (hasOpened) return;
  hasOpened = true;
  const given = new URLSearchParams(location.hash.slice(1));
  const form = byId(given.has("scope") ? "history-form" : "read");
  for (const [name, value] of given) if (form.elements[name]) form.elements[name].value = value;
  if ([...given].length) form.requestSubmit();
}

function guarded(work) {
  return async () => {
    try { await work(); showError(null); } catch (error) { showError(error); }
  };
}

async function poll() {
  const ready = await ask("/readyz");
  byId("state").textContent = [ready.state || ready.title, ...(ready.reasons || [])].join(": ");
  if (!byId("token-form").hidden) return false; // without a token there is nothing more to ask
  if (!prices) prices = await ask("/v1/prices");
  const stats = await ask("/v1/stats");
  samples.push({rounds: byRounds(stats.lookups.rounds_each)});
  if (samples.length > SAMPLES_MAX) samples.shift();
  imageVersion = stats.image_version;
  showChanged();
  showFigures(stats);
  showMemory(stats);
  showBill(stats.bill, stats.store);
  showSlow(await ask("/v1/slow"));
  showHot(await ask("/v1/hot"));
  draw("rounds", roundsView);
  openShared();
  return true;
}

let pollFailed = false;

async function keepPolling() {
  try {
    if (await poll()) {
      if (pollFailed) showError(null);
      pollFailed = false;
    }
  } catch (error) {
    pollFailed = true;
    showError(error);
  }
  setTimeout(keepPolling, POLL_MS);
}

function onSubmit(id, work) {
  byId(id).addEventListener("submit", (event) => { event.preventDefault(); guarded(() => work(event.target))(); });
}

document.body.append(patterns());
onSubmit("read", explain);
onSubmit("history-form", history);
onSubmit("token-form", async () => {
  const typed = byId("token").value;
  if (!typed) return;
  token = typed;
  byId("token").value = "";
  await ask("/v1/prices");
  showParts(true);
  await poll();
  drawn.forEach((again) => again());
});
byId("map-only").addEventListener("click", () => {
  if (byId("read").stream_id.reportValidity()) guarded(() => mapOnly(byId("read")))();
});
let resized = 0;
window.addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(() => drawn.forEach((again) => again()), 150);
});
keepPolling();
