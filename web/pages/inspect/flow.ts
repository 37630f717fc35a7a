// Nodes or calls, some of their blocks folded -> vertices and the edges between them.

import { sum } from "../../shared/sums.ts";
import { counted, humanBytes } from "../../shared/text.ts";
import { type Block, type Delegate, type Item, shortName } from "./program.ts";

export interface Vertex {
  key: string;
  kind: "node" | "block" | "border"; // a border is an input or output of the graph
  title: string;
  subtitle: string;
  family: string;
  items: Item[];
  block: Block | null;
}

/** A value, from the vertex that writes it to one that reads it. */
export type Edge = { from: string; to: string; value: number };

/** The vertices and edges to draw. */
export function flowOf(delegate: Delegate, items: Item[], unfolded: Set<string>, withIntegers: boolean) {
  const { inputs, outputs } = delegate.record;
  const keyOf = (item: Item) => {
    const block = delegate.blockOf[item.index];
    return block && !unfolded.has(block.key) ? block.key : item.key;
  };
  const border = (key: string, title: string, id: number): Vertex => {
    return { key, kind: "border", title, subtitle: delegate.type(id), family: "border", items: [], block: null };
  };
  const read = new Set(items.flatMap((item) => item.reads));
  const readInputs = [...inputs.entries()].filter(([, id]) => read.has(id));
  const vertices = [
    ...readInputs.map(([position, id]) => border(`i${position}`, `input ${position}`, id)),
    ...[...Map.groupBy(items, keyOf)].map(([key, group]) => vertexOf(delegate, key, group)),
    ...outputs.map((id, position) => border(`o${position}`, `output ${position}`, id)),
  ];
  const edges = new Map<string, Edge>();
  const writer = new Map(readInputs.map(([position, id]) => [id, `i${position}`])); // of each value, so far
  const connect = (value: number, to: string) => {
    const from = writer.get(value);
    if (from !== undefined && from !== to) edges.set(`${from} ${to} ${value}`, { from, to, value });
  };
  for (const item of items) {
    for (const id of item.reads) if (withIntegers || delegate.value(id).dtype !== null) connect(id, keyOf(item));
    for (const id of item.writes) writer.set(id, keyOf(item));
  }
  for (const [position, id] of outputs.entries()) connect(id, `o${position}`);
  return { vertices, edges: [...edges.values()] };
}

/** A vertex of one node or call, or of those of a folded block. */
function vertexOf(delegate: Delegate, key: string, items: Item[]): Vertex {
  const [item] = items;
  const block = delegate.blockOf[item.index];
  const bytes = sum(items, delegate.constantBytes);
  const weight = bytes ? ` · ${humanBytes(bytes)}` : "";
  if (block?.key === key) {
    const subtitle = counted(items.length, item.kind) + weight;
    return { key, kind: "block", title: block.title, subtitle, family: "block", items, block };
  }
  const { name, family } = delegate.operator(item);
  const others = item.nodes.length > 1 ? ` +${item.nodes.length - 1}` : "";
  const subtitle = `#${item.index}${others}${weight}${item.is_once ? " · once" : ""}`;
  return { key, kind: "node", title: shortName(name), subtitle, family, items, block };
}
