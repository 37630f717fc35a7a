// The data of the page, indexed: values by id, with their readers and writers.
"use strict";

const PROGRAM = JSON.parse(byId("data").textContent);

/** A delegate's lists by id, and the launches that do the work of a node. */
class Delegate {
  constructor(method, record) {
    this.method = method;
    this.record = record;
    this.values = new Map(record.values.map((value) => [value.id, value]));
    this.nodes = record.nodes.map((node, index) => ({ ...node, index, nodes: [index], key: `n${index}` }));
    this.calls = (record.calls ?? []).map((call, index) => ({ ...call, index: call.node, key: `c${index}` }));
    this.callAt = new Map(this.calls.map((call) => [call.index, call]));
    this.writers = new Map();
    this.readers = new Map();
    for (const node of this.nodes) {
      for (const id of node.reads) append(this.readers, id, node.index);
      for (const id of node.writes) append(this.writers, id, node.index);
    }
    this.blocks = record.repetitions.flatMap((blocks, repetition) => blocks.map(([first, end], position) => ({
      first, end, key: `b${first}`, title: `block ${position + 1} of ${blocks.length}`, repetition,
    })));
    this.blockOf = new Array(this.nodes.length).fill(null);
    for (const block of this.blocks) this.blockOf.fill(block, block.first, block.end);
  }

  operator(item) { return this.record.operators[item.operator]; }

  /** Bytes of the constants that a node or call reads. */
  constantBytes(item) {
    let bytes = 0;
    for (const id of item.reads) {
      const place = this.values.get(id).constant;
      if (place !== null) bytes += this.record.constants[place].bytes;
    }
    return bytes;
  }

  /** A value's type at its maximum, or at the live shapes of a plan: dims that vary are marked. */
  type(id, plan = null) {
    const value = this.values.get(id);
    if (value.dtype === null) return "live integer";
    const live = plan?.shapes[id];
    const dims = value.shape_max.map((size, dim) =>
      live ? String(live[dim]) : value.dynamic.includes(dim) ? `≤${size}` : String(size));
    return `${value.dtype}[${dims.join(", ")}]`;
  }

  /** What a launch computes: the call that it is of, whatever its node was called. */
  launchName(launch) {
    const call = this.callAt.get(launch.node);
    return shortName(call ? this.operator(call).name : launch.operator);
  }

  launchesOf(plan, node) {
    return plan.launches.flatMap((launch, index) => (launch.nodes.includes(node) ? [index] : []));
  }
}

function append(map, key, item) {
  if (map.has(key)) map.get(key).push(item);
  else map.set(key, [item]);
}

const DELEGATES = PROGRAM.methods.flatMap((method) => method.delegates.map((record) => new Delegate(method, record)));
