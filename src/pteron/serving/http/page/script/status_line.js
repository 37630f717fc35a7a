// The line below the message field: an error or hint, and how much of the context is used.

import { byId, make, setText } from "./elements.js";
import { usedContext } from "./speed.js";

export function showHint(error, isBlocked, retry) {
  const place = byId("hint");
  const text = error?.message ?? (isBlocked ? "Another tab is receiving the answer." : "Enter sends, Shift+Enter adds a line.");
  if (place.dataset.text === text) return;
  place.dataset.text = text;
  place.classList.toggle("bad", error !== null);
  place.classList.toggle("wide-only", error === null && !isBlocked);
  place.replaceChildren(text, ...(error ? [" ", make("button", { type: "button", class: "link", onclick: retry }, "Try again")] : []));
}

/** "412 of 2,048 tokens", with a bar if the size of the context is known. */
export function showContext(conversation, model) {
  const place = byId("context");
  const used = usedContext(conversation);
  place.hidden = used === null;
  if (used === null) return;
  const whole = model?.context ?? null;
  const text = whole ? `${used.toLocaleString("en")} of ${whole.toLocaleString("en")} tokens of context` : `${used.toLocaleString("en")} tokens of context`;
  if (!place.firstChild) place.append(make("span", { class: "bar", "aria-hidden": "true" }, make("span")), make("span"));
  const [bar, label] = place.children;
  bar.hidden = whole === null;
  bar.firstChild.style.width = `${Math.min(100, (100 * used) / (whole ?? used))}%`;
  bar.classList.toggle("full", whole !== null && used > 0.9 * whole);
  setText(label, text);
}
