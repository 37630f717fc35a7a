// Live integers: affine expressions over terms on a tape, and guards. As pteron/ops/terms.py.

import type { Affine, PlanJson } from "./format.ts";

export function evaluate([constant, ...terms]: Affine, numbers: number[]): number {
  let sum = constant as number;
  for (let at = 0; at < terms.length; at += 2)
    sum += (numbers[terms[at] as number] as number) * (terms[at + 1] as number);
  return sum;
}

/** The numbers of a plan's terms at these values of live integers; null if the plan does not hold for them. */
export function numbersOf(plan: PlanJson, values: Map<number, number>): number[] | null {
  const numbers: number[] = [];
  for (const term of plan.tape) {
    if (term[0] === "symbol") {
      numbers.push(values.get(term[1]) ?? 0);
    } else {
      const left = evaluate(term[1], numbers);
      const right = evaluate(term[2], numbers);
      numbers.push(term[0] === "product" ? left * right : right ? Math.floor(left / right) : 0);
    }
  }
  const holds = plan.guards.every(([expression, low, high]) => {
    const value = evaluate(expression, numbers);
    return (low === null || value >= low) && (high === null || value <= high);
  });
  return holds ? numbers : null;
}
