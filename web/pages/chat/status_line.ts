// The line below the message field: an error or hint, and how much of the context is used.

import { byId, make, textButton } from "../../shared/elements.ts";
import type { Model } from "./server.ts";
import { usedContext } from "./speed.ts";
import type { Conversation } from "./store.ts";

export function showHint(error: Error | null, isBlocked: boolean, retry: () => void): void {
  const place = byId("hint");
  const text =
    error?.message ?? (isBlocked ? "Another tab is receiving the answer." : "Enter sends, Shift+Enter adds a line.");
  if (place.dataset.text === text) return;
  place.dataset.text = text;
  place.classList.toggle("bad", error !== null);
  place.classList.toggle("wide-only", error === null && !isBlocked);
  place.replaceChildren(text, ...(error ? [" ", textButton("Try again", retry, "link")] : []));
}

/** "412 of 2,048 tokens", with a bar if the size of the context is known. */
export function showContext(conversation: Conversation, model: Model | null): void {
  const place = byId("context");
  const whole = model?.context ?? null;
  const tokens = usedContext(conversation);
  place.hidden = tokens === null;
  if (tokens === null) return;
  const used = Math.min(tokens, whole ?? tokens); // the last token of an answer is counted and not kept
  const text = whole
    ? `${used.toLocaleString("en")} of ${whole.toLocaleString("en")} tokens of context`
    : `${used.toLocaleString("en")} tokens of context`;
  const fill = make("span");
  fill.style.width = `${(100 * used) / (whole ?? used)}%`;
  const isFull = whole !== null && used > 0.9 * whole;
  const bar = make(
    "span",
    { class: `bar ${isFull ? "full" : ""}`, "aria-hidden": "true", hidden: whole === null },
    fill,
  );
  place.replaceChildren(bar, make("span", text));
}
