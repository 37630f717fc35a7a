// Sums and counts over lists.

export function sum<Item>(items: Iterable<Item>, value: (item: Item) => number): number {
  let all = 0;
  for (const item of items) all += value(item);
  return all;
}

/** How many items have each key, the most frequent key first. */
export function tally<Item>(items: Item[], key: (item: Item) => string): [string, number][] {
  const counts = [...Map.groupBy(items, key)].map(([name, group]): [string, number] => [name, group.length]);
  return counts.sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
}
