// Times, rates and shares as text.

export function seconds(value: number): string {
  if (value === 0) return "0 s";
  if (value >= 1) return `${value.toFixed(2)} s`;
  return value >= 1e-3 ? `${(value * 1e3).toPrecision(3)} ms` : `${(value * 1e6).toPrecision(3)} µs`;
}

/** Billions; null: unknown. */
export function giga(value: number | null): string {
  if (value === null) return "";
  return value >= 1e11 ? (value / 1e9).toFixed(0) : (value / 1e9).toPrecision(3);
}

export function percent(value: number | null): string {
  return value === null ? "" : `${(100 * value).toFixed(1)} %`;
}
