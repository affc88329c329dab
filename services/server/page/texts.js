// Elements and the texts of values.
"use strict";

const byId = (id) => document.getElementById(id);

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

function setText(target, text) { if (target.textContent !== text) target.textContent = text; } // a screen reader reads changes

function duration(age) {
  if (age === null || Number.isNaN(age)) return "-";
  for (const [unit, length, limit] of [["s", 1, 120], ["m", 60, 7200], ["h", 3600, 172800]]) {
    if (age < limit) return `${Math.max(0, Math.floor(age / length))}${unit}`;
  }
  return `${Math.floor(age / 86400)}d`;
}

function ageOf(moment) { return moment ? duration((Date.now() - Date.parse(moment)) / 1000) : "-"; } // RFC3339

function clock(at, more = {}) {
  return new Date(at * 1000).toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23", ...more });
}

function known(value) { return value !== null && value !== undefined; }

function cores(value) { return value >= 10 ? `${value.toFixed(0)} cores` : `${value.toFixed(2)} cores`; }
function percent(value) { return `${value.toFixed(1)} %`; }
function seconds(value) { return value < 1 ? `${(value * 1000).toFixed(value < 0.01 ? 1 : 0)} ms` : `${value.toFixed(1)} s`; }
function bytes(value) {
  const [size, unit] = binary(value);
  return `${(value / size).toFixed(value < 10 * size && size > 1 ? 1 : 0)} ${unit}`;
}
function rate(value) { return `${bytes(value)}/s`; }

function binary(value) { // the size of the unit that fits the value, and its name
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = Math.min(units.length - 1, Math.max(0, Math.floor(Math.log2(Math.max(1, value)) / 10)));
  return [1024 ** power, units[power]];
}
