// Markdown text -> elements. markdown-it parses it, without HTML; DOMPurify checks what comes out; highlight.js colours
// code. When a text grows, only its changed blocks are drawn again.

import DOMPurify from "dompurify";
import MarkdownIt from "markdown-it";
import { copyButton, make } from "./elements.ts";

type Code = { language: string; text: string };
type Block = { html: string; code: null } | { html: ""; code: Code };

const TAGS = "p h3 h4 h5 h6 ul ol li blockquote hr strong em del a code pre div table thead tbody tr th td".split(" ");
const HIGHLIGHT_MAX = 50_000; // characters; longer code stays plain

const parser = new MarkdownIt({ linkify: true, maxNesting: 20 });
parser.validateLink = (address) => /^(https?:\/\/|mailto:)/i.test(address);
parser.linkify.set({ fuzzyLink: false, fuzzyEmail: false });
parser.core.ruler.push("page", ({ tokens }) => {
  for (const token of tokens) {
    if (token.type.startsWith("heading")) token.tag = `h${Math.min(6, Number(token.tag[1]) + 2)}`; // the page has two above
    const style = token.attrGet("style"); // of a cell; the page's policy allows classes only
    if (style) token.attrs = [["class", String(style).replace("text-align:", "")]];
  }
});
Object.assign(parser.renderer.rules, {
  table_open: () => '<div class="wide" tabindex="0"><table>',
  table_close: () => "</table></div>",
  s_open: () => "<del>",
  s_close: () => "</del>",
  hardbreak: () => "\n", // shown as one, as every line end of a paragraph
});
// Images become links: nothing is loaded.
parser.renderer.rules.image = (tokens, index) => {
  const { escapeHtml } = parser.utils;
  const address = String(tokens[index].attrGet("src"));
  return `<a href="${escapeHtml(address)}">${escapeHtml(tokens[index].content || address)}</a>`;
};

type Shown = { text: string; isWhole: boolean; blocks: Block[] };
const shown = new WeakMap<Element, Shown>(); // what an element shows: one child per block

/** Show a text; `isWhole`: it will not grow, so that its last code can be coloured. */
export function renderMarkdown(parent: Element, text: string, isWhole = true): void {
  const last = shown.get(parent);
  if (last?.text === text && last.isWhole === isWhole) return;
  const before = last?.blocks ?? [];
  const blocks = blocksOf(text);
  let same = 0;
  while (same < before.length && same < blocks.length && isSame(before[same], blocks[same])) same += 1;
  if (same < before.length && same < blocks.length && grow(before[same], blocks[same], parent.children[same]))
    same += 1;
  while (parent.children.length > same) parent.lastElementChild?.remove();
  for (const block of blocks.slice(same)) parent.append(elementOf(block));
  shown.set(parent, { text, isWhole, blocks });
  for (const code of parent.querySelectorAll<HTMLElement>("code[data-language]")) {
    if (isWhole || !parent.lastElementChild?.contains(code)) highlight(code);
  }
}

function blocksOf(text: string): Block[] {
  const env = {};
  const tokens = parser.parse(text, env);
  const blocks: Block[] = [];
  let first = 0;
  for (const [index, token] of tokens.entries()) {
    if (token.level > 0 || token.nesting > 0) continue;
    if (token.type === "fence" || token.type === "code_block") {
      const code = { language: token.info.trim().slice(0, 40), text: token.content.replace(/\n$/, "") };
      blocks.push({ html: "", code });
    } else {
      const html = parser.renderer.render(tokens.slice(first, index + 1), parser.options, env);
      blocks.push({ html, code: null });
    }
    first = index + 1;
  }
  return blocks;
}

function isSame(before: Block, block: Block): boolean {
  return (
    before.html === block.html &&
    before.code?.language === block.code?.language &&
    before.code?.text === block.code?.text
  );
}

/** Growing code is appended to, so that a selection in it stays. */
function grow(before: Block, block: Block, element: Element): boolean {
  const code = element.querySelector("code");
  if (!before.code || !block.code || !code || code.childElementCount) return false;
  if (before.code.language !== block.code.language || !block.code.text.startsWith(before.code.text)) return false;
  code.append(block.code.text.slice(before.code.text.length));
  code.dataset.language = block.code.language;
  return true;
}

function elementOf({ html, code }: Block): Element {
  if (code) return codeElement(code);
  const fragment = DOMPurify.sanitize(html, {
    ALLOWED_TAGS: TAGS,
    ALLOWED_ATTR: ["href", "class", "start", "tabindex"],
    RETURN_DOM_FRAGMENT: true,
  });
  for (const link of fragment.querySelectorAll("a")) {
    Object.assign(link, { target: "_blank", rel: "noopener noreferrer nofollow" });
  }
  for (const pre of fragment.querySelectorAll("pre")) {
    const language = pre.firstElementChild?.className.replace("language-", "") ?? "";
    pre.replaceWith(codeElement({ language, text: pre.textContent?.replace(/\n$/, "") ?? "" }));
  }
  return fragment.firstElementChild ?? make("p");
}

function codeElement({ language, text }: Code): Element {
  const code = make("code", { "data-language": language }, text);
  const head = make("span", language || "code");
  return make(
    "div.code",
    make(
      "div.code-head",
      head,
      copyButton(() => code.textContent ?? "", "Copy this code"),
    ),
    make("pre", { tabindex: "0" }, code),
  );
}

async function highlight(code: HTMLElement): Promise<void> {
  const [language] = (code.dataset.language ?? "").toLowerCase().split(/\s/);
  delete code.dataset.language;
  const text = code.textContent ?? "";
  if (!language || text.length > HIGHLIGHT_MAX) return;
  const { highlighted } = await import("./highlight.ts");
  const html = highlighted(text, language);
  if (html === null || code.textContent !== text) return;
  const allowed = { ALLOWED_TAGS: ["span"], ALLOWED_ATTR: ["class"] };
  code.replaceChildren(DOMPurify.sanitize(html, { ...allowed, RETURN_DOM_FRAGMENT: true }));
}
