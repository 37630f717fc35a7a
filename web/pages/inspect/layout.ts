// Vertices and edges -> places. Vertices are in ranks from top to bottom; a value that passes ranks gets a point in
// each of them: one trunk, however many read it. Ranks are ordered by medians of neighbours, then x is set by least squares.

import { sum } from "../../shared/sums.ts";
import type { Edge, Vertex } from "./flow.ts";

/** A vertex, or a point of a trunk, in its rank, with the neighbours above and below. */
export class Cell {
  x = 0; // of its middle
  y = 0; // of its top
  position = 0; // in its rank
  readonly up: Cell[] = [];
  readonly down: Cell[] = [];

  constructor(
    readonly vertex: Vertex | null,
    readonly width: number,
    public rank = 0,
    readonly trunk: Trunk | null = null,
  ) {}

  get area(): Area {
    const [left, right] = [this.x - this.width / 2, this.x + this.width / 2];
    return { left, right, top: this.y, bottom: this.y + NODE_HEIGHT };
  }
}

export type Box = Cell & { vertex: Vertex };

type Trunk = { cells: Cell[]; ends: Cell[]; x: number };

export type Area = { left: number; right: number; top: number; bottom: number };

export type Layout = ReturnType<typeof layOut>;

export const NODE_HEIGHT = 40;
const [RANK_GAP, NODE_GAP, POINT_GAP] = [44, 26, 14];
const [ORDER_SWEEPS, PLACE_SWEEPS] = [10, 24];
const TRUNK_REST = 0.85; // how much of a trunk's place is where its points were pushed to; the rest: where it ends

/** The positions of vertices and routes; deterministic. */
export function layOut(vertices: Vertex[], edges: Edge[], widthOf: (vertex: Vertex) => number) {
  const boxes = new Map(vertices.map((vertex) => [vertex.key, new Cell(vertex, widthOf(vertex)) as Box]));
  const boxAt = (key: string) => boxes.get(key) as Box;
  setRanks(boxes, boxAt, edges);
  const cells: Cell[] = [...boxes.values()];
  const trunks = new Map<string, Trunk>();
  const routes = edges.map((edge) => {
    const [from, to] = [boxAt(edge.from), boxAt(edge.to)];
    const trunk = trunks.get(`${edge.from} ${edge.value}`) ?? { cells: [from], ends: [from], x: 0 };
    trunks.set(`${edge.from} ${edge.value}`, trunk);
    const length = to.rank - from.rank;
    while (trunk.cells.length < length) {
      const point = new Cell(null, 2, from.rank + trunk.cells.length, trunk);
      link(trunk.cells[trunk.cells.length - 1], point);
      trunk.cells.push(point);
      cells.push(point);
    }
    link(trunk.cells[length - 1], to);
    trunk.ends.push(to);
    return { ...edge, cells: [...trunk.cells.slice(0, length), to] };
  });
  const ranks = [...Map.groupBy(cells, (cell) => cell.rank)].sort((a, b) => a[0] - b[0]).map(([, rank]) => rank);
  orderRanks(ranks);
  placeRanks(
    ranks,
    [...trunks.values()].filter((trunk) => trunk.cells.length > 1),
  );
  for (const [index, rank] of ranks.entries()) for (const cell of rank) cell.y = index * (NODE_HEIGHT + RANK_GAP);
  const curves = routes.map((route) => ({ ...route, area: around(route.cells.map((cell) => cell.area)) }));
  const bounds = around([{ left: 0, right: 1, top: 0, bottom: 1 }, ...[...boxes.values()].map((box) => box.area)]);
  return { boxes, curves, bounds };
}

function link(above: Cell, below: Cell): void {
  above.down.push(below);
  below.up.push(above);
}

/** A vertex is one below the lowest that it reads from; one that reads nothing is right above its readers. */
function setRanks(boxes: Map<string, Box>, boxAt: (key: string) => Box, edges: Edge[]): void {
  let isSettled = false;
  for (let pass = 0; !isSettled && pass < boxes.size; pass++) {
    isSettled = true; // edges are in the order of nodes, so that two passes are nearly always enough
    for (const { from, to } of edges) {
      if (boxAt(to).rank > boxAt(from).rank) continue;
      boxAt(to).rank = boxAt(from).rank + 1;
      isSettled = false;
    }
  }
  const reading = new Set(edges.map((edge) => edge.to));
  const outgoing = Map.groupBy(edges, (edge) => edge.from);
  for (const [key, group] of outgoing) {
    if (!reading.has(key)) boxAt(key).rank = Math.min(...group.map((edge) => boxAt(edge.to).rank)) - 1;
  }
  let next = 0; // a vertex without drawn readers goes next to its successor
  for (const [key, box] of [...boxes].reverse()) {
    if (outgoing.has(key)) next = box.rank;
    else if (box.vertex.kind !== "border") box.rank = Math.max(box.rank, next);
  }
}

/** The area around others, with a margin. */
export function around(areas: Area[], margin = 0): Area {
  return {
    left: Math.min(...areas.map((area) => area.left)) - margin,
    right: Math.max(...areas.map((area) => area.right)) + margin,
    top: Math.min(...areas.map((area) => area.top)) - margin,
    bottom: Math.max(...areas.map((area) => area.bottom)) + margin,
  };
}

function orderRanks(ranks: Cell[][]): void {
  const number = (cell: Cell, position: number) => {
    cell.position = position;
  };
  for (const rank of ranks) rank.forEach(number);
  for (let sweep = 0; sweep < ORDER_SWEEPS; sweep++) {
    const isDown = sweep % 2 === 0;
    for (const rank of isDown ? ranks : ranks.toReversed()) {
      const wish = new Map(rank.map((cell) => [cell, median(isDown ? cell.up : cell.down, cell.position)]));
      rank.sort((a, b) => (wish.get(a) ?? 0) - (wish.get(b) ?? 0)); // stable: equals stay as they were
      rank.forEach(number);
    }
  }
}

function median(cells: Cell[], otherwise: number): number {
  if (!cells.length) return otherwise;
  const positions = cells.map((cell) => cell.position).sort((a, b) => a - b);
  const middle = positions.length >> 1;
  return positions.length % 2 ? positions[middle] : (positions[middle - 1] + positions[middle]) / 2;
}

function placeRanks(ranks: Cell[][], trunks: Trunk[]): void {
  const mean = (cells: Cell[]) => sum(cells, (cell) => cell.x) / cells.length;
  for (const rank of ranks) settle(rank, () => ({ x: 0, weight: 1 }));
  for (let sweep = 0; sweep < PLACE_SWEEPS; sweep++) {
    const isDown = sweep % 2 === 0;
    const isLast = sweep >= PLACE_SWEEPS / 2;
    const neighbours = ({ up, down }: Cell) => (isLast ? [...up, ...down] : isDown ? up : down);
    for (const trunk of trunks) trunk.x = TRUNK_REST * mean(trunk.cells.slice(1)) + (1 - TRUNK_REST) * mean(trunk.ends);
    for (const rank of isDown ? ranks : ranks.toReversed()) settle(rank, (cell) => wishOf(cell, neighbours(cell)));
  }
}

/** Where a cell wants to be: a point on its trunk, which is straight then; a vertex amid its neighbours. */
function wishOf(cell: Cell, neighbours: Cell[]): { x: number; weight: number } {
  if (cell.trunk) return { x: cell.trunk.x, weight: 1 };
  const strength = (other: Cell) => (other.vertex ? 4 : 0.05);
  const weight = sum(neighbours, strength);
  return weight
    ? { x: sum(neighbours, (other) => strength(other) * other.x) / weight, weight }
    : { x: cell.x, weight: 0.1 };
}

/** Set x of a rank as near to the wishes as room for all allows: neighbours that would overlap become one pool
    with the mean of their wishes. */
function settle(rank: Cell[], wish: (cell: Cell) => { x: number; weight: number }): void {
  const pools: { sum: number; weight: number; members: [Cell, offset: number][] }[] = [];
  let offset = 0;
  for (const [index, cell] of rank.entries()) {
    const before = rank[index - 1];
    if (before) offset += (before.width + cell.width) / 2 + (before.vertex || cell.vertex ? NODE_GAP : POINT_GAP);
    const { x, weight } = wish(cell);
    let pool: (typeof pools)[number] = { sum: (x - offset) * weight, weight, members: [[cell, offset]] };
    for (let other = pools.at(-1); other && other.sum / other.weight > pool.sum / pool.weight; other = pools.at(-1)) {
      other.sum += pool.sum;
      other.weight += pool.weight;
      other.members.push(...pool.members);
      pool = other;
      pools.pop();
    }
    pools.push(pool);
  }
  for (const pool of pools) for (const [cell, place] of pool.members) cell.x = pool.sum / pool.weight + place;
}
