// Ranks -> places: order within ranks by medians of neighbours, then x by least squares with room kept.

import type { Edge, Vertex } from "./flow.ts";
import { type Cell, type Route, ranked, type Trunk } from "./ranks.ts";

export type Area = { left: number; right: number; top: number; bottom: number };

export interface Box {
  vertex: Vertex;
  x: number; // of its middle
  y: number; // of its top
  width: number;
  height: number;
}

export type Point = [x: number, y: number];

export type Curve = Route & { points: Point[]; area: Area };

export type Layout = { boxes: Map<string, Box>; curves: Curve[]; bounds: Area };

export const NODE_HEIGHT = 40;
const [RANK_GAP, NODE_GAP, POINT_GAP] = [44, 26, 14];
const [ORDER_SWEEPS, PLACE_SWEEPS] = [10, 24];
const TRUNK_REST = 0.85; // how much of a trunk's place is where its points were pushed to, the rest is where its ends are

/** The positions of vertices and routes; deterministic. */
export function layOut(vertices: Vertex[], edges: Edge[], widthOf: (vertex: Vertex) => number): Layout {
  const { ranks, routes, trunks } = ranked(vertices, edges, widthOf);
  orderRanks(ranks);
  placeRanks(ranks, trunks);
  const boxes = new Map<string, Box>();
  for (const [index, rank] of ranks.entries()) {
    for (const cell of rank) {
      cell.y = index * (NODE_HEIGHT + RANK_GAP);
      const { vertex, x, y, width } = cell;
      if (vertex) boxes.set(vertex.key, { vertex, x, y, width, height: NODE_HEIGHT });
    }
  }
  const curves = routes.map((route) => {
    const points = route.cells.map((cell): Point => [cell.x, cell.y]);
    return { ...route, points, area: areaOf(points) };
  });
  return { boxes, curves, bounds: boundsOf([...boxes.values()]) };
}

function areaOf(points: Point[]): Area {
  const xs = points.map(([x]) => x);
  const ys = points.map(([, y]) => y);
  return { left: Math.min(...xs), right: Math.max(...xs), top: Math.min(...ys), bottom: Math.max(...ys) + NODE_HEIGHT };
}

function boundsOf(boxes: Box[]): Area {
  const left = Math.min(...boxes.map((box) => box.x - box.width / 2), 0);
  const right = Math.max(...boxes.map((box) => box.x + box.width / 2), 1);
  const bottom = Math.max(...boxes.map((box) => box.y + box.height), 1);
  return { left, right, top: 0, bottom };
}

function orderRanks(ranks: Cell[][]): void {
  const number = (rank: Cell[]) => {
    for (const [position, cell] of rank.entries()) cell.position = position;
  };
  ranks.forEach(number);
  for (let sweep = 0; sweep < ORDER_SWEEPS; sweep++) {
    const isDown = sweep % 2 === 0;
    for (const rank of isDown ? ranks : [...ranks].reverse()) {
      const wish = new Map(rank.map((cell) => [cell, median(isDown ? cell.up : cell.down, cell.position)]));
      rank.sort((a, b) => (wish.get(a) ?? 0) - (wish.get(b) ?? 0) || a.position - b.position);
      number(rank);
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
  for (const rank of ranks)
    settle(
      rank,
      rank.map(() => 0),
      rank.map(() => 1),
    );
  for (let sweep = 0; sweep < PLACE_SWEEPS; sweep++) {
    const isDown = sweep % 2 === 0;
    const isLast = sweep >= PLACE_SWEEPS / 2;
    for (const trunk of trunks) {
      const points = trunk.cells.slice(1);
      trunk.x = TRUNK_REST * mean(points) + (1 - TRUNK_REST) * mean(trunk.ends);
    }
    for (const rank of isDown ? ranks : [...ranks].reverse()) {
      const wishes = rank.map((cell) =>
        wishOf(cell, isLast ? [...cell.up, ...cell.down] : isDown ? cell.up : cell.down),
      );
      settle(
        rank,
        wishes.map((wish) => wish.x),
        wishes.map((wish) => wish.weight),
      );
    }
  }
}

function mean(cells: Cell[]): number {
  return cells.reduce((sum, cell) => sum + cell.x, 0) / cells.length;
}

/** Where a cell wants to be: a point on its trunk, which is straight then; a vertex amid its neighbours. */
function wishOf(cell: Cell, neighbours: Cell[]): { x: number; weight: number } {
  if (cell.trunk) return { x: cell.trunk.x, weight: 1 };
  let sum = 0;
  let weight = 0;
  for (const other of neighbours) {
    const strength = other.vertex ? 4 : 0.05;
    sum += strength * other.x;
    weight += strength;
  }
  return weight ? { x: sum / weight, weight } : { x: cell.x, weight: 0.1 };
}

/** Set x of a rank as near to the wishes as room for all allows: neighbours that would overlap become one pool
    with the mean of their wishes. */
function settle(rank: Cell[], wishes: number[], weights: number[]): void {
  const offsets: number[] = [];
  rank.forEach((cell, index) => {
    const before = rank[index - 1];
    const gap = before && !before.vertex && !cell.vertex ? POINT_GAP : NODE_GAP;
    offsets.push(before ? offsets[index - 1] + (before.width + cell.width) / 2 + gap : 0);
  });
  const pools: { sum: number; weight: number; count: number }[] = [];
  rank.forEach((_, index) => {
    let pool = { sum: (wishes[index] - offsets[index]) * weights[index], weight: weights[index], count: 1 };
    for (let other = pools.at(-1); other && other.sum / other.weight > pool.sum / pool.weight; other = pools.at(-1)) {
      pools.pop();
      pool = { sum: pool.sum + other.sum, weight: pool.weight + other.weight, count: pool.count + other.count };
    }
    pools.push(pool);
  });
  let index = 0;
  for (const pool of pools) {
    for (let each = 0; each < pool.count; each++, index++) rank[index].x = pool.sum / pool.weight + offsets[index];
  }
}
