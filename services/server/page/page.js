// Shows what the event stream of this node sends. All text from the node becomes text nodes, never HTML.
"use strict";

const RELOAD_SECONDS = 10; // between two readings of `state` while there is no event stream
const RETRY_SECONDS = 30; // until the event stream is tried again after a refusal of the node
const AWAY_SECONDS = 3; // until it is after one of a proxy: the node does not answer it
const BROKEN_SECONDS = 3; // without a connection until the page counts as out of date
const LATE_SECONDS = 25; // without an event until it does: the node sends one at least every ten
const LOST_SECONDS = 45; // without an event until the stream is opened again: its other end may be gone without a sign
const MAX_SHOWN_PODS = 8; // pods in the list at the begin of the page

let state = null; // the newest state of the node
let received = 0; // when the ages in it were right, milliseconds
const rows = new Map(); // UID of a pod -> its table row
const order = { key: "waits_for", descending: true }; // what waits comes first
const USAGE = ["cpu", "memory", "storage"]; // the columns of what a pod uses, as `state.usage` has them
const USAGE_CELL = 3; // the first of them in a row

function sinceThen() { return (Date.now() - received) / 1000; }

// The state, complete and changed

function takeState(complete) {
  if (state && state.version !== complete.version) { location.reload(); return; }
  state = complete;
  received = Date.now();
  for (const uid of rows.keys()) if (!(uid in state.pods)) removePod(uid);
  for (const uid of Object.keys(state.pods)) showPod(uid);
  arrangePods();
  showNode(); showConditions(); showMachine(); showProcesses(); showTroubles(); showCharts(state.history);
}

function takeChange(change) {
  for (const [uid, pod] of Object.entries(change.pods || {})) {
    if (pod === null) { delete state.pods[uid]; removePod(uid); }
    else { state.pods[uid] = pod; showPod(uid); }
  }
  if (change.usage) { state.usage = change.usage; showUsage(); }
  if (change.pods || (change.usage && USAGE.includes(order.key))) arrangePods();
  if (change.conditions) { state.conditions = change.conditions; showConditions(); }
  if (change.machine) { state.machine = change.machine; showMachine(); }
  if (change.node) { state.node = change.node; showNode(); }
  if (change.processes) { state.processes = change.processes; received = Date.now(); }
  if (change.history) addToHistory(change.history);
  if (change.processes || change.history) showProcesses();
  if (change.troubles) { state.troubles = change.troubles; showTroubles(); }
  if (change.history) showCharts(state.history);
}

function addToHistory(added) {
  const { at, values } = state.history;
  const length = at.length, newest = length ? at[length - 1] : -Infinity;
  if (added.at[added.at.length - 1] < newest) { state.history = added; return; } // the clock was set back
  const unknown = added.at.findIndex((moment) => moment > newest); // a state that was read beside the stream may have some of them
  if (unknown < 0) return;
  at.push(...added.at.slice(unknown));
  for (const [name, more] of Object.entries(added.values)) (values[name] ||= new Array(length).fill(null)).push(...more.slice(unknown));
  while (at.length && at[0] < at[at.length - 1] - HOUR) {
    at.shift();
    for (const series of Object.values(values)) series.shift();
  }
}

// The node, its troubles and processes

function showNode() {
  const node = state.node;
  byId("node").textContent = node.name;
  showVerdict();
  byId("facts").replaceChildren(...node.facts.map((fact) => element("li", fact)));
  byId("problems-section").hidden = node.ready;
  byId("problems").replaceChildren(...node.problems.map((problem) => element("li", problem)));
}

function showVerdict() {
  const { ready, name } = state.node;
  const verdict = byId("verdict");
  const text = ready ? "Ready" : "Not ready";
  setText(verdict, old ? `Was ${text.toLowerCase()}` : text);
  verdict.className = `verdict ${old ? "old" : ready ? "good" : "bad"}`;
  document.title = `${old ? "No connection: " : ready ? "" : "Not ready: "}${name} - Bulkhead`;
}

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
  button.addEventListener("click", () => openStory(uid, button));
  name.append(button, element("span", pod.namespace, "namespace"));
  row.append(
    name,
    words(element("td", "", `state ${isWell(pod) ? "good" : "warn"}`), pod.state),
    element("td", pod.waits_for || "-", pod.waits_for ? "" : "muted"),
    ...usageTexts(uid).map((text, index) => element("td", text, `number ${index === 2 ? "wider" : "wide"}`)),
    element("td", `${pod.ready}/${pod.containers}`, "number wide"),
    element("td", `${pod.restarts}`, "number wide"),
    element("td", ageOf(pod.started), "number wide"),
  );
  const before = rows.get(uid);
  if (before) {
    const focused = before.contains(document.activeElement);
    before.replaceWith(row);
    if (focused) button.focus();
  }
  rows.set(uid, row);
  if (story === uid) refreshStory();
}

function usageTexts(uid) {
  const [cpu, memory, storage] = state.usage[uid] || [];
  return [known(cpu) ? `${Math.round(cpu * 1000)}m` : "-", known(memory) ? bytes(memory) : "-", known(storage) ? bytes(storage) : "-"];
}

function showUsage() {
  for (const [uid, row] of rows) usageTexts(uid).forEach((text, index) => setText(row.cells[USAGE_CELL + index], text));
}

function isWell(pod) { return !pod.waits_for && ["Running", "Completed", "Succeeded"].includes(pod.state); }

function showWaits(all) { // what an operator came for: the pods that are not well, before everything that is
  const shown = all.filter(([, pod]) => !isWell(pod)).sort(([, one], [, other]) => byName(one, other));
  const list = byId("waits");
  const focused = list.contains(document.activeElement) ? document.activeElement.dataset.pod : null;
  const items = shown.slice(0, MAX_SHOWN_PODS).map(([uid, pod]) => {
    const button = element("button", pod.name);
    button.type = "button";
    button.dataset.pod = uid;
    button.addEventListener("click", () => openStory(uid, button));
    const item = element("li");
    item.append(button, element("span", pod.namespace, "namespace"), words(element("b"), pod.state));
    if (pod.waits_for) item.append(element("span", `waits for ${pod.waits_for}`, "reason"));
    return item;
  });
  if (shown.length > MAX_SHOWN_PODS) {
    const rest = element("a", `and ${shown.length - MAX_SHOWN_PODS} more`);
    rest.href = "#pods-title";
    items.push(element("li"));
    items[MAX_SHOWN_PODS].append(rest);
  }
  byId("waits-section").hidden = shown.length === 0;
  const lines = (of) => of.map((item) => `${item.firstChild.dataset.pod} ${item.textContent}`).join("\n"); // another pod may have the name
  if (lines(items) !== lines([...list.children])) {
    list.replaceChildren(...items);
    if (focused) list.querySelector(`[data-pod="${CSS.escape(focused)}"]`)?.focus();
  }
}

function removePod(uid) { rows.get(uid)?.remove(); rows.delete(uid); }

function arrangePods() {
  const all = Object.entries(state.pods);
  const wanted = byId("filter").value.trim().toLowerCase();
  const onlyWaiting = byId("waiting").checked;
  const shown = all.filter(([, pod]) => (!onlyWaiting || pod.waits_for)
    && (!wanted || `${pod.namespace}/${pod.name} ${pod.state} ${pod.waits_for}`.toLowerCase().includes(wanted)));
  shown.sort((one, other) => compare(one, other) * (order.descending ? -1 : 1) || byName(one[1], other[1]));
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
  setText(byId("pods-link"), waiting ? `Pods (${all.length}, ${waiting} wait)` : `Pods (${all.length})`);
  setText(byId("no-pods"), all.length ? "No pod fits the filter." : "This node has no pods.");
  byId("no-pods").hidden = shown.length > 0;
  showWaits(all);
}

function byName(one, other) { return one.namespace.localeCompare(other.namespace) || one.name.localeCompare(other.name); }

function compare([uid, one], [otherUid, other]) {
  const usage = USAGE.indexOf(order.key);
  if (usage >= 0) return (state.usage[uid]?.[usage] ?? -1) - (state.usage[otherUid]?.[usage] ?? -1);
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
  order.descending = order.key === key ? !order.descending : USAGE.includes(key); // what uses most comes first
  order.key = key;
  for (const other of document.querySelectorAll("[data-sort]")) {
    const direction = order.descending ? "descending" : "ascending";
    other.closest("th").setAttribute("aria-sort", other === button ? direction : "none");
  }
  arrangePods();
}

// The connection

let source = null, reloads = 0, retry = 0;
let old = false; // what the page shows is out of date
let opened = 0; // when the stream was requested, milliseconds
let updated = 0; // when the newest event or state arrived, milliseconds
let broken = Date.now(); // since when there is no connection, milliseconds; 0 = there is one
let reason = "Connecting"; // how the page is connected, or why not

function connect() {
  clearTimeout(retry);
  source?.close();
  opened = Date.now();
  source = new EventSource("events");
  source.addEventListener("state", (event) => { takeState(JSON.parse(event.data)); connected("Connected"); });
  source.addEventListener("change", (event) => { takeChange(JSON.parse(event.data)); connected("Connected"); });
  source.addEventListener("unchanged", () => connected("Connected"));
  source.onerror = async () => {
    if (source.readyState !== EventSource.CLOSED) { disconnected("No connection; trying again"); return; }
    const refused = source; // too many pages are open, the right was withdrawn, or a proxy has no connection
    const answers = await reload();
    if (source === refused && !document.hidden) retry = setTimeout(connect, (answers ? RETRY_SECONDS : AWAY_SECONDS) * 1000);
  };
}

function connected(how) {
  if (how === "Connected") clearTimeout(reloads);
  updated = Date.now();
  broken = 0;
  reason = how;
  showConnection();
}

function disconnected(why) {
  broken ||= Date.now();
  reason = why;
  showConnection();
}

function showConnection() {
  const now = Date.now(), seconds = (now - updated) / 1000;
  const late = seconds > LATE_SECONDS;
  old = late || (broken > 0 && now - broken > BROKEN_SECONDS * 1000);
  const shown = broken || !late ? reason : "No connection; trying again";
  if (old || !broken || !updated) setText(byId("connection"), shown);
  setText(byId("updated"), old && updated ? `Last update ${duration(seconds)} ago` : "");
  document.body.classList.toggle("old", old && updated > 0);
  if (state) showVerdict();
}

async function reload() { // whether the node answers
  clearTimeout(reloads);
  let status = 0;
  try {
    const answer = await fetch("state", { cache: "no-store", signal: AbortSignal.timeout(RELOAD_SECONDS * 1000) });
    status = answer.status;
    if (answer.ok) { takeState(await answer.json()); connected(`Reloaded every ${RELOAD_SECONDS} s`); }
  } catch {
    status = 0;
  }
  const refused = status === 401 || status === 403;
  if (refused) disconnected(`Refused (${status}): the right to get nodes/proxy is missing`);
  else if (status !== 200) disconnected(`No connection${status ? ` (${status})` : ""}; trying again`);
  if (!document.hidden) reloads = setTimeout(reload, RELOAD_SECONDS * 1000);
  return refused || status === 200;
}

function watchConnection() {
  if (document.hidden) return;
  showConnection();
  const now = Date.now();
  if (source && source.readyState !== EventSource.CLOSED && now - Math.max(updated, opened) > LOST_SECONDS * 1000) connect();
}

function showAges() {
  if (!state) return;
  for (const [uid, row] of rows) if (state.pods[uid]) setText(row.lastElementChild, ageOf(state.pods[uid].started));
  showConditionAges();
}

for (const button of document.querySelectorAll("[data-sort]")) button.addEventListener("click", () => sortBy(button));
byId("filter").addEventListener("input", () => state && arrangePods());
byId("waiting").addEventListener("change", () => state && arrangePods());
setInterval(showAges, 10000);
setInterval(watchConnection, 1000);
document.addEventListener("visibilitychange", () => { // a page that is not visible costs the node nothing
  if (!document.hidden) { disconnected("Connecting"); connect(); }
  else { source?.close(); clearTimeout(retry); clearTimeout(reloads); }
});
if (!document.hidden) connect(); // a tab may be opened in the background
