// Charts of the last hour. A chart is made once and then changed in place: the focus and the selected sample stay.
"use strict";

const HOUR = 3600;
const GAP = 30; // seconds without a sample that a line does not cross
const WIDTH = 360, HEIGHT = 96; // of a drawing, which is stretched to its place
const SVG = "http://www.w3.org/2000/svg";
const CHARTS = [
  { series: "node.cpu", title: "CPU of the node (cores)", unit: cores },
  { series: "node.memory", title: "Memory of the node", unit: bytes },
  { series: "nodefs.used", title: "Disk of the node (nodefs)", unit: bytes },
  { series: "imagefs.used", title: "Disk of the images (imagefs)", unit: bytes },
  { series: "network.received", title: "Received, busiest interface", unit: rate },
  { series: "network.sent", title: "Sent, busiest interface", unit: rate },
  { series: "agent.cpu", title: "CPU of the agent (of one core)", unit: percent },
  { series: "agent.memory", title: "Memory of the agent", unit: bytes },
  { series: "beats.interval", title: "Longest time between two beats", unit: seconds },
  { series: "messages.delay", title: "Longest delay of a beat", unit: seconds },
  { series: "pods.start", title: "Longest start of a pod", unit: seconds, points: true },
];
const STEPS = { // samples; the keys of a slider
  ArrowLeft: -1, ArrowRight: 1, ArrowDown: -1, ArrowUp: 1, PageUp: 30, PageDown: -30, Home: -Infinity, End: Infinity,
};

// Values

// At most four round values from 0 to the first one that is not below `highest`, each with its text.
function scale(highest, unit) {
  const [size, name] = unit === bytes ? binary(highest) : unit === percent ? [1, "%"]
    : unit === rate ? [binary(highest)[0], `${binary(highest)[1]}/s`] : unit === seconds ? (highest < 1 ? [0.001, "ms"] : [1, "s"]) : [1, ""];
  const top = highest > 0 ? highest / size : 1;
  const part = top / 3;
  const power = 10 ** Math.floor(Math.log10(part));
  const step = [1, 2, 5, 10].find((digit) => digit * power >= part * (1 - 1e-9)) * power;
  const count = Math.max(1, Math.ceil(top / step - 1e-9));
  return Array.from({ length: count + 1 }, (_, index) => ({
    value: index * step * size, text: `${Number((index * step).toPrecision(6))} ${name}`.trim(),
  }));
}

// One chart

class Chart {
  constructor(chart) {
    this.chart = chart;
    this.at = []; this.series = []; this.summary = "";
    this.selected = null; // moment of the sample whose value is shown
    this.node = element("figure");
    this.text = element("span");
    const caption = element("figcaption");
    caption.append(element("b", chart.title), this.text);
    this.labels = element("div", "", "scale");
    this.labels.setAttribute("aria-hidden", "true");
    this.image = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true", class: "chart" });
    this.plot = element("div", "", "plot");
    this.plot.tabIndex = 0;
    this.plot.setAttribute("role", "slider");
    this.plot.setAttribute("aria-label", `${chart.title} in the last hour`);
    this.plot.append(this.image);
    this.times = element("p", "", "axis");
    this.times.setAttribute("aria-hidden", "true");
    const place = element("div", "", "place");
    place.append(this.labels, this.plot, this.times);
    this.node.append(caption, place);
    for (const event of ["pointermove", "pointerdown"]) this.plot.addEventListener(event, (pointer) => this.point(pointer));
    this.plot.addEventListener("pointerleave", () => this.select(null));
    this.plot.addEventListener("blur", () => this.select(null));
    this.plot.addEventListener("keydown", (key) => this.step(key));
  }

  show(at, series) {
    this.at = at; this.series = series;
    const { unit, points } = this.chart;
    const values = series.filter(known);
    const newest = values[values.length - 1];
    const highest = Math.max(0, ...values);
    this.summary = values.length ? `${points ? "newest" : "now"} ${unit(newest)}, highest ${unit(highest)}` : "no value yet";
    const marks = scale(highest, unit);
    const limit = marks[marks.length - 1].value;
    const y = (value) => HEIGHT - HEIGHT * value / limit;
    this.labels.replaceChildren(...marks.map((mark) => {
      const label = element("span", mark.text);
      label.style.bottom = `${100 * mark.value / limit}%`;
      return label;
    }));
    const places = series.map((value, index) => [this.x(at[index]), known(value) ? y(value) : null]);
    const lines = marks.map((mark) => shape("line", { x1: 0, x2: WIDTH, y1: y(mark.value), y2: y(mark.value) }));
    const drawn = points
      ? [shape("path", { d: places.filter(([, top]) => top !== null).map(([x, top]) => `M${x.toFixed(1)} ${HEIGHT}V${top.toFixed(1)}`).join("") })]
      : curve(places, HEIGHT, (index) => at[index] - at[index - 1] > GAP);
    this.cursor = shape("line", { y1: 0, y2: HEIGHT, class: "cursor" });
    this.image.replaceChildren(...lines, ...drawn, this.cursor);
    const end = at.length ? at[at.length - 1] : Date.now() / 1000;
    this.times.replaceChildren(...[HOUR, HOUR / 2, 0].map((before) => element("span", clock(end - before))));
    this.select(this.selected);
  }

  x(at) { return WIDTH * (1 - (this.at[this.at.length - 1] - at) / HOUR); }

  samples() { return this.at.flatMap((at, index) => known(this.series[index]) ? [index] : []); } // those with a value

  nearest(at) {
    return this.samples().reduce((best, index) => best === null || Math.abs(this.at[index] - at) < Math.abs(this.at[best] - at) ? index : best, null);
  }

  select(at) {
    const index = at === null ? null : this.nearest(at);
    this.selected = index === null ? null : this.at[index];
    const value = index === null ? this.summary : `${clock(this.selected, { second: "2-digit" })}: ${this.chart.unit(this.series[index])}`;
    setText(this.text, value);
    const first = this.at.length ? this.at[0] : 0, last = this.at.length ? this.at[this.at.length - 1] : 0;
    const attributes = { valuemin: first, valuemax: last, valuenow: this.selected ?? last, valuetext: value };
    for (const [name, content] of Object.entries(attributes)) this.plot.setAttribute(`aria-${name}`, content);
    const x = index === null ? -1 : this.x(this.selected);
    for (const end of ["x1", "x2"]) this.cursor.setAttribute(end, x);
    this.cursor.classList.toggle("shown", index !== null);
  }

  point(pointer) {
    if (!this.at.length) return;
    const box = this.plot.getBoundingClientRect();
    this.select(this.at[this.at.length - 1] - HOUR * (1 - (pointer.clientX - box.left) / box.width));
  }

  step(key) {
    const samples = this.samples();
    if (!(key.key in STEPS) || !samples.length) return;
    key.preventDefault();
    const present = this.selected === null ? samples.length : samples.indexOf(this.nearest(this.selected));
    const next = Math.min(samples.length - 1, Math.max(0, present + STEPS[key.key]));
    this.select(this.at[samples[next]]);
  }
}

const charts = CHARTS.map((chart) => new Chart(chart));
byId("charts").replaceChildren(...charts.map((chart) => chart.node));

function showCharts({ at, values }) {
  const span = at.length ? at[at.length - 1] - at[0] : 0;
  setText(byId("since"), !at.length ? "The first sample comes within ten seconds."
    : span < HOUR - 60 ? `Samples since ${clock(at[0])}.` : "A sample every ten seconds.");
  for (const chart of charts) chart.show(at, values[chart.chart.series] || []);
}

function sparkline(series, label) {
  const values = series.filter(known);
  const highest = Math.max(1, ...values);
  const name = values.length ? `${label}: highest ${percent(highest)}` : `${label}: no value yet`;
  const image = shape("svg", { viewBox: `0 0 ${WIDTH} 20`, preserveAspectRatio: "none", role: "img", "aria-label": name, class: "spark" });
  image.append(...curve(series.map((value, index) => [WIDTH - series.length + index + 1, known(value) ? 19 - 18 * value / highest : null]), 20));
  return image;
}

function shape(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function curve(points, floor, interrupted = () => false) { // a gap where a sample has no value, or is missing
  let line = "", area = "", part = [];
  const finish = () => {
    if (part.length) {
      const path = part.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L");
      line += `M${path}${part.length === 1 ? "h0.5" : ""}`;
      area += `M${part[0][0].toFixed(1)} ${floor}L${path}V${floor}Z`;
    }
    part = [];
  };
  points.forEach((point, index) => {
    if (point[1] === null || interrupted(index)) finish();
    if (point[1] !== null) part.push(point);
  });
  finish();
  return [shape("path", { d: area, class: "area" }), shape("path", { d: line })];
}
