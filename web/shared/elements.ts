// Elements, text and icons. Text of models, files and users is inserted here, always as text and never as markup.

export type Child = Node | string | null | undefined | Child[];
type Events = HTMLElementEventMap;
type Listeners = { [Name in keyof Events as `on${Name}`]?: (event: Events[Name]) => void };
export type Attributes = Listeners & { [name: string]: unknown };

/** An element: `make("p.quiet", { title: "…" }, "text", other)`. The class and the attributes may be left out;
 * attributes named on... are listeners, children are elements or text. */
export function make<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag | `${Tag}.${string}`,
  first?: Attributes | Child,
  ...children: Child[]
): HTMLElementTagNameMap[Tag] {
  const [name, kind] = tag.split(".");
  const element = document.createElement(name as Tag);
  if (kind) element.className = kind;
  if (typeof first === "string" || first instanceof Node || Array.isArray(first)) children.unshift(first);
  else {
    for (const [key, value] of Object.entries(first ?? {})) {
      if (typeof value === "function") element.addEventListener(key.slice(2), value as EventListener);
      else if (value === true) element.setAttribute(key, "");
      else if (value !== null && value !== undefined && value !== false) element.setAttribute(key, String(value));
    }
  }
  fill(element, children);
  return element;
}

/** Replace what an element contains. */
export function fill(element: Element, children: Child[]): void {
  const inside = (children as unknown[]).flat(Number.POSITIVE_INFINITY) as (Node | string | null | undefined)[];
  element.replaceChildren(...inside.filter((child) => child !== null && child !== undefined));
}

export function byId<Kind extends HTMLElement = HTMLElement>(id: string): Kind {
  return document.getElementById(id) as Kind;
}

// Lines of width 1.6 on a grid of 24.
const ICONS = {
  menu: "M4 7h16M4 12h16M4 17h10",
  plus: "M12 5v14M5 12h14",
  close: "M6 6l12 12M18 6L6 18",
  sliders: "M4 8h9M19 8h1M4 16h1M11 16h9M16 5.5v5M8 13.5v5",
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M7.5 7.5h9v9h-9z",
  down: "M12 5v14M6 13l6 6 6-6",
  back: "M15 6l-6 6 6 6",
  next: "M9 6l6 6-6 6",
  clip: "M19.5 11.5l-7.6 7.6a4.6 4.6 0 0 1-6.5-6.5l8-8a3 3 0 0 1 4.3 4.3l-7.9 7.9a1.5 1.5 0 0 1-2.1-2.1l7.1-7.1",
  copy: "M9 9h10v11H9zM15 9V5H5v11h4",
  done: "M5 12.5l4.5 4.5L19 7.5",
  again: "M19 12a7 7 0 1 1-2.2-5.1M19 4v4.5h-4.5",
  pencil: "M5 19l1-4L16.5 4.5l3 3L9 18zM14 7l3 3",
  bin: "M5 7h14M10 7V4.5h4V7M7 7l1 12.5h8L17 7M10.5 11v5M13.5 11v5",
};

export function icon(name: keyof typeof ICONS): Element {
  const make = (tag: string, attributes: Record<string, string>, ...inside: Element[]): Element => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...inside);
    return element;
  };
  const path = make("path", { d: ICONS[name] });
  return make("svg", { viewBox: "0 0 24 24", "aria-hidden": "true", class: `icon icon-${name}` }, path);
}

/** A button with an icon, and a label for screen readers. */
export function iconButton(name: keyof typeof ICONS, label: string, onclick: () => void): HTMLButtonElement {
  return make("button.plain", { type: "button", "aria-label": label, title: label, onclick }, icon(name));
}

/** A button with a text; `kind`: its classes. */
export function textButton(label: string, onclick: () => void, kind = ""): HTMLButtonElement {
  return make("button", { type: "button", class: kind || null, onclick }, label);
}

/** Change a text only if it differs, so that a selection in it stays. */
export function setText(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

/** Copy text to the clipboard; the clipboard API exists only for https and localhost. */
async function copyText(text: string): Promise<void> {
  if (navigator.clipboard && window.isSecureContext) return navigator.clipboard.writeText(text);
  const field = make("textarea.unseen", { readonly: true });
  field.value = text;
  document.body.append(field);
  const focused = document.activeElement;
  field.select();
  const isCopied = document.execCommand("copy");
  field.remove();
  if (focused instanceof HTMLElement) focused.focus();
  if (!isCopied) throw new Error("the browser does not let this page copy");
}

/** A button that copies the result of `text()` and confirms it. */
export function copyButton(text: () => string, label = "Copy"): HTMLButtonElement {
  const say = (said: string) => {
    for (const name of ["aria-label", "title"]) button.setAttribute(name, said);
  };
  const button = iconButton("copy", label, async () => {
    try {
      await copyText(text());
      button.replaceChildren(icon("done"));
      say("Copied");
    } catch {
      say("Could not copy");
    }
    setTimeout(() => {
      button.replaceChildren(icon("copy"));
      say(label);
    }, 1600);
  });
  return button;
}

/** A unique id; `randomUUID` exists only for https and localhost. */
export function newId(): string {
  const parts = crypto.getRandomValues(new Uint32Array(3));
  return [...parts].map((part) => part.toString(36)).join("");
}
