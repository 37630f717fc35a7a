// The data of the page, indexed.

import { byId } from "../../shared/elements.ts";
import { sum } from "../../shared/sums.ts";
import type { DelegateRecord, Launch, Method, NodeRecord, Plan, Program, Value } from "./data.ts";

export const PROGRAM: Program = JSON.parse(byId("data").textContent ?? "");

/** Nodes of equal structure that follow one another, such as a layer. */
export type Block = { first: number; end: number; key: string; title: string };

/** A node of the file, or a call after rewrites. */
export type Item = NodeRecord & { kind: "node" | "call"; key: string; index: number; nodes: number[] } & {
  is_once?: boolean;
};

/** A delegate's lists, and what can be asked of them. */
function delegateOf(method: Method, record: DelegateRecord) {
  const values = new Map(record.values.map((value) => [value.id, value]));
  const nodes = record.nodes.map((node, index): Item => {
    return { ...node, kind: "node", key: `n${index}`, index, nodes: [index] };
  });
  const calls = (record.calls ?? []).map((call, index): Item => {
    return { ...call, kind: "call", key: `c${index}`, index: call.node };
  });
  const callAt = new Map(calls.map((call) => [call.index, call]));
  const blocks = record.repetitions.flatMap((places) =>
    places.map(([first, end], position): Block => {
      return { first, end, key: `b${first}`, title: `block ${position + 1} of ${places.length}` };
    }),
  );
  const blockOf = nodes.map((): Block | null => null);
  for (const block of blocks) blockOf.fill(block, block.first, block.end);
  const value = (id: number) => values.get(id) as Value;
  const operator = (item: Item) => record.operators[item.operator];
  const constantsOf = (item: Item) => {
    return item.reads.flatMap((id) => record.constants[value(id).constant ?? -1] ?? []);
  };
  return {
    ...{ method, record, nodes, calls, blocks, blockOf, value, operator, constantsOf },

    /** Bytes of the constants that a node or call reads. */
    constantBytes: (item: Item) => sum(constantsOf(item), (constant) => constant.bytes),

    /** A value's type at its maximum, or at the live shapes of a plan: dims that vary are marked. */
    type(id: number, plan: Plan | null = null): string {
      const { dtype, shape_max, dynamic } = value(id);
      if (dtype === null) return "live integer";
      const dims = plan?.shapes[id] ?? shape_max.map((size, dim) => (dynamic.includes(dim) ? `≤${size}` : size));
      return `${dtype}[${dims.join(", ")}]`;
    },

    /** What a launch computes: the call that it is of, whatever its node was called. */
    launchName(launch: Launch): string {
      const call = callAt.get(launch.node);
      return shortName(call ? operator(call).name : launch.operator);
    },
  };
}

export type Delegate = ReturnType<typeof delegateOf>;

/** An operator's name without what all of them share. */
export function shortName(name: string): string {
  return name.replace(/^(aten|et_vk|pteron|llama|dim_order_ops)\./, "").replace(/\.default$/, "");
}

export const DELEGATES = PROGRAM.methods.flatMap((method) =>
  method.delegates.map((record) => delegateOf(method, record)),
);
