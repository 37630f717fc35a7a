// Memory over the course of a plan: an area per kind, the peak named, a press chooses the launch there.

import { type Child, make, makeSvg } from "../../shared/elements.ts";
import { humanBytes } from "../../shared/text.ts";
import type { Memory } from "./data.ts";
import { dot, linkTo } from "./details.ts";
import type { Page } from "./main.ts";
import { PROGRAM } from "./program.ts";

const CHART = { width: 1000, height: 92, top: 6, bottom: 14 };

export function memoryPanel(page: Page): Child[] {
  const { plan } = page.state;
  const memory = plan?.memory;
  if (!memory || !plan?.launches.length) return [];
  const reserved = memory.weights + memory.states + memory.activations_reserved + memory.scratch_reserved;
  const peak = memory.peak_launch;
  const kernel = PROGRAM.kernels[plan.launches[peak].kernel].name;
  const figure = (name: string, text: string) => make("span", dot(name), ` ${name} `, make("b", text));
  const check = make("input", { type: "checkbox", onchange: () => page.setWithWeights(check.checked) });
  check.checked = page.state.withWeights;
  return [
    make(
      "div.figures",
      make(
        "span",
        { id: "peak" },
        "peak ",
        make("b", humanBytes(memory.peak_bytes)),
        " at ",
        linkTo(`launch ${peak}, ${kernel}`, () => page.chooseLaunch(peak)),
      ),
      figure("weights", humanBytes(memory.weights)),
      figure("states", humanBytes(memory.states)),
      figure(
        "activations",
        `${humanBytes(Math.max(...memory.activations))} of ${humanBytes(memory.activations_reserved)} reserved`,
      ),
      figure("scratch", `${humanBytes(Math.max(...memory.scratch))} of ${humanBytes(memory.scratch_reserved)}`),
      make("span.quiet", `${humanBytes(reserved)} reserved in all, ${plan.title}`),
      make("label.check", check, "draw weights and states"),
    ),
    memoryChart(page, memory),
  ];
}

function memoryChart(page: Page, memory: Memory): Element {
  const count = memory.activations.length;
  const layers: [string, number[]][] = [
    ["activations", memory.activations],
    ["scratch", memory.scratch],
  ];
  if (page.state.withWeights) {
    layers.unshift(
      ["weights", new Array(count).fill(memory.weights)],
      ["states", new Array(count).fill(memory.states)],
    );
  }
  const totals = memory.activations.map((_, index) => layers.reduce((sum, [, sizes]) => sum + sizes[index], 0));
  const most = Math.max(...totals, 1);
  const room = CHART.height - CHART.top - CHART.bottom;
  const x = (index: number) => (index / count) * CHART.width;
  const y = (size: number) => CHART.top + room - (size / most) * room;
  const svg = makeSvg("svg", {
    viewBox: `0 0 ${CHART.width} ${CHART.height}`,
    preserveAspectRatio: "none",
    role: "img",
    height: CHART.height,
    "aria-label": `Memory in use at each of ${count} launches, ${humanBytes(most)} at most`,
    onclick: (event) => {
      const area = svg.getBoundingClientRect();
      page.chooseLaunch(
        Math.min(count - 1, Math.max(0, Math.floor(((event.clientX - area.left) / area.width) * count))),
      );
    },
  });
  const floor = new Array(count).fill(0);
  for (const [name, sizes] of layers) {
    const upper: string[] = [];
    const lower: string[] = [];
    sizes.forEach((size, index) => {
      upper.push(`${x(index)},${y(floor[index] + size)} ${x(index + 1)},${y(floor[index] + size)}`);
      lower.unshift(`${x(index + 1)},${y(floor[index])} ${x(index)},${y(floor[index])}`);
      floor[index] += size;
    });
    svg.append(
      makeSvg("polygon", { points: [...upper, ...lower].join(" "), fill: `var(--${name})`, "data-layer": name }),
    );
  }
  const line = (index: number, colour: string) =>
    makeSvg("rect", {
      x: x(index),
      y: 0,
      width: Math.max(1.5, CHART.width / count),
      height: CHART.height - CHART.bottom,
      fill: colour,
      opacity: 0.55,
    });
  svg.append(line(memory.peak_launch, "var(--bad)"));
  if (page.state.launch !== null) svg.append(line(page.state.launch, "var(--accent)"));
  return svg;
}
