// The dialog of one pod: its story, or the end of the log of a container. Both are text, never HTML.
"use strict";

const LOG_LINES = 200; // the newest, of a log
const LOG_BYTES = 65536; // fewer lines are shown where these have more
const ANSWER_SECONDS = 10; // until a request counts as failed
const AGAIN_SECONDS = 2; // after a request without an answer, while its view is open

let story = null; // the UID of the pod whose dialog is open
let named = null; // its newest state: it may have left the node since
let shownLog = null; // the container whose log is shown; null = the story of the pod
let opener = null; // the button that has opened the dialog
let again = 0; // the timer of the next request for the open view

function openStory(uid, button = null) {
  story = uid;
  opener = button;
  byId("story-views").replaceChildren();
  showStoryHead();
  byId("story").showModal();
  show(null);
}

function refreshStory() { // the pod has changed; a log that is being read stays as it is
  showStoryHead();
  if (shownLog === null) readStory();
}

function showStoryHead() {
  named = state.pods[story];
  const waits = named.waits_for ? `, waits for ${named.waits_for}` : "";
  byId("story-title").textContent = `${named.namespace}/${named.name}`;
  byId("story-facts").textContent = `${named.state}${waits}. ${named.ready} of ${named.containers} containers are ready.${named.ip ? ` ${named.ip}` : ""}`;
  const views = byId("story-views");
  const present = new Set([...views.children].map((button) => button.dataset.container));
  for (const name of ["", ...named.container_names]) {
    if (present.has(name)) continue;
    const button = element("button", name ? `Log of ${name}` : "Story");
    button.type = "button";
    button.dataset.container = name;
    button.setAttribute("aria-pressed", "false");
    button.addEventListener("click", () => show(name || null));
    views.append(button);
  }
}

function show(container) {
  clearTimeout(again);
  shownLog = container;
  for (const button of byId("story-views").children) button.setAttribute("aria-pressed", `${button.dataset.container === (container || "")}`);
  byId("story-body").replaceChildren(element("p", "Loading", "muted"));
  if (container === null) readStory();
  else readLog(container);
}

function request(path) { return fetch(path, { cache: "no-store", signal: AbortSignal.timeout(ANSWER_SECONDS * 1000) }); }

function noAnswer(read) { // for example because the network of the browser's machine has changed
  clearTimeout(again);
  again = setTimeout(read, AGAIN_SECONDS * 1000);
  return [element("p", "The node does not answer; trying again.")];
}

async function readLog(container) {
  const uid = story, pod = named;
  let shown;
  try {
    const path = ["../containerLogs", ...[pod.namespace, pod.name, container].map(encodeURIComponent)].join("/");
    for (let lines = LOG_LINES; !shown; lines = Math.floor(lines / 2)) {
      const answer = await request(`${path}?tailLines=${lines}&limitBytes=${LOG_BYTES}`);
      const content = await answer.arrayBuffer();
      const text = new TextDecoder().decode(content);
      if (!answer.ok) shown = [element("p", refusedLog(answer.status, text, pod))];
      else if (lines === 1 || content.byteLength < LOG_BYTES) shown = logLines(text, lines);
    }
  } catch {
    if (story === uid && shownLog === container) shown = noAnswer(() => readLog(container));
  }
  if (story !== uid || shownLog !== container) return;
  const body = byId("story-body");
  body.replaceChildren(...shown);
  body.scrollTop = body.scrollHeight; // the newest lines
}

function logLines(text, lines) {
  if (!text) return [element("p", "The container has written nothing yet.", "muted")];
  const count = lines === 1 ? `The begin of the newest line: it has more than ${LOG_BYTES / 1024} KiB.` : `The newest lines, at most ${lines}.`;
  const plain = text.replace(/\x1b\[[0-9;?]*[A-Za-z]/g, ""); // colours of a terminal
  return [element("p", count, "muted"), element("pre", plain)];
}

function refusedLog(status, text, pod) {
  return status === 404 && text === "404 page not found\n" // the port without credentials
    ? `This port serves no logs, because it requests no credential. On the node: bulkhead logs ${pod.namespace}/${pod.name}`
    : text.slice(0, 300) || `The node answers ${status}.`;
}

async function readStory() {
  const uid = story;
  let shown;
  try {
    const answer = await request(`explain/${encodeURIComponent(named.namespace || "default")}/${encodeURIComponent(uid)}?output=json`);
    shown = answer.ok ? storyLines(await answer.json()) : [element("p", (await answer.text()).slice(0, 300))];
  } catch {
    if (story === uid && shownLog === null) shown = noAnswer(readStory);
  }
  if (story === uid && shownLog === null) byId("story-body").replaceChildren(...shown);
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
    const time = element("time", moment.toLocaleTimeString(undefined, { hourCycle: "h23" }));
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
        element("time", new Date(answer.at * 1000).toLocaleTimeString(undefined, { hourCycle: "h23" })),
        element("span", `${answer.container}, attempt ${answer.attempt}: ${answer.because}${waited}`),
      );
      answers.append(item);
    }
    parts.push(element("h3", "Why containers were restarted"), answers);
  }
  return parts;
}

byId("story-close").addEventListener("click", () => byId("story").close());
byId("story").addEventListener("close", () => {
  if (byId("story").open) return; // another story was opened before this event came
  (opener?.isConnected ? opener : rows.get(story)?.querySelector("button"))?.focus();
  clearTimeout(again);
  story = opener = null;
});
