// The panel's lists: launches of the plan, constants with their histograms, the program's methods.

import { type Child, make, makeSvg } from "../../shared/elements.ts";
import { counted, fewDigits, humanBytes } from "../../shared/text.ts";
import type { Histogram, Method, Plan } from "./data.ts";
import { linkTo, nodeLinks, valueType } from "./details.ts";
import type { Page } from "./main.ts";
import { DELEGATES, type Delegate, PROGRAM } from "./program.ts";

const ROWS_MAX = 5000; // of a list, so that the page stays quick

export function launchList(page: Page, delegate: Delegate): Child[] {
  const { plan, launch } = page.state;
  if (!plan) return [make("p.quiet", "No plan: the graph could not be compiled.")];
  const parts: Child[] = [planChoice(page, delegate, plan)];
  for (const note of plan.notes) parts.push(make("p.quiet", note));
  if (plan.problem) return [...parts, make("p.bad", plan.problem)];
  parts.push(
    make(
      "p.quiet",
      `${counted(plan.launches.length, "launch")}, planned for ${PROGRAM.planned_for}, with inputs ${inRuns(plan.inputs).join(", ")}`,
    ),
  );
  const rows = plan.launches.slice(0, ROWS_MAX).map((each, index) =>
    make(
      "tr.row",
      {
        tabindex: 0,
        "aria-selected": String(index === launch),
        "data-launch": index,
        onclick: () => page.chooseLaunch(index),
        onkeydown: (event) => {
          if (event.key === "Enter") page.chooseLaunch(index);
        },
      },
      make("td.number", String(index)),
      make("td.name", PROGRAM.kernels[each.kernel].name),
      make(
        "td",
        `#${each.node}${each.nodes.length > 1 ? ` +${each.nodes.length - 1}` : ""} ${delegate.launchName(each)}`,
      ),
      make("td.number", each.groups.join("×")),
    ),
  );
  const head = make(
    "tr",
    ["", "kernel", "node", "groups"].map((name, index) => make("th", index % 3 ? {} : { class: "number" }, name)),
  );
  parts.push(make("table", { id: "launches" }, make("thead", head), make("tbody", rows)));
  if (plan.launches.length > ROWS_MAX) parts.push(make("p.quiet", `and ${plan.launches.length - ROWS_MAX} more`));
  return parts;
}

/** Texts with those together that are the same and follow one another: 8 × f32[6, 64]. */
function inRuns(texts: string[]): string[] {
  const runs: { text: string; count: number }[] = [];
  for (const text of texts) {
    const last = runs.at(-1);
    if (last?.text === text) last.count++;
    else runs.push({ text, count: 1 });
  }
  return runs.map(({ text, count }) => (count > 1 ? `${count} × ${text}` : text));
}

function planChoice(page: Page, delegate: Delegate, plan: Plan): Element {
  const { plans } = delegate.record;
  const select = make(
    "select",
    { id: "plan", "aria-label": "Plan", onchange: () => page.choosePlan(Number(select.value)) },
    plans.map((each, index) => make("option", { value: index, selected: each === plan }, each.title)),
  );
  return make("p", make("label", "Plan ", select));
}

export function constantList(page: Page, delegate: Delegate): Child[] {
  const { constant } = page.state;
  const { constants } = delegate.record;
  const total = constants.reduce((sum, each) => sum + each.bytes, 0);
  const order = constants.map((_, index) => index).sort((a, b) => constants[b].bytes - constants[a].bytes || a - b);
  const rows = order.slice(0, ROWS_MAX).flatMap((index) => {
    const each = constants[index];
    const row = make(
      "tr.row",
      {
        tabindex: 0,
        "data-constant": index,
        "aria-selected": String(index === constant),
        onclick: () => page.showConstant(index === page.state.constant ? null : index),
        onkeydown: (event) => {
          if (event.key === "Enter") page.showConstant(index === page.state.constant ? null : index);
        },
      },
      make("td.number", humanBytes(each.bytes)),
      make("td", make("span.type", each.type)),
      make("td", each.key.length > 14 ? `${each.key.slice(0, 13)}…` : each.key),
    );
    return index === constant
      ? [row, make("tr", make("td", { colspan: 3 }, constantDetails(page, delegate, index)))]
      : [row];
  });
  return [
    make("p.quiet", `${counted(constants.length, "constant")}, ${humanBytes(total)}; click one for its histogram`),
    make("table", make("tbody", rows)),
  ];
}

function constantDetails(page: Page, delegate: Delegate, index: number): Child[] {
  const constant = delegate.record.constants[index];
  const users = [...delegate.values.values()]
    .filter((value) => value.constant === index)
    .flatMap((value) => delegate.readers.get(value.id) ?? []);
  const parts = [make("p.quiet", constant.key), nodeLinks(page, delegate, [...new Set(users)])];
  if (!constant.is_given) return [...parts, make("p.bad", "It is missing in the given files.")];
  const { histogram } = constant;
  if (!histogram) return [...parts, make("p.quiet", "It has no finite elements.")];
  const isSample = histogram.looked_at < histogram.elements;
  const what = histogram.bits ? `${histogram.bits}-bit numbers as they are stored` : "elements";
  return [
    ...parts,
    bars(histogram),
    make(
      "p.quiet",
      `from ${fewDigits(histogram.low)} to ${fewDigits(histogram.high)}, mean ${fewDigits(histogram.mean)}; ` +
        (isSample
          ? `a sample of ${histogram.looked_at.toLocaleString("en")} of ${histogram.elements.toLocaleString("en")} ${what}`
          : `all ${histogram.elements.toLocaleString("en")} ${what}`) +
        (histogram.not_finite ? `, ${histogram.not_finite} of them not finite` : ""),
    ),
  ];
}

function bars(histogram: Histogram): Element {
  const { counts, low, high, bits } = histogram;
  const most = Math.max(...counts);
  const width = 320 / counts.length;
  const rects = counts.map((count, index) =>
    makeSvg(
      "rect",
      {
        x: index * width,
        y: 70 - (count / most) * 66,
        width: Math.max(1, width - 1),
        height: (count / most) * 66,
        fill: "var(--accent)",
      },
      makeSvg("title", {}, `${count} of ${histogram.looked_at}`),
    ),
  );
  const text = (x: number, anchor: string, value: string) =>
    makeSvg("text", { x, y: 84, "text-anchor": anchor }, value);
  return makeSvg(
    "svg",
    { viewBox: "0 0 320 88", role: "img", class: "histogram", "aria-label": `Histogram of ${counts.length} bins` },
    ...rects,
    text(0, "start", fewDigits(bits ? 0 : low)),
    text(320, "end", fewDigits(bits ? counts.length - 1 : high)),
  );
}

export function programPanel(page: Page): Child[] {
  const madeFor = PROGRAM.made_for ? `, made for ${PROGRAM.made_for}` : "";
  const parts: Child[] = [make("p.quiet", `${PROGRAM.kind}, ${humanBytes(PROGRAM.bytes)}${madeFor}`)];
  for (const problem of PROGRAM.problems) parts.push(make("p.bad", problem));
  const isConstant = (method: Method) => !method.inputs.length && !method.instructions.length;
  for (const method of PROGRAM.methods.filter((each) => !isConstant(each))) {
    parts.push(
      make("h3", method.name),
      make(
        "p",
        method.inputs.map((type) => [valueType(type), " "]),
        "→ ",
        method.outputs.map((type) => [valueType(type), " "]),
      ),
    );
    if (!method.instructions.length) continue;
    parts.push(
      make(
        "table.instructions",
        method.instructions.map((each, index) =>
          make(
            "tr",
            make("td.number", String(index)),
            make("td.name", each.kind),
            make(
              "td",
              each.delegate === null
                ? each.text
                : linkTo(each.text, () =>
                    page.chooseDelegate(
                      DELEGATES.findIndex(
                        (delegate) =>
                          delegate.method === method && delegate.record === method.delegates[each.delegate ?? 0],
                      ),
                    ),
                  ),
            ),
          ),
        ),
      ),
    );
  }
  if (PROGRAM.host_reasons.length) {
    parts.push(make("h4", "Why operators are on the host"), ...PROGRAM.host_reasons.map((reason) => make("p", reason)));
  }
  const constant = PROGRAM.methods.filter(isConstant);
  if (constant.length) {
    parts.push(
      make("h4", "Constant methods"),
      make(
        "table",
        constant.map((method) => make("tr", make("td", method.name), make("td", method.outputs.join(", ")))),
      ),
    );
  }
  return parts;
}
