// The panel's lists: launches of the plan, constants with their histograms, the program's methods.

import { html, nothing, svg } from "lit-html";
import { sum } from "../../shared/sums.ts";
import { counted, fewDigits, humanBytes } from "../../shared/text.ts";
import type { Histogram, Method } from "./data.ts";
import { bad, linkTo, nodeLinks, quiet, valueType } from "./details.ts";
import type { Page } from "./main.ts";
import { DELEGATES, type Delegate, PROGRAM } from "./program.ts";

const ROWS_MAX = 5000; // of a list, so that the page stays quick

/** A row of a list that can be chosen. */
function row(isChosen: boolean, choose: () => void, cells: unknown) {
  const press = (event: KeyboardEvent) => event.key === "Enter" && choose();
  return html`
    <tr class="row" tabindex="0" aria-selected=${isChosen} @click=${choose} @keydown=${press}>${cells}</tr>`;
}

export function launchList(page: Page, delegate: Delegate) {
  const { plan, launch } = page.state;
  const { plans } = delegate.record;
  if (!plan) return quiet("No plan: the graph could not be compiled.");
  const { launches } = plan;
  const choosePlan = (event: Event) => page.choosePlan(plans[(event.target as HTMLSelectElement).selectedIndex]);
  const head = html`
    <p><label>Plan <select id="plan" aria-label="Plan" @change=${choosePlan}>
      ${plans.map((each, index) => html`<option value=${index} .selected=${each === plan}>${each.title}</option>`)}
    </select></label></p>
    ${plan.notes.map(quiet)}`;
  if (plan.problem) return [head, bad(plan.problem)];
  const about = `${counted(launches.length, "launch")}, planned for ${PROGRAM.planned_for}`;
  const rows = launches.slice(0, ROWS_MAX).map((each, index) => {
    const others = each.nodes.length > 1 ? ` +${each.nodes.length - 1}` : "";
    const cells = html`
      <td class="number">${index}</td><td class="name">${PROGRAM.kernels[each.kernel].name}</td>
      <td>#${each.node}${others} ${delegate.launchName(each)}</td><td class="number">${each.groups.join("×")}</td>`;
    return row(index === launch, () => page.chooseLaunch(index), cells);
  });
  return html`${head}
    ${quiet(`${about}, with inputs ${inRuns(plan.inputs).join(", ")}`)}
    <table id="launches">
      <thead><tr><th class="number"></th><th>kernel</th><th>node</th><th class="number">groups</th></tr></thead>
      <tbody>${rows}</tbody>
    </table>
    ${launches.length > ROWS_MAX ? quiet(`and ${launches.length - ROWS_MAX} more`) : nothing}`;
}

/** Texts with those together that are the same and follow one another: 8 × f32[6, 64]. */
function inRuns(texts: string[]): string[] {
  const starts = [...texts.keys()].filter((index) => texts[index] !== texts[index - 1]);
  const counts = starts.map((start, run) => (starts[run + 1] ?? texts.length) - start);
  return starts.map((start, run) => (counts[run] > 1 ? `${counts[run]} × ${texts[start]}` : texts[start]));
}

export function constantList(page: Page, delegate: Delegate) {
  const { constants } = delegate.record;
  const total = humanBytes(sum(constants, (each) => each.bytes));
  const order = [...constants.keys()].sort((a, b) => constants[b].bytes - constants[a].bytes || a - b);
  const rows = order.slice(0, ROWS_MAX).map((index) => {
    const { bytes, type, key } = constants[index];
    const isChosen = index === page.state.constant;
    const cells = html`
      <td class="number">${humanBytes(bytes)}</td><td><span class="type">${type}</span></td>
      <td>${key.length > 14 ? `${key.slice(0, 13)}…` : key}</td>`;
    const below = isChosen ? html`<tr><td colspan="3">${constantDetails(page, delegate, index)}</td></tr>` : nothing;
    return [row(isChosen, () => page.showConstant(isChosen ? null : index), cells), below];
  });
  return html`
    ${quiet(`${counted(constants.length, "constant")}, ${total}; click one for its histogram`)}
    <table><tbody>${rows}</tbody></table>`;
}

function constantDetails(page: Page, delegate: Delegate, index: number) {
  const { key, is_given, histogram } = delegate.record.constants[index];
  const isUser = (reads: number[]) => reads.some((id) => delegate.value(id).constant === index);
  const users = delegate.nodes.filter((node) => isUser(node.reads)).map((node) => node.index);
  const elements = histogram ? bars(histogram) : quiet("It has no finite elements.");
  return html`
    ${quiet(key)}${nodeLinks(page, delegate, "", users)}
    ${is_given ? elements : bad("It is missing in the given files.")}`;
}

function bars({ counts, low, high, mean, bits, looked_at, elements, not_finite }: Histogram) {
  const most = Math.max(...counts);
  const width = 320 / counts.length;
  const rects = counts.map((count, index) => {
    const height = (count / most) * 66;
    return svg`
      <rect x=${index * width} y=${70 - height} width=${Math.max(1, width - 1)} height=${height} fill="var(--accent)">
        <title>${count} of ${looked_at}</title></rect>`;
  });
  const all = elements.toLocaleString("en");
  const part = looked_at < elements ? `a sample of ${looked_at.toLocaleString("en")} of ${all}` : `all ${all}`;
  const what = bits ? `${bits}-bit numbers as they are stored` : "elements";
  const odd = not_finite ? `, ${not_finite} of them not finite` : "";
  return html`
    <svg viewBox="0 0 320 88" role="img" class="histogram" aria-label=${`Histogram of ${counts.length} bins`}>
      ${rects}
      <text x="0" y="84">${fewDigits(bits ? 0 : low)}</text>
      <text x="320" y="84" text-anchor="end">${fewDigits(bits ? counts.length - 1 : high)}</text>
    </svg>
    ${quiet(`from ${fewDigits(low)} to ${fewDigits(high)}, mean ${fewDigits(mean)}; ${part} ${what}${odd}`)}`;
}

export function programPanel(page: Page) {
  const { kind, bytes, made_for, problems, methods, host_reasons } = PROGRAM;
  const isConstant = ({ inputs, instructions }: Method) => !inputs.length && !instructions.length;
  const constant = methods.filter(isConstant);
  const rows = constant.map(({ name, outputs }) => html`<tr><td>${name}</td><td>${outputs.join(", ")}</td></tr>`);
  return html`
    ${quiet(`${kind}, ${humanBytes(bytes)}${made_for ? `, made for ${made_for}` : ""}`)}
    ${problems.map(bad)}
    ${methods.filter((method) => !isConstant(method)).map((method) => methodDetails(page, method))}
    ${host_reasons.length ? html`<h4>Why operators are on the host</h4>` : nothing}
    ${host_reasons.map((reason) => html`<p>${reason}</p>`)}
    ${constant.length ? html`<h4>Constant methods</h4><table>${rows}</table>` : nothing}`;
}

function methodDetails(page: Page, method: Method) {
  const types = (texts: string[]) => texts.map((text) => [valueType(text), " "]);
  const rows = method.instructions.map(({ kind, text, delegate }, index) => {
    const called = DELEGATES.find(({ record }) => record === method.delegates[delegate ?? -1]);
    const what = called ? linkTo(text, () => page.chooseDelegate(called)) : text;
    return html`<tr><td class="number">${index}</td><td class="name">${kind}</td><td>${what}</td></tr>`;
  });
  return html`
    <h3>${method.name}</h3>
    <p>${types(method.inputs)}→ ${types(method.outputs)}</p>
    ${rows.length ? html`<table class="instructions">${rows}</table>` : nothing}`;
}
