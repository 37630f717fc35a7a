// Markdown text -> elements. When a text grows, only its changed blocks are drawn again.

import { blocksOf } from "./blocks.js";
import { copyButton, make } from "./elements.js";
import { inlineNodes } from "./inline.js";

const shown = new WeakMap(); // element -> the blocks that it shows

export function renderMarkdown(parent, text) {
  const before = shown.get(parent) ?? [];
  const blocks = blocksOf(text);
  let same = 0;
  while (same < before.length && same < blocks.length && isSame(before[same], blocks[same])) same += 1;
  if (before[same]?.kind === "code" && grow(before[same], blocks[same], parent.children[same])) same += 1;
  while (parent.children.length > same) parent.lastElementChild.remove();
  for (const block of blocks.slice(same)) parent.append(elementOf(block));
  shown.set(parent, blocks);
}

function isSame(before, block) {
  return before.kind === block.kind && before.source === block.source;
}

/** Growing code is appended to, so that a selection in it stays. */
function grow(before, block, element) {
  if (block?.kind !== "code" || block.language !== before.language || !block.text.startsWith(before.text)) return false;
  element.querySelector("code").append(block.text.slice(before.text.length));
  return true;
}

function elementOf(block) {
  switch (block.kind) {
    case "code": return codeElement(block);
    case "heading": return make(`h${Math.min(6, block.level + 2)}`, {}, inlineNodes(block.text)); // the page has two above
    case "rule": return make("hr");
    case "quote": return make("blockquote", {}, block.blocks.map(elementOf));
    case "list": return listElement(block);
    case "table": return tableElement(block);
    default: return make("p", {}, inlineNodes(block.text));
  }
}

function codeElement({ language, text }) {
  const code = make("code", {}, text);
  return make("div", { class: "code" },
    make("div", { class: "code-head" }, make("span", {}, language || "code"), copyButton(() => code.textContent, "Copy this code")),
    make("pre", { tabindex: "0" }, code));
}

function listElement({ isOrdered, start, items }) {
  return make(isOrdered ? "ol" : "ul", { start: isOrdered && start !== 1 ? start : null }, items.map((blocks) => {
    // A line alone needs no paragraph around it.
    const [first, ...rest] = blocks;
    const isLine = first?.kind === "paragraph" && rest.every((block) => block.kind === "list");
    return make("li", {}, isLine ? [inlineNodes(first.text), rest.map(elementOf)] : blocks.map(elementOf));
  }));
}

function tableElement({ head, sides, rows }) {
  const row = (cells, tag) => make("tr", {}, cells.map((cell, index) => make(tag, { class: sides[index] }, inlineNodes(cell))));
  return make("div", { class: "wide", tabindex: "0" },
    make("table", {}, make("thead", {}, row(head, "th")), make("tbody", {}, rows.map((cells) => row(cells, "td")))));
}
