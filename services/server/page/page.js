// Shows what the event stream of this node sends. All text from the node becomes text nodes, never HTML.
"use strict";

const RELOAD_SECONDS = 10; // between two readings of `state` while there is no event stream
const RETRY_SECONDS = 30; // until the event stream is tried again after a refusal
const HOUR = 3600;
const SVG = "http://www.w3.org/2000/svg";
const CHARTS = [
  { series: "node.cpu", title: "CPU of the node", unit: cores },
  { series: "node.memory", title: "Memory of the node", unit: bytes },
  { series: "agent.cpu", title: "CPU of the agent", unit: percent },
  { series: "agent.memory", title: "Memory of the agent", unit: bytes },
  { series: "beats.interval", title: "Longest time between two beats", unit: seconds },
  { series: "messages.delay", title: "Longest delay of a beat", unit: seconds },
  { series: "pods.start", title: "Longest start of a pod", unit: seconds, points: true },
];

const byId = (id) => document.getElementById(id);
let state = null; // the newest state of the node
let received = 0; // when the ages in it were right, milliseconds
const rows = new Map(); // UID of a pod -> its table row
const order = { key: "waits_for", descending: true }; // what waits comes first
let story = null; // the pod whose story is open

// Texts

function element(name, text = "", className = "") {
  const made = document.createElement(name);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}

function words(target, text) { // a line may break between the words of ImagePullBackOff
  for (const word of text.split(/(?=[A-Z][a-z])/)) target.append(document.createElement("wbr"), word);
  return target;
}

function cores(value) { return value >= 10 ? `${value.toFixed(0)} cores` : `${value.toFixed(2)} cores`; }
function percent(value) { return `${value.toFixed(1)} %`; }
function seconds(value) { return value < 1 ? `${(value * 1000).toFixed(value < 0.01 ? 1 : 0)} ms` : `${value.toFixed(1)} s`; }
function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return `${value.toFixed(value < 10 && unit ? 1 : 0)} ${units[unit]}`;
}
function duration(age) {
  if (age === null || Number.isNaN(age)) return "-";
  for (const [unit, length, limit] of [["s", 1, 120], ["m", 60, 7200], ["h", 3600, 172800]]) {
    if (age < limit) return `${Math.max(0, Math.floor(age / length))}${unit}`;
  }
  return `${Math.floor(age / 86400)}d`;
}
function sinceThen() { return (Date.now() - received) / 1000; }

// The state, complete and changed

function takeState(complete) {
  if (state && state.version !== complete.version) { location.reload(); return; }
  state = complete;
  received = Date.now();
  for (const uid of rows.keys()) if (!(uid in state.pods)) removePod(uid);
  for (const uid of Object.keys(state.pods)) showPod(uid);
  arrangePods();
  showNode(); showProcesses(); showTroubles(); showCharts();
}

function takeChange(change) {
  for (const [uid, pod] of Object.entries(change.pods || {})) {
    if (pod === null) { delete state.pods[uid]; removePod(uid); }
    else { state.pods[uid] = pod; showPod(uid); }
  }
  if (change.pods) arrangePods();
  if (change.node) { state.node = change.node; showNode(); }
  if (change.processes) { state.processes = change.processes; received = Date.now(); }
  if (change.history) addToHistory(change.history);
  if (change.processes || change.history) showProcesses();
  if (change.troubles) { state.troubles = change.troubles; showTroubles(); }
  if (change.history) showCharts();
}

function addToHistory(added) {
  const { at, values } = state.history;
  if (at.length && added.at[0] <= at[at.length - 1]) { state.history = added; return; } // the clock was set back
  at.push(...added.at);
  for (const [name, more] of Object.entries(added.values)) (values[name] ||= new Array(at.length - added.at.length).fill(null)).push(...more);
  while (at.length && at[0] < at[at.length - 1] - HOUR) {
    at.shift();
    for (const series of Object.values(values)) series.shift();
  }
}

// The node, its troubles and processes

function showNode() {
  const node = state.node;
  byId("node").textContent = node.name;
  document.title = `${node.ready ? "" : "Not ready: "}${node.name} - Bulkhead`;
  const verdict = byId("verdict");
  setText(verdict, node.ready ? "Ready" : "Not ready");
  verdict.className = `verdict ${node.ready ? "good" : "bad"}`;
  byId("facts").replaceChildren(...node.facts.map((fact) => element("li", fact)));
  byId("problems-section").hidden = node.ready;
  byId("problems").replaceChildren(...node.problems.map((problem) => element("li", problem)));
}

function setText(target, text) { if (target.textContent !== text) target.textContent = text; } // a screen reader reads changes

function showTroubles() {
  byId("no-troubles").hidden = state.troubles.length > 0;
  byId("troubles").hidden = state.troubles.length === 0;
  byId("troubles").replaceChildren(...state.troubles.map((line) => element("li", line)));
}

function showProcesses() {
  const body = byId("processes").tBodies[0];
  body.replaceChildren(...state.processes.map((process) => {
    const row = element("tr");
    const service = element("th", process.service);
    service.scope = "row";
    const cpu = element("td", process.cpu === null ? "-" : percent(process.cpu), "number");
    const spark = element("td", "", "wide");
    spark.append(sparkline(state.history.values[`cpu/${process.service}`] || [], `CPU of ${process.service}`));
    const age = process.age === null ? null : process.age + sinceThen();
    row.append(
      service,
      element("td", process.state, process.state === "running" ? "state good" : "state bad"),
      cpu,
      spark,
      element("td", process.memory === null ? "-" : bytes(process.memory), "number"),
      element("td", duration(age), "number wide"),
      element("td", process.restarts < 15 ? `${process.restarts}` : "15+", "number wide"),
      element("td", process.pid === null ? "-" : `${process.pid}`, "number wide"),
    );
    return row;
  }));
}

// Pods

function showPod(uid) {
  const pod = state.pods[uid];
  const row = element("tr");
  row.dataset.uid = uid;
  const name = element("th");
  name.scope = "row";
  const button = element("button", pod.name);
  button.type = "button";
  button.addEventListener("click", () => openStory(uid));
  name.append(button, element("span", pod.namespace, "namespace"));
  const well = !pod.waits_for && ["Running", "Completed", "Succeeded"].includes(pod.state);
  row.append(
    name,
    words(element("td", "", `state ${well ? "good" : "warn"}`), pod.state),
    element("td", pod.waits_for || "-", pod.waits_for ? "" : "muted"),
    element("td", `${pod.ready}/${pod.containers}`, "number wide"),
    element("td", `${pod.restarts}`, "number wide"),
    element("td", podAge(pod), "number wide"),
  );
  const before = rows.get(uid);
  if (before) {
    const focused = before.contains(document.activeElement);
    before.replaceWith(row);
    if (focused) button.focus();
  }
  rows.set(uid, row);
  if (story === uid) readStory();
}

function podAge(pod) { return pod.started ? duration((Date.now() - Date.parse(pod.started)) / 1000) : "-"; }

function removePod(uid) { rows.get(uid)?.remove(); rows.delete(uid); }

function arrangePods() {
  const all = Object.entries(state.pods);
  const wanted = byId("filter").value.trim().toLowerCase();
  const onlyWaiting = byId("waiting").checked;
  const shown = all.filter(([, pod]) => (!onlyWaiting || pod.waits_for)
    && (!wanted || `${pod.namespace}/${pod.name} ${pod.state} ${pod.waits_for}`.toLowerCase().includes(wanted)));
  shown.sort(([, one], [, other]) => compare(one, other) * (order.descending ? -1 : 1) || byName(one, other));
  const body = byId("pods").tBodies[0];
  const focused = document.activeElement;
  const inOrder = shown.map(([uid]) => rows.get(uid));
  if (inOrder.length !== body.rows.length || inOrder.some((row, index) => row !== body.rows[index])) {
    body.replaceChildren(...inOrder);
    if (body.contains(focused)) focused.focus();
  }
  const waiting = all.filter(([, pod]) => pod.waits_for).length;
  const count = shown.length === all.length ? `${all.length} pods` : `${shown.length} of ${all.length} pods`;
  setText(byId("counts"), `${count}, ${waiting} wait`);
  byId("no-pods").hidden = shown.length > 0;
}

function byName(one, other) { return one.namespace.localeCompare(other.namespace) || one.name.localeCompare(other.name); }

function compare(one, other) {
  switch (order.key) {
    case "name": return byName(one, other);
    case "ready": return one.ready - one.containers - (other.ready - other.containers);
    case "restarts": return one.restarts - other.restarts;
    case "started": return other.started.localeCompare(one.started);
    default: return one[order.key].localeCompare(other[order.key]);
  }
}

function sortBy(button) {
  const key = button.dataset.sort;
  order.descending = order.key === key && !order.descending;
  order.key = key;
  for (const other of document.querySelectorAll("[data-sort]")) {
    const direction = order.descending ? "descending" : "ascending";
    other.closest("th").setAttribute("aria-sort", other === button ? direction : "none");
  }
  arrangePods();
}

// The story of one pod

function openStory(uid) {
  story = uid;
  byId("story-title").textContent = `${state.pods[uid].namespace}/${state.pods[uid].name}`;
  byId("story-body").replaceChildren(element("p", "Loading", "muted"));
  byId("story").showModal();
  readStory();
}

async function readStory() {
  const uid = story;
  const pod = state.pods[uid];
  if (pod) {
    const waits = pod.waits_for ? `, waits for ${pod.waits_for}` : "";
    byId("story-facts").textContent = `${pod.state}${waits}. ${pod.ready} of ${pod.containers} containers are ready.${pod.ip ? ` ${pod.ip}` : ""}`;
  }
  let shown;
  try {
    const path = `explain/${encodeURIComponent(pod?.namespace || "default")}/${encodeURIComponent(uid)}?output=json`;
    const answer = await fetch(path, { cache: "no-store" });
    shown = answer.ok ? storyLines(await answer.json()) : [element("p", (await answer.text()).slice(0, 300))];
  } catch {
    shown = [element("p", "The node does not answer.")];
  }
  if (story === uid) byId("story-body").replaceChildren(...shown);
}

function storyLines(data) {
  const list = element("ol");
  let day = "";
  for (const line of data.story) {
    const moment = new Date(line.at * 1000);
    if (moment.toDateString() !== day) {
      day = moment.toDateString();
      list.append(element("li", moment.toLocaleDateString(undefined, { dateStyle: "full" }), "day"));
    }
    const item = element("li");
    const time = element("time", moment.toLocaleTimeString(undefined, { hour12: false }));
    time.dateTime = moment.toISOString();
    item.append(time, element("span", line.says));
    list.append(item);
  }
  const parts = data.complete ? [] : [element("p", "Earlier lines have made room for newer ones.", "muted")];
  parts.push(data.story.length ? list : element("p", "Nothing yet.", "muted"));
  if (data.restarts.length) {
    const answers = element("ol");
    for (const answer of data.restarts) {
      const item = element("li");
      const waited = answer.waited ? `, after ${answer.waited}` : "";
      item.append(
        element("time", new Date(answer.at * 1000).toLocaleTimeString(undefined, { hour12: false })),
        element("span", `${answer.container}, attempt ${answer.attempt}: ${answer.because}${waited}`),
      );
      answers.append(item);
    }
    parts.push(element("h3", "Why containers were restarted"), answers);
  }
  return parts;
}

// Charts

function showCharts() {
  const { at, values } = state.history;
  const span = at.length ? at[at.length - 1] - at[0] : 0;
  const begin = at.length ? new Date(at[0] * 1000).toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", hour12: false }) : "";
  byId("since").textContent = !at.length ? "The first sample comes within ten seconds."
    : span < HOUR - 60 ? `Since ${begin}, when the process server started. It keeps the samples in memory.` : `Since ${begin}.`;
  byId("charts").replaceChildren(...CHARTS.map((chart) => figure(chart, at, values[chart.series] || [])));
}

function figure(chart, at, series) {
  const known = series.filter((value) => value !== null && value !== undefined);
  const highest = known.length ? Math.max(...known) : 0;
  const newest = [...series].reverse().find((value) => value !== null && value !== undefined);
  const present = newest === undefined ? "no value" : `${chart.points ? "newest" : "now"} ${chart.unit(newest)}`;
  const summary = known.length ? `${present}, highest ${chart.unit(highest)}` : "no value yet";
  const made = element("figure");
  const caption = element("figcaption");
  caption.append(element("b", chart.title), element("span", summary));
  const image = drawing("chart", `${chart.title} in the last hour: ${summary}`, 360, 96);
  const limit = highest > 0 ? highest * 1.1 : 1;
  const end = at.length ? at[at.length - 1] : 0;
  const points = series.map((value, index) => [360 * (1 - (end - at[index]) / HOUR), value === null || value === undefined ? null : 96 - 96 * value / limit]);
  for (const y of [0, 48, 96]) image.append(shape("line", { x1: 0, x2: 360, y1: y, y2: y }));
  if (chart.points) image.append(shape("path", { d: points.filter(([, y]) => y !== null).map(([x, y]) => `M${x.toFixed(1)} 96V${y.toFixed(1)}`).join("") }));
  else image.append(...curve(points, 96));
  const axis = element("p", "", "axis");
  axis.append(element("span", "1 h ago"), element("span", "now"));
  made.append(caption, image, axis);
  return made;
}

function sparkline(series, label) {
  const known = series.filter((value) => value !== null && value !== undefined);
  const highest = Math.max(1, ...known);
  const image = drawing("spark", known.length ? `${label}: highest ${percent(highest)}` : `${label}: no value yet`, 360, 20);
  image.append(...curve(series.map((value, index) => [360 - series.length + index + 1, value === null || value === undefined ? null : 19 - 18 * value / highest]), 20));
  return image;
}

function drawing(className, label, width, height) {
  const image = shape("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label, class: className });
  return image;
}

function shape(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function curve(points, floor) { // a gap where a sample has no value
  let line = "", area = "", part = [];
  const finish = () => {
    if (part.length) {
      const path = part.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L");
      line += `M${path}${part.length === 1 ? "h0.5" : ""}`;
      area += `M${part[0][0].toFixed(1)} ${floor}L${path}V${floor}Z`;
    }
    part = [];
  };
  for (const point of points) if (point[1] === null) finish(); else part.push(point);
  finish();
  return [shape("path", { d: area, class: "area" }), shape("path", { d: line })];
}

// The connection

let source = null, reloads = 0, retry = 0;

function connect() {
  clearTimeout(retry);
  source?.close();
  source = new EventSource("events");
  source.addEventListener("state", (event) => { connected(); takeState(JSON.parse(event.data)); });
  source.addEventListener("change", (event) => { connected(); takeChange(JSON.parse(event.data)); });
  source.onerror = () => {
    if (source.readyState !== EventSource.CLOSED) { setText(byId("connection"), "No connection; trying again"); return; }
    reload(); // refused: too many pages are open, or the right was withdrawn
    retry = setTimeout(connect, RETRY_SECONDS * 1000);
  };
}

function connected() {
  clearTimeout(reloads);
  setText(byId("connection"), "Connected");
}

async function reload() {
  clearTimeout(reloads);
  try {
    const answer = await fetch("state", { cache: "no-store" });
    if (!answer.ok) throw new Error(`${answer.status}`);
    takeState(await answer.json());
    setText(byId("connection"), `Reloaded every ${RELOAD_SECONDS} s`);
  } catch (error) {
    setText(byId("connection"), `No connection (${error.message}); trying again`);
  }
  if (!document.hidden) reloads = setTimeout(reload, RELOAD_SECONDS * 1000);
}

function showAges() {
  if (!state) return;
  for (const [uid, row] of rows) if (state.pods[uid]) setText(row.lastElementChild, podAge(state.pods[uid]));
}

for (const button of document.querySelectorAll("[data-sort]")) button.addEventListener("click", () => sortBy(button));
byId("filter").addEventListener("input", () => state && arrangePods());
byId("waiting").addEventListener("change", () => state && arrangePods());
byId("story-close").addEventListener("click", () => byId("story").close());
byId("story").addEventListener("close", () => {
  rows.get(story)?.querySelector("button").focus();
  story = null;
});
setInterval(showAges, 10000);
document.addEventListener("visibilitychange", () => { // a page that is not visible costs the node nothing
  if (!document.hidden) connect();
  else { source?.close(); clearTimeout(retry); clearTimeout(reloads); }
});
if (!document.hidden) connect(); // a tab may be opened in the background
