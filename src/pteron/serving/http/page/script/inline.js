// The text of a paragraph -> nodes: code, strong, emphasis, strikethrough, links. One pass, in linear time.

import { make } from "./elements.js";

const TAGS = { "**": "strong", __: "strong", "*": "em", _: "em", "~~": "del" };
const OPEN_MAX = 32; // marks that wait for their ends; further ones are text
const LINK = /!?\[([^[\]\n]{0,500})\]\(\s*<?([^\s()<>]{1,2000})>?(?:\s+"[^"\n]{0,300}")?\s*\)/y;
const ADDRESS = /https?:\/\/[^\s<>"'`\\^{|}]{1,2000}/y;
const PLAIN = /[^\\`*_~[!h]+/y;

export function inlineNodes(text) {
  const open = [{ mark: "", children: [] }]; // marks that are open, the paragraph itself below all
  const say = (child) => add(open.at(-1).children, child);
  const lastTicks = new Map(); // length of a run of backticks -> where the last search for it failed
  let at = 0;
  while (at < text.length) {
    const plain = match(PLAIN, text, at);
    const character = text[at];
    let taken = 1;
    let link;
    if (plain) {
      say(plain[0]);
      taken = plain[0].length;
    } else if (character === "\\" && /[!-/:-@[-`{-~]/.test(text[at + 1] ?? "")) {
      say(text[at + 1]);
      taken = 2;
    } else if (character === "`") {
      taken = codeAt(text, at, lastTicks, say);
    } else if ("*_~".includes(character)) {
      taken = marksAt(text, at, open, say);
    } else if ((character === "[" || character === "!") && (link = match(LINK, text, at))) {
      say(linkTo(link[2], link[1] || link[2]) ?? link[0]);
      taken = link[0].length;
    } else if (character === "h" && !/\w/.test(text[at - 1] ?? "") && (link = match(ADDRESS, text, at))) {
      let address = link[0];
      while (".,;:!?)]*_~".includes(address.at(-1))) address = address.slice(0, -1); // the sentence's own
      say(linkTo(address, address) ?? address);
      taken = address.length;
    } else {
      say(character);
    }
    at += taken;
  }
  while (open.length > 1) dropTop(open);
  return open[0].children;
}

function match(pattern, text, at) {
  pattern.lastIndex = at;
  return pattern.exec(text);
}

/** A code span ends with as many backticks as it begins with. */
function codeAt(text, at, lastTicks, say) {
  let count = 1;
  while (text[at + count] === "`") count += 1;
  if (!lastTicks.has(count)) {
    const ending = new RegExp(`(?<!\`)\`{${count}}(?!\`)`, "g");
    ending.lastIndex = at + count;
    const found = ending.exec(text);
    if (found) {
      const inside = text.slice(at + count, found.index);
      say(make("code", {}, inside.startsWith(" ") && inside.endsWith(" ") && inside.trim() ? inside.slice(1, -1) : inside));
      return found.index + count - at;
    }
    lastTicks.set(count, at);
  }
  say("`".repeat(count));
  return count;
}

/** A run of * or _ or ~: it closes what it can, then opens. */
function marksAt(text, at, open, say) {
  const character = text[at];
  let count = 1;
  while (text[at + count] === character) count += 1;
  const taken = count;
  const before = text[at - 1] ?? " ", after = text[at + count] ?? " ";
  const inWord = character === "_" && /\w/.test(before) && /\w/.test(after);
  let canClose = !/\s/.test(before) && !inWord && count <= 3;
  const canOpen = !/\s/.test(after) && !inWord && count <= 3;
  while (count && canClose) {
    const index = open.findLastIndex(({ mark }) => mark[0] === character && mark.length <= count);
    canClose = index > 0;
    if (!canClose) break;
    while (open.length > index + 1) dropTop(open);
    const { mark, children } = open.pop();
    say(make(TAGS[mark], {}, children));
    count -= mark.length;
  }
  while (count && canOpen && open.length < OPEN_MAX) {
    const mark = character.repeat(Math.min(2, count));
    if (!TAGS[mark]) break;
    open.push({ mark, children: [] });
    count -= mark.length;
  }
  if (count) say(character.repeat(count));
  return taken;
}

/** A mark without its end is plain text. */
function dropTop(open) {
  const { mark, children } = open.pop();
  const below = open.at(-1).children;
  add(below, mark);
  for (const child of children) add(below, child);
}

/** Join adjacent texts. */
function add(children, child) {
  if (typeof child === "string" && typeof children.at(-1) === "string") children[children.length - 1] += child;
  else children.push(child);
}

/** A link to http, https or mailto; null for any other address. Images become links: nothing is loaded. */
function linkTo(address, text) {
  if (!/^(https?:\/\/|mailto:)/i.test(address)) return null;
  return make("a", { href: address, target: "_blank", rel: "noopener noreferrer nofollow" }, text);
}
