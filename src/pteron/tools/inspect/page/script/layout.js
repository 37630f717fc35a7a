// Ranks -> places: order within ranks by medians of neighbours, then x by least squares with room kept.
"use strict";

const NODE_HEIGHT = 40, RANK_GAP = 44, NODE_GAP = 26, POINT_GAP = 14;
const ORDER_SWEEPS = 10, PLACE_SWEEPS = 24;
const TRUNK_REST = 0.85; // how much of a trunk's place is where its points were pushed to, the rest is where its ends are

/** The positions of vertices and routes; deterministic. */
function layOut(vertices, edges, widthOf) {
  const { ranks, routes, trunks } = ranked(vertices, edges, widthOf);
  orderRanks(ranks);
  placeRanks(ranks, trunks);
  const boxes = new Map();
  for (const [index, rank] of ranks.entries()) {
    for (const cell of rank) {
      cell.y = index * (NODE_HEIGHT + RANK_GAP);
      if (cell.vertex) boxes.set(cell.key, { vertex: cell.vertex, x: cell.x, y: cell.y, width: cell.width, height: NODE_HEIGHT });
    }
  }
  const curves = routes.map((route) => ({ ...route, points: route.cells.map((cell) => [cell.x, cell.y]) }));
  return { boxes, curves, bounds: boundsOf([...boxes.values()]) };
}

function boundsOf(boxes) {
  const left = Math.min(...boxes.map((box) => box.x - box.width / 2), 0);
  const right = Math.max(...boxes.map((box) => box.x + box.width / 2), 1);
  const bottom = Math.max(...boxes.map((box) => box.y + box.height), 1);
  return { left, right, top: 0, bottom };
}

function orderRanks(ranks) {
  const number = (rank) => rank.forEach((cell, position) => { cell.position = position; });
  ranks.forEach(number);
  for (let sweep = 0; sweep < ORDER_SWEEPS; sweep++) {
    const isDown = sweep % 2 === 0;
    for (const rank of isDown ? ranks : [...ranks].reverse()) {
      const wish = new Map(rank.map((cell) => [cell, median((isDown ? cell.up : cell.down), cell.position)]));
      rank.sort((a, b) => wish.get(a) - wish.get(b) || a.position - b.position);
      number(rank);
    }
  }
}

function median(cells, otherwise) {
  if (!cells.length) return otherwise;
  const positions = cells.map((cell) => cell.position).sort((a, b) => a - b);
  const middle = positions.length >> 1;
  return positions.length % 2 ? positions[middle] : (positions[middle - 1] + positions[middle]) / 2;
}

function placeRanks(ranks, trunks) {
  for (const rank of ranks) settle(rank, rank.map(() => 0), rank.map(() => 1));
  for (let sweep = 0; sweep < PLACE_SWEEPS; sweep++) {
    const isDown = sweep % 2 === 0, isLast = sweep >= PLACE_SWEEPS / 2;
    for (const trunk of trunks) {
      const points = trunk.cells.slice(1);
      trunk.x = TRUNK_REST * mean(points) + (1 - TRUNK_REST) * mean(trunk.ends);
    }
    for (const rank of isDown ? ranks : [...ranks].reverse()) {
      const wishes = rank.map((cell) => wishOf(cell, isLast ? [...cell.up, ...cell.down] : isDown ? cell.up : cell.down));
      settle(rank, wishes.map((wish) => wish.x), wishes.map((wish) => wish.weight));
    }
  }
}

function mean(cells) {
  return cells.reduce((sum, cell) => sum + cell.x, 0) / cells.length;
}

/** Where a cell wants to be: a point on its trunk, which is straight then; a vertex amid its neighbours. */
function wishOf(cell, neighbours) {
  if (!cell.vertex) return { x: cell.trunk.x, weight: 1 };
  let sum = 0, weight = 0;
  for (const other of neighbours) {
    const strength = other.vertex ? 4 : 0.05;
    sum += strength * other.x;
    weight += strength;
  }
  return weight ? { x: sum / weight, weight } : { x: cell.x, weight: 0.1 };
}

/** Set x of a rank as near to the wishes as room for all allows: neighbours that would overlap become one pool
    with the mean of their wishes. */
function settle(rank, wishes, weights) {
  const offsets = [];
  rank.forEach((cell, index) => {
    const before = rank[index - 1];
    const gap = before && !before.vertex && !cell.vertex ? POINT_GAP : NODE_GAP;
    offsets.push(before ? offsets[index - 1] + (before.width + cell.width) / 2 + gap : 0);
  });
  const pools = [];
  rank.forEach((_, index) => {
    let pool = { sum: (wishes[index] - offsets[index]) * weights[index], weight: weights[index], count: 1 };
    while (pools.length && pools[pools.length - 1].sum / pools[pools.length - 1].weight > pool.sum / pool.weight) {
      const other = pools.pop();
      pool = { sum: pool.sum + other.sum, weight: pool.weight + other.weight, count: pool.count + other.count };
    }
    pools.push(pool);
  });
  let index = 0;
  for (const pool of pools) {
    for (let each = 0; each < pool.count; each++, index++) rank[index].x = pool.sum / pool.weight + offsets[index];
  }
}
