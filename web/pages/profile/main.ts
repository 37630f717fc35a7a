// The profile in #data -> figures, a timeline, bars and a table. All names are inserted as text.

import { byId, fill, make } from "../../shared/elements.ts";
import { humanBytes } from "../../shared/text.ts";
import { giga, percent, seconds } from "./numbers.ts";
import { ceilings, isOwn, type Launch, launches, moved, profile, rowsBy, sum, total } from "./profile.ts";
import { showTimeline } from "./timeline.ts";

const COLOURS = "#3f7fe0 #e0803f #45a56b #b45fc4 #d0506a #8a8f3a #3aa6b0 #8b6fd6 #a57045 #6b7a8c".split(" ");
const families = rowsBy("family").sort((a, b) => b.time - a.time);
const colours = new Map(families.map((row, index) => [row.name, COLOURS[index % COLOURS.length]]));

// The head -----------------------------------------------------------------------------------------

byId("title").textContent = profile.program;
byId("what").textContent = `${profile.what} (${profile.inputs.join(", ")}) on ${profile.device}`;
byId("how").textContent = `${profile.timing_text}; medians of the faster half of ${profile.runs} runs`;
byId("notes").textContent = profile.notes.join("; ");

const bytes = sum(launches, moved);
const figures = [
  [seconds(profile.pass_seconds), "GPU, all in one pass"],
  [seconds(total), `sum of ${launches.length} launches`],
  [seconds(profile.call_seconds), "whole call"],
  [humanBytes(bytes), "read and written"],
];
if (ceilings) {
  const { bytes_per_second, operations_per_second } = ceilings;
  const work = sum(launches, (launch) => launch.operations ?? 0);
  figures.push([`${giga(bytes / profile.pass_seconds)} GB/s`, `of ${giga(bytes_per_second)} copied`]);
  figures.push([`${giga(work / profile.pass_seconds)} GFLOP/s`, `of ${giga(operations_per_second)} in f32`]);
}
fill(
  byId("figures"),
  figures.map(([value, meaning]) => make("div.figure", make("b", value), make("span", meaning))),
);

// Bars ---------------------------------------------------------------------------------------------

type Bar = { name: string; time: number; colour: string; share?: number };

function showBars(id: string, bars: Bar[], none = ""): void {
  const longest = Math.max(...bars.map((bar) => bar.time), 0);
  const elements = bars.map(({ name, time, colour, share }) => {
    const bar = make("div.bar");
    Object.assign(bar.style, { width: `${longest ? (100 * time) / longest : 0}%`, background: colour });
    const part = share === undefined ? "" : percent(share).padStart(9, "\u2007");
    return [make("div", name), make("div", bar), make("div.value", seconds(time) + part)];
  });
  fill(byId(id), bars.length ? elements : [make("p", none)]);
}

const accent = "var(--accent)";
const layers = profile.layers ? rowsBy("layer").map((row) => ({ ...row, colour: accent })) : [];
const stages = profile.stages.filter((stage) => !stage.is_once);
showBars(
  "families",
  families.map((row) => ({ ...row, colour: colours.get(row.name) ?? "" })),
);
showBars("layers", layers, "No layers found: nothing in the graph repeats.");
showBars(
  "stages",
  stages.map((stage) => ({ name: stage.name, time: stage.seconds, colour: accent })),
);
fill(
  byId("legend"),
  families.map(({ name }) => {
    const swatch = make("i.swatch");
    swatch.style.background = colours.get(name) ?? "";
    return make("span", swatch, name);
  }),
);

showTimeline((launch) => colours.get(launch.family) ?? "", described);

function described(launch: Launch): string {
  const layer = launch.layer === null ? "" : `; layer ${launch.layer}`;
  const lines = [
    launch.operator,
    `${seconds(launch.seconds)}, ${percent(total ? launch.seconds / total : 0)} of all launches`,
    `kernel ${launch.kernel}, ${launch.groups.join(" × ")} workgroups`,
    isOwn(launch) ? `nodes ${launch.nodes.join(", ")}${layer}` : "samples the next token",
    `${humanBytes(launch.bytes_read)} read, ${humanBytes(launch.bytes_written)} written`,
  ];
  if (launch.operations !== null && launch.seconds) lines.push(`${giga(launch.operations / launch.seconds)} GFLOP/s`);
  return lines.join("\n");
}

// The table ------------------------------------------------------------------------------------------

type Row = ReturnType<typeof rowsBy>[number];
const COLUMNS: [name: string, value: (row: Row) => string | number | null, text: (row: Row) => string][] = [
  ["", (row) => row.name, (row) => row.name],
  ["launches", (row) => row.launches, (row) => String(row.launches)],
  ["time", (row) => row.time, (row) => seconds(row.time)],
  ["share", (row) => row.share, (row) => percent(row.share)],
  ["bytes", (row) => row.size, (row) => humanBytes(row.size)],
  ["GB/s", (row) => row.bandwidth, (row) => giga(row.bandwidth)],
  ["GFLOP/s", (row) => row.rate, (row) => giga(row.rate)],
  ["of ceiling", (row) => row.fraction, (row) => percent(row.fraction)],
];
const by = byId<HTMLSelectElement>("by");
const search = byId<HTMLInputElement>("search");
let sorted: number | null = null; // a column

function showTable(): void {
  const wanted = search.value.toLowerCase();
  const rows = rowsBy(by.value).filter((row) => `${row.name} ${row.text}`.toLowerCase().includes(wanted));
  if (sorted === 0) rows.sort((a, b) => a.name.localeCompare(b.name));
  else if (sorted !== null) {
    const number = (row: Row) => Number(COLUMNS[sorted ?? 0][1](row) ?? -1);
    rows.sort((a, b) => number(b) - number(a));
  }
  const headings = COLUMNS.map(([name], index) => {
    const onclick = () => {
      sorted = sorted === index ? null : index;
      showTable();
    };
    return make("th", { class: sorted === index ? "sorted" : null, onclick }, name || by.value);
  });
  fill(byId("headings"), headings);
  fill(
    byId("rows"),
    rows.map((row) =>
      make(
        "tr",
        COLUMNS.map(([, , text]) => make("td", text(row))),
      ),
    ),
  );
}
by.addEventListener("change", showTable);
search.addEventListener("input", showTable);
showTable();
