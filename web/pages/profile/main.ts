// The profile in #data -> figures, a timeline, bars and a table. All names are inserted as text.

import { html, render } from "lit-html";
import { sum } from "../../shared/sums.ts";
import { humanBytes } from "../../shared/text.ts";
import { giga, percent, seconds } from "./numbers.ts";
import { ceilings, colours, families, KEYS, launches, moved, profile, type Row, rowsBy, total } from "./profile.ts";
import { draw, timeline } from "./timeline.ts";

const COLUMNS: [name: string, value: (row: Row) => number | null, text: (row: Row) => unknown][] = [
  ["launches", (row) => row.launches, (row) => row.launches],
  ["time", (row) => row.time, (row) => seconds(row.time)],
  ["share", (row) => row.share, (row) => percent(row.share)],
  ["bytes", (row) => row.size, (row) => humanBytes(row.size)],
  ["GB/s", (row) => row.bandwidth, (row) => giga(row.bandwidth)],
  ["GFLOP/s", (row) => row.rate, (row) => giga(row.rate)],
  ["of ceiling", (row) => row.fraction, (row) => percent(row.fraction)],
];
const state = { by: "node", search: "", sorted: null as string | null };

function update(changes: Partial<typeof state> = {}): void {
  Object.assign(state, changes);
  render(body(), document.body);
}

function body() {
  const { program, what, inputs, device, timing_text, runs, notes, stages, layers } = profile;
  const layerRows = layers ? rowsBy("layer") : [];
  const host = stages.filter((stage) => !stage.is_once).map(({ name, seconds: time }) => ({ name, time }));
  const legend = families.map(({ name }) => {
    return html`<span><i class="swatch" style=${`background: ${colours.get(name)}`}></i>${name}</span>`;
  });
  return html`
    <header>
      <h1 id="title">${program}</h1>
      <p id="what">${what} (${inputs.join(", ")}) on ${device}</p>
      <p id="how">${timing_text}; medians of the faster half of ${runs} runs</p>
      <p id="notes">${notes.join("; ")}</p>
    </header>
    <section id="figures" aria-label="figures">${figures()}</section>
    <section>
      <h2>Timeline <small>wheel to zoom, drag to move, double click for all of it</small></h2>
      ${timeline()}
      <p id="legend">${legend}</p>
    </section>
    <div class="beside">
      <section><h2>By family</h2><div id="families" class="bars">${bars(families, colours)}</div></section>
      <section><h2>By layer</h2><div id="layers" class="bars">
        ${layers ? bars(layerRows) : html`<p>No layers found: nothing in the graph repeats.</p>`}</div></section>
    </div>
    <section>
      <h2>Host, at every call</h2>
      <div id="stages" class="bars">${bars(host)}</div>
    </section>
    <section>
      <h2>Table</h2>
      <p class="controls">
        <label>by <select id="by" @change=${(event: Event) => update({ by: textIn(event) })}>
          ${Object.keys(KEYS).map((key) => html`<option>${key}</option>`)}
        </select></label>
        <label>with <input id="search" type="search" placeholder="operator, kernel, node…"
          @input=${(event: Event) => update({ search: textIn(event) })}></label>
      </p>
      <div class="wide">${table()}</div>
    </section>
    <div id="tip" hidden></div>`;
}

const textIn = (event: Event) => (event.target as HTMLInputElement).value;

function figures() {
  const bytes = sum(launches, moved);
  const all = [
    [seconds(profile.pass_seconds), "GPU, all in one pass"],
    [seconds(total), `sum of ${launches.length} launches`],
    [seconds(profile.call_seconds), "whole call"],
    [humanBytes(bytes), "read and written"],
  ];
  if (ceilings) {
    const work = sum(launches, (launch) => launch.operations ?? 0);
    all.push([`${giga(bytes / profile.pass_seconds)} GB/s`, `of ${giga(ceilings.bytes_per_second)} copied`]);
    all.push([`${giga(work / profile.pass_seconds)} GFLOP/s`, `of ${giga(ceilings.operations_per_second)} in f32`]);
  }
  return all.map(([value, meaning]) => html`<div class="figure"><b>${value}</b><span>${meaning}</span></div>`);
}

function bars(rows: { name: string; time: number; share?: number }[], colourOf?: Map<string, string>) {
  const longest = Math.max(...rows.map((row) => row.time)) || 1;
  return rows.map(({ name, time, share }) => {
    const part = share === undefined ? "" : percent(share).padStart(9, "\u2007");
    const style = `width: ${(100 * time) / longest}%; background: ${colourOf?.get(name) ?? "var(--accent)"}`;
    return html`
      <div>${name}</div><div><div class="bar" style=${style}></div></div>
      <div class="value">${seconds(time) + part}</div>`;
  });
}

function table() {
  const { by, search, sorted } = state;
  const wanted = search.toLowerCase();
  const rows = rowsBy(by).filter((row) => `${row.name} ${row.text}`.toLowerCase().includes(wanted));
  const [, value] = COLUMNS.find(([name]) => name === sorted) ?? [];
  if (value) rows.sort((a, b) => (value(b) ?? -1) - (value(a) ?? -1));
  else if (sorted === "") rows.sort((a, b) => a.name.localeCompare(b.name));
  const heading = (name: string) => html`
    <th class=${sorted === name ? "sorted" : ""} @click=${() => update({ sorted: sorted === name ? null : name })}>
      ${name || by}</th>`;
  return html`
    <table>
      <thead><tr id="headings">${["", ...COLUMNS.map(([name]) => name)].map(heading)}</tr></thead>
      <tbody id="rows">${rows.map(
        (row) => html`
        <tr><td>${row.name}</td>${COLUMNS.map(([, , text]) => html`<td>${text(row)}</td>`)}</tr>`,
      )}</tbody>
    </table>`;
}

update();
draw();
