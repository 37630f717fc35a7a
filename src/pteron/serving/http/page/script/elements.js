// Elements, text and icons. Text of models and users is inserted here, always as text and never as markup.

/** An element; attributes named on... are listeners, children are elements or text. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) if (child !== null && child !== undefined) element.append(child);
  return element;
}

export const byId = (id) => document.getElementById(id);

// Lines of width 1.6 on a grid of 24.
const ICONS = {
  menu: "M4 7h16M4 12h16M4 17h10",
  plus: "M12 5v14M5 12h14",
  close: "M6 6l12 12M18 6L6 18",
  sliders: "M4 8h9M19 8h1M4 16h1M11 16h9M16 5.5v5M8 13.5v5",
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M7.5 7.5h9v9h-9z",
  down: "M12 5v14M6 13l6 6 6-6",
  copy: "M9 9h10v11H9zM15 9V5H5v11h4",
  done: "M5 12.5l4.5 4.5L19 7.5",
  again: "M19 12a7 7 0 1 1-2.2-5.1M19 4v4.5h-4.5",
  pencil: "M5 19l1-4L16.5 4.5l3 3L9 18zM14 7l3 3",
  bin: "M5 7h14M10 7V4.5h4V7M7 7l1 12.5h8L17 7M10.5 11v5M13.5 11v5",
};

export function icon(name) {
  const drawing = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  drawing.setAttribute("viewBox", "0 0 24 24");
  drawing.setAttribute("aria-hidden", "true");
  drawing.setAttribute("class", `icon icon-${name}`);
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", ICONS[name]);
  drawing.append(path);
  return drawing;
}

/** A button with an icon, and a label for screen readers. */
export function iconButton(name, label, onclick, attributes = {}) {
  return make("button", { type: "button", class: "plain", "aria-label": label, title: label, onclick, ...attributes }, icon(name));
}

/** Change a text only if it differs, so that a selection in it stays. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Copy text to the clipboard; the clipboard API exists only for https and localhost. */
export async function copyText(text) {
  if (navigator.clipboard && window.isSecureContext) return navigator.clipboard.writeText(text);
  const field = make("textarea", { class: "unseen", readonly: true });
  field.value = text;
  document.body.append(field);
  const focused = document.activeElement;
  field.select();
  const isCopied = document.execCommand("copy");
  field.remove();
  focused?.focus();
  if (!isCopied) throw new Error("the browser does not let this page copy");
}

/** A button that copies the result of `text()` and confirms it. */
export function copyButton(text, label = "Copy") {
  const button = iconButton("copy", label, async () => {
    let said = "Copied";
    try {
      await copyText(text());
      button.replaceChildren(icon("done"));
    } catch {
      said = "Could not copy";
    }
    for (const name of ["aria-label", "title"]) button.setAttribute(name, said);
    setTimeout(() => {
      button.replaceChildren(icon("copy"));
      for (const name of ["aria-label", "title"]) button.setAttribute(name, label);
    }, 1600);
  });
  return button;
}

/** A unique id; `randomUUID` exists only for https and localhost. */
export function newId() {
  const parts = crypto.getRandomValues(new Uint32Array(3));
  return [...parts].map((part) => part.toString(36)).join("");
}
