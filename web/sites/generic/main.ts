// The methods of a program: numbers in, numbers out.

import type { Input, Program, Spec } from "../../player/api.ts";
import { fill, make } from "../../shared/elements.ts";
import { counted, fewDigits } from "../../shared/text.ts";
import { loadSite } from "../common/load.ts";

const SHOWN = 200; // numbers of an output
const SHAPES = 4; // of an input

function describe({ kind, dtype, type, planned }: Spec): string {
  if (planned) {
    const some = planned.slice(0, SHAPES).map((each) => `[${each.join(", ")}]`);
    return `${dtype}${some.join(" or ")}${planned.length > SHAPES ? ` or ${planned.length - SHAPES} more` : ""}`;
  }
  return type ?? kind;
}

/** Numbers that a text lists. */
function numbersOf(text: string, separators: RegExp, name: string): number[] {
  return text
    .split(separators)
    .filter(Boolean)
    .map((part) => {
      const value = Number(part);
      if (Number.isNaN(value) && part !== "NaN") throw new Error(`${name}: “${part}” is not a number.`);
      return value;
    });
}

/** The numbers of a field; an empty one is filled with numbers from -1 to 1. */
function read(field: HTMLTextAreaElement, shape: HTMLInputElement, spec: Spec): Input {
  const numbers = numbersOf(field.value, /[\s,]+/, spec.name);
  if (spec.kind !== "tensor") return numbers[0] ?? 0;
  const sizes = numbersOf(shape.value, /[\s,x×]+/, `shape of ${spec.name}`);
  const count = sizes.reduce((a, b) => a * b, 1);
  const isFloat = /^b?f/.test(spec.dtype ?? "");
  const data = numbers.length
    ? numbers
    : Array.from({ length: count }, (_, at) => (isFloat ? Math.sin(at * 12.9898) : 0));
  return { data: isFloat ? Float32Array.from(data) : Int32Array.from(data), shape: sizes };
}

function form(program: Program, method: string): HTMLElement {
  const { inputs, outputs } = program.methods[method] as { inputs: Spec[]; outputs: Spec[] };
  const fields = inputs.map((spec) => {
    const numbers = make("textarea", {
      rows: 2,
      placeholder: "numbers; empty: some that are made up",
      "aria-label": spec.name,
    });
    const shape = make("input", {
      value: (spec.planned?.[0] ?? spec.shape ?? []).join(" × "),
      "aria-label": `shape of ${spec.name}`,
    });
    return { spec, numbers, shape };
  });
  const result = make("div", { "aria-live": "polite" });
  const run = async (event: Event) => {
    event.preventDefault();
    try {
      const given = fields.map(({ spec, numbers, shape }) => [spec.name, read(numbers, shape, spec)]);
      const started = performance.now();
      const found = await program.run(Object.fromEntries(given), { method });
      const time = `${Math.round(performance.now() - started)} ms`;
      const shown = Object.entries(found).map(([name, { data, shape }]) => {
        const some = Array.from(data.subarray(0, SHOWN), fewDigits).join("  ");
        const more = data.length > SHOWN ? ` … ${counted(data.length - SHOWN, "number")} more` : "";
        return [make("h2", `${name} [${shape.join(", ")}]`), make("pre", some + more)];
      });
      fill(result, [make("p.quiet", time), ...shown.flat()]);
    } catch (error) {
      fill(result, [make("p.card bad", { role: "alert" }, (error as Error).message)]);
    }
  };
  const rows = fields.map(({ spec, numbers, shape }) =>
    make("label", `${spec.name}: ${describe(spec)} `, spec.kind === "tensor" ? shape : null, numbers),
  );
  const made = `gives ${outputs.map((spec) => `${spec.name}: ${describe(spec)}`).join(", ")}`;
  const head = [make("h2", method), make("p.quiet", made)];
  return make(
    "form.card",
    { onsubmit: run },
    head,
    make("div.inputs", rows, make("div", make("button.main", "Run"))),
    result,
  );
}

const program = await loadSite();
if (program) {
  const methods = document.getElementById("methods") as HTMLElement;
  fill(
    methods,
    Object.keys(program.methods).map((method) => form(program, method)),
  );
  if (Object.values(program.methods).some(({ states }) => states !== 0)) {
    const reset = make("button", { type: "button", onclick: () => program.reset() }, "Reset states");
    methods.append(make("p", reset));
  }
}
