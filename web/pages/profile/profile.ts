// The profile in #data, and its launches in groups.

import { byId } from "../../shared/elements.ts";
import { sum } from "../../shared/sums.ts";

export interface Launch {
  index: number;
  delegate: number | null; // null: of the sampler
  node: number;
  nodes: number[];
  operator: string;
  family: string;
  kernel: string;
  layer: number | null;
  groups: number[];
  seconds: number;
  bytes_read: number;
  bytes_written: number;
  operations: number | null;
}

type Ceilings = { bytes_per_second: number; operations_per_second: number };

interface Profile {
  program: string;
  what: string;
  device: string;
  inputs: string[];
  runs: number;
  timing_text: string;
  notes: string[];
  launches: Launch[];
  pass_seconds: number;
  call_seconds: number;
  stages: { name: string; seconds: number; is_once: boolean }[];
  layers: number;
  ceilings: Ceilings | null;
}

export const profile: Profile = JSON.parse(byId("data").textContent ?? "");
export const { launches, ceilings } = profile;
export const total = sum(launches, (launch) => launch.seconds);
export const moved = (launch: Launch) => launch.bytes_read + launch.bytes_written;
export const isOwn = (launch: Launch) => launch.delegate !== null;

/** The seconds that a launch takes at least, by the device's ceilings. */
function least(launch: Launch, { bytes_per_second, operations_per_second }: Ceilings): number {
  return Math.max(moved(launch) / bytes_per_second, (launch.operations ?? 0) / operations_per_second);
}

export const KEYS: Record<string, (launch: Launch) => string> = {
  node: (launch) => `${launch.delegate ?? "draw"}:${launch.node}`,
  launch: (launch) => `${launch.index} ${launch.operator} by ${launch.kernel}`,
  operator: (launch) => launch.operator,
  family: (launch) => launch.family,
  layer: (launch) => (launch.layer === null ? "outside the layers" : `layer ${launch.layer}`),
  kernel: (launch) => launch.kernel,
};
const graphs = new Set(launches.filter(isOwn).map((launch) => launch.delegate)).size;

function nodeName(group: Launch[]): string {
  if (!isOwn(group[0])) return `draw ${group[0].operator}`;
  const nodes = group.flatMap((launch) => [launch.node, ...launch.nodes]);
  const longest = group.reduce((best, launch) => (launch.seconds > best.seconds ? launch : best));
  const [first, last] = [Math.min(...nodes), Math.max(...nodes)];
  return `${graphs > 1 ? `${group[0].delegate}:` : ""}${first}${last > first ? `-${last}` : ""} ${longest.operator}`;
}

/** A row per group of launches with the same key. */
export function rowsBy(by: string) {
  return [...Map.groupBy(launches, KEYS[by])].map(([key, group]) => {
    const time = sum(group, (launch) => launch.seconds);
    const known = group.filter((launch) => launch.operations !== null);
    const size = sum(group, moved);
    const operations = known.length ? sum(known, (launch) => launch.operations ?? 0) : null;
    const texts = group.map(({ operator, kernel, family, nodes }) => [operator, kernel, family, ...nodes].join(" "));
    return {
      name: by === "node" ? nodeName(group) : key,
      text: texts.join(" "),
      launches: group.length,
      time,
      share: total ? time / total : 0,
      size,
      bandwidth: time ? size / time : null,
      rate: operations !== null && time ? operations / time : null,
      fraction: ceilings && time ? sum(group, (launch) => least(launch, ceilings)) / time : null,
    };
  });
}

export type Row = ReturnType<typeof rowsBy>[number];

const COLOURS = "#3f7fe0 #e0803f #45a56b #b45fc4 #d0506a #8a8f3a #3aa6b0 #8b6fd6 #a57045 #6b7a8c".split(" ");
export const families = rowsBy("family").sort((a, b) => b.time - a.time);
export const colours = new Map(families.map(({ name }, index) => [name, COLOURS[index % COLOURS.length]]));
