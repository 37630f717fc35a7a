// What all pages of sites share: the program with progress, errors as sentences, and the report of ?doctor.

import type { Program, PteronApi, Report } from "../../player/api.ts";
import { fill, make } from "../../shared/elements.ts";
import { fewDigits, humanBytes } from "../../shared/text.ts";

const status = () => document.getElementById("status") as HTMLElement;

/** Load the site that this page belongs to; null if it cannot run here, which the page then says. */
export async function loadSite(): Promise<Program | null> {
  const address = new URL("./player.js", location.href).href; // beside the page, not bundled into it
  const { Pteron } = (await import(address)) as { Pteron: PteronApi };
  const bar = make("progress", { max: 1, value: 0, "aria-label": "Loading" });
  const text = make("p.quiet");
  fill(status(), [make("div.card", bar, text)]);
  const isDoctor = new URLSearchParams(location.search).has("doctor");
  try {
    const program = await Pteron.load("./", {
      check: isDoctor ? "always" : "first",
      onProgress: ({ text: said, loaded, total }) => {
        bar.value = total ? loaded / total : 1;
        text.textContent = total ? `${said}: ${humanBytes(loaded)} of ${humanBytes(total)}` : said;
      },
    });
    document.title = program.name;
    fill(document.querySelector("h1") as HTMLElement, [program.name]);
    fill(
      status(),
      program.notes.map((note) => make("p.card", note)),
    );
    if (isDoctor) status().append(doctor(await program.report()));
    return program;
  } catch (error) {
    fill(status(), []);
    showError(error);
    return null;
  }
}

/** Say what went wrong, beside the notes. */
export function showError(error: unknown): void {
  clearError();
  status().append(make("p.card bad", { role: "alert" }, error instanceof Error ? error.message : String(error)));
}

export function clearError(): void {
  for (const shown of status().querySelectorAll(".bad")) shown.remove();
}

function doctor({ adapter, variant, variants, checks }: Report): HTMLElement {
  const wrong = checks.filter(({ error }) => !(error <= 1)).length;
  const verdict = checks.length
    ? `${checks.length - wrong} of ${checks.length} answers are right; an error of 1 is the most that is allowed.`
    : "This site has no known answers: it was exported without them.";
  const worst = new Map<string, { operator: string; error: number; count: number }>();
  for (const { kernel, operator, error } of checks) {
    const known = worst.get(kernel) ?? { operator, error: 0, count: 0 };
    worst.set(kernel, { operator, error: Math.max(known.error, error), count: known.count + 1 });
  }
  const rows = [...worst].map(([kernel, { operator, error, count }]) =>
    make(
      "tr",
      make("td", kernel),
      make("td", operator),
      make("td.number", String(count)),
      make("td.number", fewDigits(error)),
    ),
  );
  const headers = [make("th", "kernels"), make("th", "operator")];
  headers.push(make("th.number", "answers"), make("th.number", "largest error"));
  return make(
    "section.card",
    make("h2", "This GPU"),
    make("p", `${adapter}, variant ${variant}. ${verdict}`),
    make(
      "ul",
      variants.map(({ name, problem }) => make("li", `${name}: ${problem || "can run here"}`)),
    ),
    rows.length ? make("div.wide", make("table", make("thead", make("tr", headers)), make("tbody", rows))) : null,
  );
}

/** The best of many scores as a table with bars: [name, share]. */
export function ranking(best: [string, number][]): HTMLElement {
  const rows = best.map(([name, share]) => {
    const bar = make("div.bar");
    bar.style.width = `${Math.round(100 * share)}%`;
    return make("tr", make("td", name), make("td.number", `${(100 * share).toFixed(1)} %`), make("td", bar));
  });
  return make("table", make("tbody", rows));
}

/** Scores as shares: themselves if they are probabilities, else their softmax. */
export function shares(scores: ArrayLike<number>): number[] {
  const all = Array.from(scores);
  const sum = all.reduce((a, b) => a + b, 0);
  if (all.every((each) => each >= 0) && Math.abs(sum - 1) < 1e-3) return all;
  const most = all.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY);
  const powers = all.map((each) => Math.exp(each - most));
  const total = powers.reduce((a, b) => a + b, 0);
  return powers.map((each) => each / total);
}
