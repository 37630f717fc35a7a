// What the panel says of a node, a call, a block or a launch.

import { html, nothing } from "lit-html";
import { tally } from "../../shared/sums.ts";
import { counted, humanBytes } from "../../shared/text.ts";
import type { Argument, Plan } from "./data.ts";
import type { Vertex } from "./flow.ts";
import type { Page } from "./main.ts";
import { type Delegate, type Item, PROGRAM, shortName } from "./program.ts";

export const quiet = (text: unknown) => html`<p class="quiet">${text}</p>`;
export const bad = (text: string) => html`<p class="bad">${text}</p>`;
const commas = (parts: unknown[]) => parts.map((part, index) => [index ? ", " : "", part]);

export function valueType(text: string) {
  const parts = text.split(/((?:≤|\d+\.\.)\d+(?: by \d+)?)/); // every second part is a dynamic dim
  const shown = parts.map((part, index) => (index % 2 ? html`<span class="dynamic">${part}</span>` : part));
  return html`<span class="type">${shown}</span>`;
}

export function linkTo(text: string, onclick: () => void) {
  return html`<button class="link" type="button" @click=${onclick}>${text}</button>`;
}

/** A square of a colour of the theme. */
export function dot(colour: string) {
  return html`<span class="dot" style=${`background: var(--${colour})`}></span>`;
}

export function familyDot(family: string) {
  return dot(`family-${CSS.escape(family)}, var(--family-unknown)`);
}

/** A node of the file, or a call after rewrites. */
export function itemDetails(page: Page, delegate: Delegate, item: Item) {
  const { plan } = page.state;
  const operator = delegate.operator(item);
  const about =
    item.kind === "call"
      ? `call of ${counted(item.nodes.length, "node")}${item.is_once ? ", runs once, at load" : ""}`
      : `node ${item.index}`;
  const rows = item.arguments.map((argument, position) => {
    const name = operator.arguments[position] ?? (operator.arguments.length ? "out" : position);
    return html`<tr><th>${name}</th><td>${argumentText(page, delegate, argument)}</td></tr>`;
  });
  return html`
    <h3>${operator.name}</h3>
    ${quiet([familyDot(operator.family), ` ${operator.family} · ${about}`])}
    ${operator.is_available ? nothing : bad("Pteron does not have this operator.")}
    <h4>Arguments</h4><table>${rows}</table>
    ${item.kind === "call" ? nodeLinks(page, delegate, "Computes nodes", item.nodes) : around(page, delegate, item)}
    ${plan ? launchLinks(page, plan, item) : nothing}`;
}

/** A folded block: what is in it. */
export function blockDetails(delegate: Delegate, { items, title, subtitle }: Vertex) {
  const counts = tally(items, (item) => delegate.operator(item).name);
  const rows = counts.map(([name, count]) => html`<tr><td class="number">${count}</td><td>${name}</td></tr>`);
  return html`<h3>${title}</h3>${quiet(subtitle)}<h4>Operators</h4><table>${rows}</table>`;
}

function argumentText(page: Page, delegate: Delegate, argument: Argument): unknown {
  const { plan } = page.state;
  if (Array.isArray(argument)) return ["[", commas(argument.map((each) => argumentText(page, delegate, each))), "]"];
  if (argument === null || typeof argument !== "object") return html`<code>${String(argument)}</code>`;
  const { id, is_state, constant } = delegate.value(argument.value);
  const bytes = constant === null ? 0 : delegate.record.constants[constant].bytes;
  return [
    html`<code>${`%${id} `}</code>${valueType(delegate.type(id))}`,
    plan?.shapes[id] ? html`<span class="quiet"> here ${delegate.type(id, plan)}</span>` : nothing,
    is_state ? html`<span class="quiet"> state, kept between calls</span>` : nothing,
    constant === null ? nothing : [" ", linkTo(`constant, ${humanBytes(bytes)}`, () => page.showConstant(constant))],
  ];
}

/** Links to nodes, below a title if there are any. */
export function nodeLinks(page: Page, delegate: Delegate, title: string, nodes: number[]) {
  const links = [...new Set(nodes)].map((index) => {
    const node = delegate.nodes[index];
    return linkTo(`#${index} ${shortName(delegate.operator(node).name)}`, () => page.goTo(node));
  });
  return links.length ? html`${title ? html`<h4>${title}</h4>` : nothing}<p>${commas(links)}</p>` : nothing;
}

/** The calls that a node is part of, and its neighbours. */
function around(page: Page, delegate: Delegate, { index, reads, writes }: Item) {
  const { nodes } = delegate;
  const calls = delegate.calls.filter((call) => call.nodes.includes(index));
  const links = calls.map((call) => {
    return linkTo(`${delegate.operator(call).name}, ${counted(call.nodes.length, "node")}`, () => page.goTo(call));
  });
  const before = reads.flatMap((id) => nodes.findLast((node) => node.index < index && node.writes.includes(id)) ?? []);
  const after = writes.flatMap((id) => nodes.filter((node) => node.index > index && node.reads.includes(id)));
  const numbers = (items: Item[]) => items.map((item) => item.index);
  return [
    links.length ? html`<h4>After rewrites part of</h4><p>${links}</p>` : nothing,
    nodeLinks(page, delegate, "Reads from", numbers(before)),
    nodeLinks(page, delegate, "Read by", numbers(after)),
  ];
}

function launchLinks(page: Page, { title, launches }: Plan, item: Item) {
  const isOf = (index: number) => launches[index].nodes.some((node) => item.nodes.includes(node));
  const all = [...launches.keys()].filter(isOf);
  const links = all
    .slice(0, 40)
    .map((index) => linkTo(`${index} ${PROGRAM.kernels[launches[index].kernel].name}`, () => page.chooseLaunch(index)));
  const rest = all.length > 40 ? ` and ${all.length - 40} more` : "";
  const none = quiet("None: it costs nothing at these shapes, or runs once at load.");
  return html`<h4>Launches ${title}</h4>${all.length ? html`<p>${commas(links)}${rest}</p>` : none}`;
}

/** One launch of the plan. */
export function launchDetails(page: Page, delegate: Delegate, plan: Plan, index: number) {
  const { withSource } = page.state;
  const launch = plan.launches[index];
  const kernel = PROGRAM.kernels[launch.kernel];
  const buffers = launch.buffers.map(({ name, access, kind, place, bytes }) => {
    const isConstant = kind === "weight" && place >= 0;
    const what = isConstant
      ? linkTo("weight", () => page.showConstant(place))
      : `${kind} ${kind === "state" ? "%" : ""}${place}`;
    return html`
      <tr><th>${name}</th><td>${access.replace("_", " and ")}</td><td>${what}</td>
        <td class="number">${humanBytes(bytes)}</td></tr>`;
  });
  const parameters = Object.entries(launch.parameters).map(
    ([name, value]) => html`<tr><th>${name}</th><td><code>${JSON.stringify(value)}</code></td></tr>`,
  );
  const source = html`
    <button type="button" aria-expanded=${withSource} @click=${() => page.update({ withSource: !withSource })}>
      WGSL text</button>
    <div>${withSource ? html`<pre tabindex="0">${kernel.source}</pre>` : nothing}</div>`;
  return html`
    <h3>Launch ${index}: ${kernel.name}</h3>
    ${quiet(`${launch.groups.join(" × ")} workgroups of ${kernel.workgroup.join(" × ")}`)}
    ${nodeLinks(page, delegate, "Computes nodes", launch.nodes)}
    <h4>Buffers</h4><table>${buffers}</table>
    ${parameters.length ? html`<h4>Parameters</h4><table>${parameters}</table>` : nothing}
    <h4>Kernel</h4>
    ${kernel.source === null ? quiet("The source is left out to keep the page small.") : source}
    <h4>All launches</h4>`;
}
