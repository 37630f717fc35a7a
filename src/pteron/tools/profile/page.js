"use strict";
// The profile in #data -> figures, a timeline, bars and a table. All names are inserted as text.

const profile = JSON.parse(document.getElementById("data").textContent);
const launches = profile.launches;
const element = (id) => document.getElementById(id);
const total = launches.reduce((sum, launch) => sum + launch.seconds, 0);
const stages = profile.stages.filter((stage) => !stage.is_once);

function make(tag, text, parent, kind) {
  const made = document.createElement(tag);
  made.textContent = text;
  if (kind) made.className = kind;
  parent.append(made);
  return made;
}

// Numbers for people -----------------------------------------------------------------------------

function seconds(value) {
  if (value === 0) return "0 s";
  if (value >= 1) return `${value.toFixed(2)} s`;
  return value >= 1e-3 ? `${(value * 1e3).toPrecision(3)} ms` : `${(value * 1e6).toPrecision(3)} µs`;
}
function bytes(value) {
  let unit = 0;
  while (value >= 1000 && unit < 4) { value /= 1000; unit += 1; }
  return `${unit ? value.toFixed(1) : value} ${["B", "kB", "MB", "GB", "TB"][unit]}`;
}
function giga(value) { return value === null ? "" : (value / 1e9 >= 100 ? (value / 1e9).toFixed(0) : (value / 1e9).toPrecision(3)); }
function percent(value) { return value === null ? "" : `${(100 * value).toFixed(1)} %`; }

// Launches that belong together ------------------------------------------------------------------

const moved = (launch) => launch.bytes_read + launch.bytes_written;
function least(launch) {
  const ceilings = profile.ceilings;
  return Math.max(moved(launch) / ceilings.bytes_per_second, (launch.operations || 0) / ceilings.operations_per_second);
}
const isOwn = (launch) => launch.delegate !== null; // of the program; the others belong to the sampler
const keys = {
  launch: (launch) => `${launch.index} ${launch.operator} by ${launch.kernel}`,
  node: (launch) => `${launch.delegate ?? "draw"}:${launch.node}`,
  operator: (launch) => launch.operator,
  family: (launch) => launch.family,
  layer: (launch) => (launch.layer === null ? "outside the layers" : `layer ${launch.layer}`),
  kernel: (launch) => launch.kernel,
};
const graphs = new Set(launches.filter(isOwn).map((launch) => launch.delegate)).size;
function nodeName(group) {
  if (!isOwn(group[0])) return `draw ${group[0].operator}`;
  const nodes = group.flatMap((launch) => [launch.node, ...launch.nodes]);
  const longest = group.reduce((best, launch) => (launch.seconds > best.seconds ? launch : best));
  const first = Math.min(...nodes), last = Math.max(...nodes);
  return `${graphs > 1 ? `${group[0].delegate}:` : ""}${first}${last > first ? `-${last}` : ""} ${longest.operator}`;
}
function rowsBy(by) {
  const groups = new Map();
  for (const launch of launches) {
    const key = keys[by](launch);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(launch);
  }
  return [...groups].map(([key, group]) => {
    const time = group.reduce((sum, launch) => sum + launch.seconds, 0);
    const known = group.filter((launch) => launch.operations !== null);
    const size = group.reduce((sum, launch) => sum + moved(launch), 0);
    const operations = known.length ? known.reduce((sum, launch) => sum + launch.operations, 0) : null;
    return {
      name: by === "node" ? nodeName(group) : key,
      text: group.map((launch) => `${launch.operator} ${launch.kernel} ${launch.family} ${launch.nodes.join(" ")}`).join(" "),
      launches: group.length, time, share: total ? time / total : 0, size,
      bandwidth: time ? size / time : null,
      rate: operations !== null && time ? operations / time : null,
      fraction: profile.ceilings && time ? group.reduce((sum, launch) => sum + least(launch), 0) / time : null,
      family: group[0].family,
    };
  });
}

// A colour for each family, the longest first ------------------------------------------------------

const families = rowsBy("family").sort((a, b) => b.time - a.time);
const palette = ["#3f7fe0", "#e0803f", "#45a56b", "#b45fc4", "#d0506a", "#8a8f3a", "#3aa6b0", "#8b6fd6", "#a57045", "#6b7a8c"];
const colours = new Map(families.map((row, index) => [row.name, palette[index % palette.length]]));

// The head -----------------------------------------------------------------------------------------

element("title").textContent = profile.program;
element("what").textContent = `${profile.what} (${profile.inputs.join(", ")}) on ${profile.device}`;
element("how").textContent = `${profile.timing_text}; medians of the faster half of ${profile.runs} runs`;
element("notes").textContent = profile.notes.join("; ");
function figure(value, meaning) {
  const box = make("div", "", element("figures"), "figure");
  make("b", value, box);
  make("span", meaning, box);
}
const all = launches.reduce((sum, launch) => sum + moved(launch), 0);
figure(seconds(profile.pass_seconds), "GPU, all in one pass");
figure(seconds(total), `sum of ${launches.length} launches`);
figure(seconds(profile.call_seconds), "whole call");
figure(bytes(all), "read and written");
if (profile.ceilings) {
  figure(`${giga(all / profile.pass_seconds)} GB/s`, `of ${giga(profile.ceilings.bytes_per_second)} copied`);
  const work = launches.reduce((sum, launch) => sum + (launch.operations || 0), 0);
  figure(`${giga(work / profile.pass_seconds)} GFLOP/s`, `of ${giga(profile.ceilings.operations_per_second)} in f32`);
}

// Bars ---------------------------------------------------------------------------------------------

function bars(id, rows, none) {
  const place = element(id), longest = Math.max(...rows.map((row) => row.time), 0);
  if (!rows.length) make("p", none, place);
  for (const row of rows) {
    make("div", row.name, place);
    const bar = make("div", "", make("div", "", place), "bar");
    bar.style.width = `${longest ? (100 * row.time) / longest : 0}%`;
    bar.style.background = row.colour;
    make("div", row.share === undefined ? seconds(row.time) : `${seconds(row.time)}${percent(row.share).padStart(9, "\u2007")}`, place, "value");
  }
}
bars("families", families.map((row) => ({ ...row, colour: colours.get(row.name) })), "");
bars("layers", profile.layers ? rowsBy("layer").map((row) => ({ ...row, colour: "var(--accent)" })) : [],
  "No layers found: nothing in the graph repeats.");
bars("stages", stages.map((stage) => ({ name: stage.name, time: stage.seconds, colour: "var(--accent)" })), "");
for (const row of families) {
  const entry = make("span", "", element("legend"));
  make("i", "", entry, "swatch").style.background = colours.get(row.name);
  entry.append(row.name);
}

// The timeline: layers above, launches below, each as wide as it takes long ---------------------------

let begins = 0;
const spans = launches.map((launch) => {
  const span = { launch, begin: begins, end: begins + launch.seconds };
  begins = span.end;
  return span;
});
const drawn = spans.find((span) => !isOwn(span.launch)); // the first launch of the sampler
const canvas = element("timeline"), tip = element("tip");
let from = 0, to = total || 1, dragged = null;

function draw() {
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const pen = canvas.getContext("2d"), style = getComputedStyle(document.body);
  pen.scale(ratio, ratio);
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "middle";
  const at = (time) => ((time - from) / (to - from)) * width;
  const ink = style.getPropertyValue("--ink"), quiet = style.getPropertyValue("--quiet");
  let layer = null;
  for (const span of spans) {
    const left = at(span.begin), right = at(span.end);
    if (right < 0 || left > width) continue;
    pen.fillStyle = colours.get(span.launch.family);
    pen.fillRect(left, 36, Math.max(right - left - (right - left > 3 ? 1 : 0), 0.5), 58);
    if (right - left > 44) label(pen, span.launch.operator, left + 4, 65, right - left - 8, "#ffffff");
    if (span.launch.layer !== layer) {
      layer = span.launch.layer;
      pen.fillStyle = quiet;
      pen.fillRect(left, 12, 1, 82);
      if (layer !== null) label(pen, `layer ${layer}`, left + 4, 20, 80, quiet);
    }
    if (span === drawn) {
      pen.fillStyle = quiet;
      pen.fillRect(left, 12, 1, 82);
      label(pen, "sampler", left + 4, 20, 80, quiet);
    }
  }
  for (let mark = 0; mark <= 6; mark += 1) {
    const x = (mark / 6) * width;
    pen.textAlign = mark === 0 ? "left" : mark === 6 ? "right" : "center";
    label(pen, seconds(from + ((to - from) * mark) / 6), mark === 0 ? 4 : mark === 6 ? width - 4 : x, 112, 200, ink);
  }
  pen.textAlign = "left";
}
function label(pen, text, x, y, room, colour) {
  let shown = text;
  while (shown.length > 1 && pen.measureText(shown).width > room) shown = `${shown.slice(0, -2)}…`;
  pen.fillStyle = colour;
  pen.fillText(shown, x, y);
}
function timeAt(event) {
  const box = canvas.getBoundingClientRect();
  return from + ((event.clientX - box.left) / box.width) * (to - from);
}
function show(begin, end) {
  const room = Math.min(Math.max(end - begin, total / 1e5), total || 1);
  from = Math.min(Math.max(begin, 0), (total || 1) - room);
  to = from + room;
  draw();
}
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  const middle = timeAt(event), factor = Math.exp(event.deltaY * 0.002);
  show(middle - (middle - from) * factor, middle + (to - middle) * factor);
}, { passive: false });
canvas.addEventListener("pointerdown", (event) => { dragged = { x: event.clientX, from, to }; canvas.setPointerCapture(event.pointerId); });
canvas.addEventListener("pointerup", () => { dragged = null; });
canvas.addEventListener("dblclick", () => show(0, total));
canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
canvas.addEventListener("pointermove", (event) => {
  if (dragged) {
    const by = ((dragged.x - event.clientX) / canvas.clientWidth) * (dragged.to - dragged.from);
    show(dragged.from + by, dragged.to + by);
    return;
  }
  const time = timeAt(event), span = spans.find((each) => each.begin <= time && time < each.end);
  tip.hidden = !span;
  if (!span) return;
  tip.textContent = described(span.launch);
  tip.style.left = `${Math.min(event.clientX + 14, window.innerWidth - 300)}px`;
  tip.style.top = `${event.clientY + 16}px`;
});
function described(launch) {
  const lines = [
    `${launch.operator}`,
    `${seconds(launch.seconds)}, ${percent(total ? launch.seconds / total : 0)} of all launches`,
    `kernel ${launch.kernel}, ${launch.groups.join(" × ")} workgroups`,
    isOwn(launch)
      ? `nodes ${launch.nodes.join(", ")}${launch.layer === null ? "" : `; layer ${launch.layer}`}`
      : "samples the next token",
    `${bytes(launch.bytes_read)} read, ${bytes(launch.bytes_written)} written`,
  ];
  if (launch.operations !== null && launch.seconds) lines.push(`${giga(launch.operations / launch.seconds)} GFLOP/s`);
  return lines.join("\n");
}
window.addEventListener("resize", draw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
draw();

// The table ------------------------------------------------------------------------------------------

const columns = [
  ["", (row) => row.name, (row) => row.name],
  ["launches", (row) => row.launches, (row) => row.launches],
  ["time", (row) => row.time, (row) => seconds(row.time)],
  ["share", (row) => row.share, (row) => percent(row.share)],
  ["bytes", (row) => row.size, (row) => bytes(row.size)],
  ["GB/s", (row) => row.bandwidth, (row) => giga(row.bandwidth)],
  ["GFLOP/s", (row) => row.rate, (row) => giga(row.rate)],
  ["of ceiling", (row) => row.fraction, (row) => percent(row.fraction)],
];
let sorted = null;
function fill() {
  const by = element("by").value, search = element("search").value.toLowerCase();
  let rows = rowsBy(by).filter((row) => `${row.name} ${row.text}`.toLowerCase().includes(search));
  if (sorted !== null) {
    const value = columns[sorted][1];
    rows = rows.sort((a, b) => (sorted === 0 ? String(value(a)).localeCompare(value(b)) : (value(b) ?? -1) - (value(a) ?? -1)));
  }
  element("headings").replaceChildren();
  columns.forEach(([name], index) => {
    const heading = make("th", name || by, element("headings"), sorted === index ? "sorted" : "");
    heading.addEventListener("click", () => { sorted = sorted === index ? null : index; fill(); });
  });
  element("rows").replaceChildren();
  for (const row of rows) {
    const line = make("tr", "", element("rows"));
    for (const [, , text] of columns) make("td", text(row), line);
  }
}
element("by").addEventListener("change", fill);
element("search").addEventListener("input", fill);
fill();
