// The data of the page, indexed: values by id, with their readers and writers.

import { byId } from "../../shared/elements.ts";
import type { CallRecord, DelegateRecord, Launch, Method, NodeRecord, Operator, Plan, Program, Value } from "./data.ts";

export const PROGRAM: Program = JSON.parse(byId("data").textContent ?? "");

/** Nodes of equal structure that follow one another, such as a layer. */
export type Block = { first: number; end: number; key: string; title: string };

/** A node of the file, with the key n..., or a call after rewrites, with the key c... */
export type Item = NodeRecord & { index: number; nodes: number[]; key: string; is_once?: boolean };

/** A delegate's lists by id, and the launches that do the work of a node. */
export class Delegate {
  readonly values: Map<number, Value>;
  readonly nodes: Item[];
  readonly calls: Item[];
  readonly callAt: Map<number, Item>;
  readonly writers = new Map<number, number[]>();
  readonly readers = new Map<number, number[]>();
  readonly blocks: Block[];
  readonly blockOf: (Block | null)[];

  constructor(
    readonly method: Method,
    readonly record: DelegateRecord,
  ) {
    this.values = new Map(record.values.map((value) => [value.id, value]));
    this.nodes = record.nodes.map((node, index) => ({ ...node, index, nodes: [index], key: `n${index}` }));
    this.calls = (record.calls ?? []).map((call: CallRecord, index) => ({
      ...call,
      index: call.node,
      key: `c${index}`,
    }));
    this.callAt = new Map(this.calls.map((call) => [call.index, call]));
    for (const node of this.nodes) {
      for (const id of node.reads) append(this.readers, id, node.index);
      for (const id of node.writes) append(this.writers, id, node.index);
    }
    this.blocks = record.repetitions.flatMap((blocks) =>
      blocks.map(([first, end], position) => ({
        first,
        end,
        key: `b${first}`,
        title: `block ${position + 1} of ${blocks.length}`,
      })),
    );
    this.blockOf = new Array(this.nodes.length).fill(null);
    for (const block of this.blocks) this.blockOf.fill(block, block.first, block.end);
  }

  operator(item: Item): Operator {
    return this.record.operators[item.operator];
  }

  /** The value of an id that a node names. */
  value(id: number): Value {
    return this.values.get(id) as Value;
  }

  /** Bytes of the constants that a node or call reads. */
  constantBytes(item: Item): number {
    let bytes = 0;
    for (const id of item.reads) {
      const place = this.value(id).constant;
      if (place !== null) bytes += this.record.constants[place].bytes;
    }
    return bytes;
  }

  /** A value's type at its maximum, or at the live shapes of a plan: dims that vary are marked. */
  type(id: number, plan: Plan | null = null): string {
    const value = this.value(id);
    if (value.dtype === null) return "live integer";
    const live = plan?.shapes[id];
    const dims = value.shape_max.map((size, dim) =>
      live ? String(live[dim]) : value.dynamic.includes(dim) ? `≤${size}` : String(size),
    );
    return `${value.dtype}[${dims.join(", ")}]`;
  }

  /** What a launch computes: the call that it is of, whatever its node was called. */
  launchName(launch: Launch): string {
    const call = this.callAt.get(launch.node);
    return shortName(call ? this.operator(call).name : launch.operator);
  }

  launchesOf(plan: Plan, node: number): number[] {
    return plan.launches.flatMap((launch, index) => (launch.nodes.includes(node) ? [index] : []));
  }
}

export function append<Key, Item>(map: Map<Key, Item[]>, key: Key, item: Item): void {
  const items = map.get(key);
  if (items) items.push(item);
  else map.set(key, [item]);
}

/** An operator's name without what all of them share. */
export function shortName(name: string): string {
  return name.replace(/^(aten|et_vk|pteron|llama|dim_order_ops)\./, "").replace(/\.default$/, "");
}

export const DELEGATES = PROGRAM.methods.flatMap((method) =>
  method.delegates.map((record) => new Delegate(method, record)),
);
