// What the panel says of a node, a call or a launch.

import { type Child, make } from "../../shared/elements.ts";
import { counted, humanBytes } from "../../shared/text.ts";
import type { Argument, Operator, Plan } from "./data.ts";
import type { Vertex } from "./flow.ts";
import type { Page } from "./main.ts";
import { type Delegate, type Item, PROGRAM, shortName } from "./program.ts";

export function valueType(text: string): Element {
  const parts = text.split(/(≤\d+)/);
  return make(
    "span.type",
    parts.map((part) => (part.startsWith("≤") ? make("span.dynamic", part) : part)),
  );
}

export function linkTo(text: string, onclick: () => void): Element {
  return make("button.link", { type: "button", onclick }, text);
}

export function familyDot(family: string): Element {
  return dot(`family-${CSS.escape(family)}, var(--family-unknown)`);
}

/** A square of a colour of the theme. */
export function dot(colour: string): Element {
  return make("span.dot", { style: `background: var(--${colour})` });
}

/** A node of the file, or a call after rewrites. */
export function itemDetails(page: Page, delegate: Delegate, item: Item): Child[] {
  const { plan } = page.state;
  const operator = delegate.operator(item);
  const isCall = item.key[0] === "c";
  const parts: Child[] = [
    make("h3", operator.name),
    make(
      "p.quiet",
      familyDot(operator.family),
      ` ${operator.family} · `,
      isCall
        ? `call of ${counted(item.nodes.length, "node")}${item.is_once ? ", runs once, at load" : ""}`
        : `node ${item.index}`,
    ),
  ];
  if (!operator.is_available) parts.push(make("p.bad", "Pteron does not have this operator."));
  parts.push(make("h4", "Arguments"), argumentTable(page, delegate, item, operator));
  if (isCall) parts.push(make("h4", "Computes nodes"), nodeLinks(page, delegate, item.nodes));
  else parts.push(...callOf(page, delegate, item), ...neighbours(page, delegate, item));
  const launches = plan
    ? [...new Set(item.nodes.flatMap((node) => delegate.launchesOf(plan, node)))].sort((a, b) => a - b)
    : [];
  if (plan) {
    parts.push(make("h4", `Launches ${plan.title}`));
    parts.push(
      launches.length
        ? launchLinks(page, plan, launches)
        : make("p.quiet", "None: it costs nothing at these shapes, or runs once at load."),
    );
  }
  return parts;
}

/** A folded block: what is in it. */
export function blockDetails(delegate: Delegate, vertex: Vertex): Child[] {
  const counts = new Map<string, number>();
  for (const item of vertex.items) {
    const { name } = delegate.operator(item);
    counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  const rows = [...counts]
    .sort((a, b) => b[1] - a[1])
    .map(([name, count]) => make("tr", make("td.number", String(count)), make("td", name)));
  return [make("h3", vertex.title), make("p.quiet", vertex.subtitle), make("h4", "Operators"), make("table", rows)];
}

function argumentTable(page: Page, delegate: Delegate, item: Item, operator: Operator): Element {
  const rows = item.arguments.map((argument, position) => {
    const isOutput = position >= operator.arguments.length && operator.arguments.length > 0;
    const name = operator.arguments[position] ?? (isOutput ? "out" : String(position));
    return make("tr", make("th", name), make("td", argumentText(page, delegate, argument)));
  });
  return make("table", rows);
}

function argumentText(page: Page, delegate: Delegate, argument: Argument): Child {
  const { plan } = page.state;
  if (Array.isArray(argument))
    return ["[", argument.map((item, index) => [index ? ", " : "", argumentText(page, delegate, item)]), "]"];
  if (argument === null || typeof argument !== "object") return make("code", String(argument));
  const value = delegate.value(argument.value);
  const parts: Child[] = [make("code", `%${value.id} `), valueType(delegate.type(value.id))];
  if (plan?.shapes[value.id]) parts.push(make("span.quiet", ` here ${delegate.type(value.id, plan)}`));
  if (value.is_state) parts.push(make("span.quiet", " state, kept between calls"));
  const { constant } = value;
  if (constant !== null) {
    const { bytes } = delegate.record.constants[constant];
    parts.push(
      " ",
      linkTo(`constant, ${humanBytes(bytes)}`, () => page.showConstant(constant)),
    );
  }
  return parts;
}

export function nodeLinks(page: Page, delegate: Delegate, nodes: number[]): Element {
  return make(
    "p",
    nodes.map((node, index) => [
      index ? ", " : "",
      linkTo(`#${node} ${shortName(delegate.operator(delegate.nodes[node]).name)}`, () => page.goToNode(node)),
    ]),
  );
}

function callOf(page: Page, delegate: Delegate, item: Item): Child[] {
  const calls = delegate.calls.filter((call) => call.nodes.includes(item.index));
  if (!calls.length) return [];
  const links = calls.map((call) =>
    linkTo(`${delegate.operator(call).name}, ${counted(call.nodes.length, "node")}`, () => page.goToCall(call)),
  );
  return [make("h4", "After rewrites part of"), make("p", links)];
}

function neighbours(page: Page, delegate: Delegate, item: Item): Child[] {
  const before = item.reads.flatMap((id) =>
    (delegate.writers.get(id) ?? []).filter((node) => node < item.index).slice(-1),
  );
  const after = item.writes.flatMap((id) => (delegate.readers.get(id) ?? []).filter((node) => node > item.index));
  return (
    [
      ["Reads from", before],
      ["Read by", after],
    ] as const
  ).flatMap(([title, nodes]) =>
    nodes.length ? [make("h4", title), nodeLinks(page, delegate, [...new Set(nodes)])] : [],
  );
}

function launchLinks(page: Page, plan: Plan, launches: number[]): Element {
  const shown = launches.slice(0, 40);
  const rest = launches.length - shown.length;
  return make(
    "p",
    shown.map((index, position) => [
      position ? ", " : "",
      linkTo(`${index} ${PROGRAM.kernels[plan.launches[index].kernel].name}`, () => page.chooseLaunch(index)),
    ]),
    rest ? ` and ${rest} more` : "",
  );
}

/** One launch of the plan. */
export function launchDetails(page: Page, delegate: Delegate, plan: Plan, index: number): Child[] {
  const launch = plan.launches[index];
  const kernel = PROGRAM.kernels[launch.kernel];
  const buffers = launch.buffers.map((buffer) =>
    make(
      "tr",
      make("th", buffer.name),
      make("td", buffer.access.replace("_", " and ")),
      make(
        "td",
        buffer.kind === "weight" && buffer.place >= 0
          ? linkTo("weight", () => page.showConstant(buffer.place))
          : `${buffer.kind} ${buffer.kind === "state" ? "%" : ""}${buffer.place}`,
      ),
      make("td.number", humanBytes(buffer.bytes)),
    ),
  );
  const parameters = Object.entries(launch.parameters).map(([name, value]) =>
    make("tr", make("th", name), make("td", make("code", JSON.stringify(value)))),
  );
  const source = make("div");
  const button = make(
    "button",
    {
      type: "button",
      "aria-expanded": "false",
      onclick: () => {
        const isShown = source.childElementCount > 0;
        source.replaceChildren(...(isShown ? [] : [make("pre", { tabindex: 0 }, kernel.source ?? "")]));
        button.setAttribute("aria-expanded", String(!isShown));
      },
    },
    "WGSL text",
  );
  return [
    make("h3", `Launch ${index}: ${kernel.name}`),
    make("p.quiet", `${launch.groups.join(" × ")} workgroups of ${kernel.workgroup.join(" × ")}`),
    make("h4", "Computes nodes"),
    nodeLinks(page, delegate, launch.nodes),
    make("h4", "Buffers"),
    make("table", buffers),
    ...(parameters.length ? [make("h4", "Parameters"), make("table", parameters)] : []),
    make("h4", "Kernel"),
    kernel.source === null ? make("p.quiet", "The source is left out to keep the page small.") : button,
    source,
  ];
}
