// Elements and text: everything that comes from a file enters the page here, as text and never as markup.
"use strict";

/** An element; attributes named on... are listeners, children are elements or text. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  setAll(element, attributes);
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

/** The same for drawings. */
function makeSvg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  setAll(element, attributes);
  element.append(...children);
  return element;
}

function setAll(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
}

const byId = (id) => document.getElementById(id);

/** 512 B, 5.1 kB, 848.2 MB. */
function humanBytes(count) {
  if (count < 1000) return `${count} B`;
  let size = count;
  for (const unit of ["kB", "MB", "GB", "TB"]) {
    size /= 1000;
    if (size < 999.95 || unit === "TB") return `${size.toFixed(1)} ${unit}`;
  }
}

const counted = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

/** A number in few digits. */
function fewDigits(number) {
  if (Number.isInteger(number) && Math.abs(number) < 1e6) return String(number);
  return Math.abs(number) >= 1e-3 && Math.abs(number) < 1e5 ? String(Number(number.toPrecision(4))) : number.toExponential(2);
}

/** An operator's name without what all of them share. */
function shortName(name) {
  return name.replace(/^(aten|et_vk|pteron|llama|dim_order_ops)\./, "").replace(/\.default$/, "");
}

/** Tabs or choices out of which one is taken, moved between by arrow keys. */
function fillChoice(parent, role, names, chosen, choose) {
  const state = role === "tab" ? "aria-selected" : "aria-checked";
  parent.replaceChildren(...names.map((name, index) => make("button", {
    type: "button", role, [state]: String(index === chosen), tabindex: index === chosen ? 0 : -1,
    onclick: () => choose(index),
    onkeydown: (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      choose((index + step + names.length) % names.length);
      parent.querySelector(`[${state}="true"]`)?.focus();
    },
  }, name)));
}
