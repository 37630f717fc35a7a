// What the panel says of a node, a call or a launch.
"use strict";

function valueType(text) {
  const parts = text.split(/(≤\d+)/);
  return make("span", { class: "type" }, parts.map((part) => (part.startsWith("≤") ? make("span", { class: "dynamic" }, part) : part)));
}

function linkTo(text, onclick) {
  return make("button", { type: "button", class: "link", onclick }, text);
}

function familyDot(family) {
  return make("span", { class: "dot", style: `background: var(--family-${CSS.escape(family)}, var(--family-unknown))` });
}

/** A node of the file, or a call after rewrites. */
function itemDetails(page, item) {
  const { delegate, plan } = page.state;
  const operator = delegate.operator(item);
  const isCall = item.key[0] === "c";
  const parts = [
    make("h3", {}, operator.name),
    make("p", { class: "quiet" }, familyDot(operator.family), ` ${operator.family} · `,
      isCall ? `call of ${counted(item.nodes.length, "node")}${item.is_once ? ", runs once, at load" : ""}` : `node ${item.index}`),
  ];
  if (!operator.is_available) parts.push(make("p", { class: "bad" }, "Pteron does not have this operator."));
  parts.push(make("h4", {}, "Arguments"), argumentTable(page, item, operator));
  if (isCall) parts.push(make("h4", {}, "Computes nodes"), nodeLinks(page, item.nodes));
  else parts.push(...callOf(page, item), ...neighbours(page, item));
  const launches = plan ? [...new Set(item.nodes.flatMap((node) => delegate.launchesOf(plan, node)))].sort((a, b) => a - b) : [];
  if (plan) {
    parts.push(make("h4", {}, `Launches ${plan.title}`));
    parts.push(launches.length ? launchLinks(page, launches) : make("p", { class: "quiet" }, "None: it costs nothing at these shapes, or runs once at load."));
  }
  return parts;
}

/** A folded block: what is in it. */
function blockDetails(page, vertex) {
  const { delegate } = page.state;
  const counts = new Map();
  for (const item of vertex.items) {
    const { name } = delegate.operator(item);
    counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  const rows = [...counts].sort((a, b) => b[1] - a[1]).map(([name, count]) =>
    make("tr", {}, make("td", { class: "number" }, String(count)), make("td", {}, name)));
  return [make("h3", {}, vertex.title), make("p", { class: "quiet" }, vertex.subtitle),
    make("h4", {}, "Operators"), make("table", {}, rows)];
}

function argumentTable(page, item, operator) {
  const rows = item.arguments.map((argument, position) => {
    const isOutput = position >= operator.arguments.length && operator.arguments.length > 0;
    const name = operator.arguments[position] ?? (isOutput ? "out" : String(position));
    return make("tr", {}, make("th", {}, name), make("td", {}, argumentText(page, argument)));
  });
  return make("table", {}, rows);
}

function argumentText(page, argument) {
  const { delegate, plan } = page.state;
  if (Array.isArray(argument)) return ["[", argument.map((item, index) => [index ? ", " : "", argumentText(page, item)]), "]"];
  if (argument === null || typeof argument !== "object") return make("code", {}, String(argument));
  const value = delegate.values.get(argument.value);
  const parts = [make("code", {}, `%${value.id} `), valueType(delegate.type(value.id))];
  if (plan?.shapes[value.id]) parts.push(make("span", { class: "quiet" }, ` here ${delegate.type(value.id, plan)}`));
  if (value.is_state) parts.push(make("span", { class: "quiet" }, " state, kept between calls"));
  if (value.constant !== null) {
    const constant = delegate.record.constants[value.constant];
    parts.push(" ", linkTo(`constant, ${humanBytes(constant.bytes)}`, () => page.showConstant(value.constant)));
  }
  return parts;
}

function nodeLinks(page, nodes) {
  const { delegate } = page.state;
  return make("p", {}, nodes.map((node, index) => [
    index ? ", " : "", linkTo(`#${node} ${shortName(delegate.operator(delegate.nodes[node]).name)}`, () => page.goToNode(node)),
  ]));
}

function callOf(page, item) {
  const calls = page.state.delegate.calls.filter((call) => call.nodes.includes(item.index));
  if (!calls.length) return [];
  const links = calls.map((call) => linkTo(`${page.state.delegate.operator(call).name}, ${counted(call.nodes.length, "node")}`, () => page.goToCall(call)));
  return [make("h4", {}, "After rewrites part of"), make("p", {}, links)];
}

function neighbours(page, item) {
  const { delegate } = page.state;
  const before = item.reads.flatMap((id) => (delegate.writers.get(id) ?? []).filter((node) => node < item.index).slice(-1));
  const after = item.writes.flatMap((id) => (delegate.readers.get(id) ?? []).filter((node) => node > item.index));
  return [["Reads from", before], ["Read by", after]].flatMap(([title, nodes]) =>
    nodes.length ? [make("h4", {}, title), nodeLinks(page, [...new Set(nodes)])] : []);
}

function launchLinks(page, launches) {
  const shown = launches.slice(0, 40);
  const rest = launches.length - shown.length;
  return make("p", {}, shown.map((index, position) => [
    position ? ", " : "", linkTo(`${index} ${PROGRAM.kernels[page.state.plan.launches[index].kernel].name}`, () => page.chooseLaunch(index)),
  ]), rest ? ` and ${rest} more` : "");
}

/** One launch of the plan. */
function launchDetails(page, index) {
  const { plan, delegate } = page.state;
  const launch = plan.launches[index];
  const kernel = PROGRAM.kernels[launch.kernel];
  const buffers = launch.buffers.map((buffer) => make("tr", {},
    make("th", {}, buffer.name), make("td", {}, buffer.access.replace("_", " and ")),
    make("td", {}, buffer.kind === "weight" && buffer.place >= 0
      ? linkTo("weight", () => page.showConstant(buffer.place))
      : `${buffer.kind} ${buffer.kind === "state" ? "%" : ""}${buffer.place}`),
    make("td", { class: "number" }, humanBytes(buffer.bytes))));
  const parameters = Object.entries(launch.parameters).map(([name, value]) =>
    make("tr", {}, make("th", {}, name), make("td", {}, make("code", {}, JSON.stringify(value)))));
  const source = make("div", {});
  const button = make("button", { type: "button", "aria-expanded": "false", onclick: () => {
    const isShown = source.childElementCount > 0;
    source.replaceChildren(...(isShown ? [] : [make("pre", { tabindex: 0 }, kernel.source ?? "")]));
    button.setAttribute("aria-expanded", String(!isShown));
  } }, "WGSL text");
  return [
    make("h3", {}, `Launch ${index}: ${kernel.name}`),
    make("p", { class: "quiet" }, `${launch.groups.join(" × ")} workgroups of ${kernel.workgroup.join(" × ")}`),
    make("h4", {}, "Computes nodes"), nodeLinks(page, launch.nodes),
    make("h4", {}, "Buffers"), make("table", {}, buffers),
    ...(parameters.length ? [make("h4", {}, "Parameters"), make("table", {}, parameters)] : []),
    make("h4", {}, "Kernel"),
    kernel.source === null ? make("p", { class: "quiet" }, "The source is left out to keep the page small.") : button, source,
  ];
}
