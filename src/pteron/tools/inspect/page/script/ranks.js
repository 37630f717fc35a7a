// Vertices and edges -> ranks from top to bottom. A value that passes ranks gets a point in each of them: one
// trunk, however many read it.
"use strict";

/** Ranks of vertices and points, each with the neighbours above (`up`) and below (`down`), and its width. */
function ranked(vertices, edges, widthOf) {
  const byKey = new Map(vertices.map((vertex) => [vertex.key, {
    vertex, key: vertex.key, rank: 0, width: widthOf(vertex), up: [], down: [], x: 0, position: 0,
  }]));
  setRanks(byKey, edges);
  const ranks = [];
  const place = (cell) => (ranks[cell.rank] ??= []).push(cell);
  for (const cell of byKey.values()) place(cell);
  const trunks = new Map();
  const routes = edges.map((edge) => {
    const from = byKey.get(edge.from), to = byKey.get(edge.to);
    const trunk = trunks.get(`${edge.from} ${edge.value}`) ?? { cells: [from], ends: [from], x: 0 };
    trunks.set(`${edge.from} ${edge.value}`, trunk);
    while (trunk.cells.length < to.rank - from.rank) {
      const point = {
        vertex: null, key: null, rank: from.rank + trunk.cells.length, width: 2, up: [], down: [], x: 0, position: 0, trunk,
      };
      link(trunk.cells[trunk.cells.length - 1], point);
      trunk.cells.push(point);
      place(point);
    }
    link(trunk.cells[to.rank - from.rank - 1], to);
    trunk.ends.push(to);
    return { ...edge, cells: [...trunk.cells.slice(0, to.rank - from.rank), to] };
  });
  return { ranks: ranks.filter(Boolean), routes, trunks: [...trunks.values()].filter((trunk) => trunk.cells.length > 1) };
}

function link(above, below) {
  above.down.push(below);
  below.up.push(above);
}

/** A vertex is one below the lowest that it reads from; one that reads nothing is right above its readers. */
function setRanks(byKey, edges) {
  const incoming = new Map(), outgoing = new Map();
  for (const edge of edges) {
    append(incoming, edge.to, edge.from);
    append(outgoing, edge.from, edge.to);
  }
  const waiting = new Map([...byKey.keys()].map((key) => [key, incoming.get(key)?.length ?? 0]));
  const ready = [...byKey.keys()].filter((key) => waiting.get(key) === 0);
  for (let index = 0; index < ready.length; index++) {
    for (const to of outgoing.get(ready[index]) ?? []) {
      byKey.get(to).rank = Math.max(byKey.get(to).rank, byKey.get(ready[index]).rank + 1);
      waiting.set(to, waiting.get(to) - 1);
      if (waiting.get(to) === 0) ready.push(to);
    }
  }
  for (const key of ready.reverse()) {
    const below = (outgoing.get(key) ?? []).map((to) => byKey.get(to).rank);
    if (below.length && !incoming.has(key)) byKey.get(key).rank = Math.min(...below) - 1;
  }
  let next = 0; // a vertex without drawn readers goes next to its successor
  for (const [key, cell] of [...byKey].reverse()) {
    if (outgoing.has(key)) next = cell.rank;
    else if (cell.vertex.kind !== "border") cell.rank = Math.max(cell.rank, next);
  }
}
