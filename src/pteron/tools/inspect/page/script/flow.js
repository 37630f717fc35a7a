// Nodes or calls, some of their blocks folded -> vertices and the edges between them.
"use strict";

/** The vertices and edges to draw. An edge is a value, from the vertex that writes it to one that reads it. */
function flowOf(delegate, items, unfolded, withIntegers) {
  const vertices = new Map();
  const edges = new Map();
  const writer = new Map(); // of each value, as far as the items were walked
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

function border(key, title, delegate, id) {
  return { key, kind: "border", title, subtitle: delegate.type(id), family: "border", items: [], value: id, block: null };
}

function vertexOf(delegate, item, unfolded, vertices) {
  const block = delegate.blockOf[item.index];
  const isFolded = block !== null && !unfolded.has(block.key);
  const key = isFolded ? block.key : item.key;
  if (!vertices.has(key)) {
    vertices.set(key, { key, kind: isFolded ? "block" : "node", items: [], block, title: "", subtitle: "", family: "" });
  }
  return vertices.get(key);
}

function connect(delegate, edges, from, to, value, withIntegers) {
  if (from === undefined || from === to) return;
  if (!withIntegers && delegate.values.get(value).dtype === null) return;
  edges.set(`${from} ${to} ${value}`, { from, to, value });
}

function describe(delegate, vertex) {
  if (vertex.kind === "border") return;
  const bytes = vertex.items.reduce((sum, item) => sum + delegate.constantBytes(item), 0);
  const weight = bytes ? humanBytes(bytes) : "";
  if (vertex.kind === "block") {
    vertex.title = vertex.block.title;
    vertex.subtitle = [counted(vertex.items.length, vertex.items[0].key[0] === "c" ? "call" : "node"), weight].filter(Boolean).join(" · ");
    vertex.family = "block";
    return;
  }
  const [item] = vertex.items;
  const others = item.nodes.length - 1;
  vertex.title = shortName(delegate.operator(item).name);
  vertex.subtitle = [`#${item.index}${others ? ` +${others}` : ""}`, weight, item.is_once ? "once" : ""].filter(Boolean).join(" · ");
  vertex.family = delegate.operator(item).family;
}
