// Memory over the course of a plan: an area per kind, the peak named, a press chooses the launch there.

import { html, nothing, svg } from "lit-html";
import { humanBytes } from "../../shared/text.ts";
import type { Memory } from "./data.ts";
import { dot, linkTo } from "./details.ts";
import type { Page } from "./main.ts";
import { PROGRAM } from "./program.ts";

const CHART = { width: 1000, height: 92, top: 6, bottom: 14 };

export function memoryPanel(page: Page) {
  const { plan, withWeights } = page.state;
  if (!plan?.memory || !plan.launches.length) return nothing;
  const { weights, states, activations, scratch, activations_reserved, scratch_reserved } = plan.memory;
  const { peak_launch, peak_bytes } = plan.memory;
  const reserved = humanBytes(weights + states + activations_reserved + scratch_reserved);
  const { name } = PROGRAM.kernels[plan.launches[peak_launch].kernel];
  const peak = linkTo(`launch ${peak_launch}, ${name}`, () => page.chooseLaunch(peak_launch));
  const most = (sizes: number[]) => humanBytes(Math.max(...sizes));
  const figure = (name: string, text: string) => html`<span>${dot(name)} ${name} <b>${text}</b></span>`;
  return html`
    <div class="figures">
      <span id="peak">peak <b>${humanBytes(peak_bytes)}</b> at ${peak}</span>
      ${figure("weights", humanBytes(weights))}
      ${figure("states", humanBytes(states))}
      ${figure("activations", `${most(activations)} of ${humanBytes(activations_reserved)} reserved`)}
      ${figure("scratch", `${most(scratch)} of ${humanBytes(scratch_reserved)}`)}
      <span class="quiet">${reserved} reserved in all, ${plan.title}</span>
      <label class="check">
        <input type="checkbox" .checked=${withWeights} @change=${() => page.update({ withWeights: !withWeights })}>
        draw weights and states</label>
    </div>
    ${memoryChart(page, plan.memory)}`;
}

function memoryChart(page: Page, { weights, states, activations, scratch, peak_launch }: Memory) {
  const { launch, withWeights } = page.state;
  const count = activations.length;
  const layers: Record<string, number[]> = { activations, scratch };
  if (withWeights) Object.assign(layers, { weights: Array(count).fill(weights), states: Array(count).fill(states) });
  const totals = activations.map((_, index) => Object.values(layers).reduce((sum, sizes) => sum + sizes[index], 0));
  const most = Math.max(...totals, 1);
  const room = CHART.height - CHART.top - CHART.bottom;
  const x = (index: number) => (index / count) * CHART.width;
  const y = (size: number) => CHART.top + room - (size / most) * room;
  const floor: number[] = Array(count).fill(0);
  const polygons = ["weights", "states", "activations", "scratch"].map((name) => {
    const upper: string[] = [];
    const lower: string[] = [];
    for (const [index, size] of layers[name]?.entries() ?? []) {
      lower.unshift(`${x(index + 1)},${y(floor[index])} ${x(index)},${y(floor[index])}`);
      floor[index] += size;
      upper.push(`${x(index)},${y(floor[index])} ${x(index + 1)},${y(floor[index])}`);
    }
    return svg`<polygon points=${[...upper, ...lower].join(" ")} fill=${`var(--${name})`}></polygon>`;
  });
  const line = (index: number, colour: string) => svg`
    <rect x=${x(index)} y="0" width=${Math.max(1.5, CHART.width / count)} height=${CHART.height - CHART.bottom}
      fill=${`var(--${colour})`} opacity="0.55"></rect>`;
  const choose = (event: MouseEvent) => {
    const area = (event.currentTarget as Element).getBoundingClientRect();
    const index = Math.floor(((event.clientX - area.left) / area.width) * count);
    page.chooseLaunch(Math.min(count - 1, Math.max(0, index)));
  };
  return html`
    <svg viewBox=${`0 0 ${CHART.width} ${CHART.height}`} preserveAspectRatio="none" role="img" height=${CHART.height}
      aria-label=${`Memory in use at each of ${count} launches, ${humanBytes(most)} at most`} @click=${choose}>
      ${polygons}${line(peak_launch, "bad")}${launch === null ? nothing : line(launch, "accent")}
    </svg>`;
}
