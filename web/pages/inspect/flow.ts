// Nodes or calls, some of their blocks folded -> vertices and the edges between them.

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

export type Edge = { from: string; to: string; value: number };

/** The vertices and edges to draw. An edge is a value, from the vertex that writes it to one that reads it. */
export function flowOf(
  delegate: Delegate,
  items: Item[],
  unfolded: Set<string>,
  withIntegers: boolean,
): { vertices: Vertex[]; edges: Edge[] } {
  const vertices = new Map<string, Vertex>();
  const edges = new Map<string, Edge>();
  const writer = new Map<number, string>(); // of each value, as far as the items were walked
  const readerOf = new Set(items.flatMap((item) => item.reads));
  delegate.record.inputs.forEach((id, position) => {
    if (!readerOf.has(id)) return;
    vertices.set(`i${position}`, border(`i${position}`, `input ${position}`, delegate, id));
    writer.set(id, `i${position}`);
  });
  for (const item of items) {
    const vertex = vertexOf(delegate, item, unfolded, vertices);
    vertex.items.push(item);
    for (const id of item.reads) connect(delegate, edges, writer.get(id), vertex.key, id, withIntegers);
    for (const id of item.writes) writer.set(id, vertex.key);
  }
  delegate.record.outputs.forEach((id, position) => {
    vertices.set(`o${position}`, border(`o${position}`, `output ${position}`, delegate, id));
    connect(delegate, edges, writer.get(id), `o${position}`, id, true);
  });
  for (const vertex of vertices.values()) describe(delegate, vertex);
  return { vertices: [...vertices.values()], edges: [...edges.values()] };
}

function border(key: string, title: string, delegate: Delegate, id: number): Vertex {
  return { key, kind: "border", title, subtitle: delegate.type(id), family: "border", items: [], block: null };
}

function vertexOf(delegate: Delegate, item: Item, unfolded: Set<string>, vertices: Map<string, Vertex>): Vertex {
  const block = delegate.blockOf[item.index];
  const isFolded = block !== null && !unfolded.has(block.key);
  const key = isFolded ? block.key : item.key;
  const kind = isFolded ? "block" : "node";
  const vertex = vertices.get(key) ?? { key, kind, items: [], block, title: "", subtitle: "", family: "" };
  vertices.set(key, vertex);
  return vertex;
}

function connect(
  delegate: Delegate,
  edges: Map<string, Edge>,
  from: string | undefined,
  to: string,
  value: number,
  withIntegers: boolean,
): void {
  if (from === undefined || from === to) return;
  if (!withIntegers && delegate.value(value).dtype === null) return;
  edges.set(`${from} ${to} ${value}`, { from, to, value });
}

function describe(delegate: Delegate, vertex: Vertex): void {
  if (vertex.kind === "border") return;
  const bytes = vertex.items.reduce((sum, item) => sum + delegate.constantBytes(item), 0);
  const weight = bytes ? humanBytes(bytes) : "";
  if (vertex.kind === "block" && vertex.block) {
    vertex.title = vertex.block.title;
    vertex.subtitle = [counted(vertex.items.length, vertex.items[0].key[0] === "c" ? "call" : "node"), weight]
      .filter(Boolean)
      .join(" · ");
    vertex.family = "block";
    return;
  }
  const [item] = vertex.items;
  const others = item.nodes.length - 1;
  vertex.title = shortName(delegate.operator(item).name);
  vertex.subtitle = [`#${item.index}${others ? ` +${others}` : ""}`, weight, item.is_once ? "once" : ""]
    .filter(Boolean)
    .join(" · ");
  vertex.family = delegate.operator(item).family;
}
