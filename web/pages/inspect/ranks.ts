// Vertices and edges -> ranks from top to bottom. A value that passes ranks gets a point in each of them: one
// trunk, however many read it.

import type { Edge, Vertex } from "./flow.ts";
import { append } from "./program.ts";

/** A vertex, or a point of a trunk, in its rank. */
export interface Cell {
  vertex: Vertex | null;
  rank: number;
  width: number;
  up: Cell[];
  down: Cell[];
  x: number;
  y: number;
  position: number;
  trunk: Trunk | null;
}

export type Trunk = { cells: Cell[]; ends: Cell[]; x: number };

export type Route = Edge & { cells: Cell[] };

const cellOf = (vertex: Vertex | null, rank: number, width: number, trunk: Trunk | null = null): Cell => {
  return { vertex, rank, width, up: [], down: [], x: 0, y: 0, position: 0, trunk };
};

/** Ranks of vertices and points, each with the neighbours above (`up`) and below (`down`), and its width. */
export function ranked(
  vertices: Vertex[],
  edges: Edge[],
  widthOf: (vertex: Vertex) => number,
): { ranks: Cell[][]; routes: Route[]; trunks: Trunk[] } {
  const byKey = new Map(vertices.map((vertex) => [vertex.key, cellOf(vertex, 0, widthOf(vertex))]));
  const cellAt = (key: string) => byKey.get(key) as Cell;
  setRanks(byKey, cellAt, edges);
  const ranks: Cell[][] = [];
  const place = (cell: Cell) => {
    ranks[cell.rank] ??= [];
    ranks[cell.rank].push(cell);
  };
  for (const cell of byKey.values()) place(cell);
  const trunks = new Map<string, Trunk>();
  const routes = edges.map((edge) => {
    const from = cellAt(edge.from);
    const to = cellAt(edge.to);
    const trunk = trunks.get(`${edge.from} ${edge.value}`) ?? { cells: [from], ends: [from], x: 0 };
    trunks.set(`${edge.from} ${edge.value}`, trunk);
    while (trunk.cells.length < to.rank - from.rank) {
      const point = cellOf(null, from.rank + trunk.cells.length, 2, trunk);
      link(trunk.cells[trunk.cells.length - 1], point);
      trunk.cells.push(point);
      place(point);
    }
    link(trunk.cells[to.rank - from.rank - 1], to);
    trunk.ends.push(to);
    return { ...edge, cells: [...trunk.cells.slice(0, to.rank - from.rank), to] };
  });
  return {
    ranks: ranks.filter(Boolean),
    routes,
    trunks: [...trunks.values()].filter((trunk) => trunk.cells.length > 1),
  };
}

function link(above: Cell, below: Cell): void {
  above.down.push(below);
  below.up.push(above);
}

/** A vertex is one below the lowest that it reads from; one that reads nothing is right above its readers. */
function setRanks(byKey: Map<string, Cell>, cellAt: (key: string) => Cell, edges: Edge[]): void {
  const incoming = new Map<string, string[]>();
  const outgoing = new Map<string, string[]>();
  for (const edge of edges) {
    append(incoming, edge.to, edge.from);
    append(outgoing, edge.from, edge.to);
  }
  const waiting = new Map([...byKey.keys()].map((key) => [key, incoming.get(key)?.length ?? 0]));
  const ready = [...byKey.keys()].filter((key) => waiting.get(key) === 0);
  for (let index = 0; index < ready.length; index++) {
    for (const to of outgoing.get(ready[index]) ?? []) {
      cellAt(to).rank = Math.max(cellAt(to).rank, cellAt(ready[index]).rank + 1);
      const left = (waiting.get(to) ?? 0) - 1;
      waiting.set(to, left);
      if (left === 0) ready.push(to);
    }
  }
  for (const key of ready.reverse()) {
    const below = (outgoing.get(key) ?? []).map((to) => cellAt(to).rank);
    if (below.length && !incoming.has(key)) cellAt(key).rank = Math.min(...below) - 1;
  }
  let next = 0; // a vertex without drawn readers goes next to its successor
  for (const [key, cell] of [...byKey].reverse()) {
    if (outgoing.has(key)) next = cell.rank;
    else if (cell.vertex?.kind !== "border") cell.rank = Math.max(cell.rank, next);
  }
}
