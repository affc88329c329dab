// The machine: the conditions of the node, its resources, filesystems and interfaces.
"use strict";

const UNITS = new Map([["cpu", cores], ["memory", bytes], ["ephemeral-storage", bytes]]);

function unitOf(resource) { return UNITS.get(resource) || (resource.startsWith("hugepages-") ? bytes : String); }

function amount(value, unit) { return known(value) ? unit(value).replace(" ", "\u00a0") : "-"; } // a line breaks not within it

function amountOf(value, whole, unit) { // with its share of the whole
  return amount(value, unit) + (known(value) && whole > 0 ? ` (${Math.round(100 * value / whole)}\u00a0%)` : "");
}

function fill(table, rows) { // a row: the text of its header, then text and class of each cell
  byId(table).tBodies[0].replaceChildren(...rows.map(([name, ...cells]) => {
    const row = element("tr");
    const header = element("th", name);
    header.scope = "row";
    row.append(header, ...cells.map(([text, className]) => element("td", text, className)));
    return row;
  }));
}

function showConditions() {
  byId("conditions").closest("section").hidden = state.conditions.length === 0; // the Node is not known yet
  fill("conditions", state.conditions.map((one) => {
    const well = one.status === (one.type === "Ready" ? "True" : "False"); // the others name a fault
    const className = `state ${well ? "good" : one.status === "Unknown" ? "warn" : "bad"}`;
    return [one.type, [one.status, className], [one.reason, "wide"], [one.message, ""], [ageOf(one.since), "number wide"]];
  }));
}

function showConditionAges() {
  [...byId("conditions").tBodies[0].rows].forEach((row, index) => setText(row.lastElementChild, ageOf(state.conditions[index].since)));
}

function showMachine() {
  const { resources, filesystems, network } = state.machine;
  fill("resources", resources.map((one) => {
    const unit = unitOf(one.name);
    return [
      one.name,
      [amountOf(one.used, one.capacity, unit), "number"],
      [amountOf(one.requested, one.allocatable, unit), "number"],
      [amount(one.allocatable, unit), "number wide"],
      [amount(one.capacity, unit), "number"],
    ];
  }));
  fill("filesystems", filesystems.map((one) => [
    one.name,
    [amountOf(one.used, one.capacity, bytes), "number"],
    [amount(one.available, bytes), "number"],
    [amount(one.capacity, bytes), "number wide"],
    [amountOf(one.inodes_used, one.inodes, String), "number"],
  ]));
  fill("network", network.map((one) => [
    one.name,
    [amount(one.received, rate), "number"],
    [amount(one.sent, rate), "number"],
    [`${one.errors}`, "number wide"],
    [`${one.dropped}`, "number wide"],
  ]));
  byId("filesystems").hidden = filesystems.length === 0;
  byId("network").hidden = network.length === 0;
}
