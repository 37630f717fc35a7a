// Markdown text -> elements. markdown-it parses it, without HTML; DOMPurify checks what comes out; highlight.js colours
// code. When a text grows, only its changed blocks are drawn again.

import DOMPurify from "dompurify";
import MarkdownIt, { type RendererRule } from "markdown-it";
import { copyButton, make } from "./elements.ts";

const TAGS = "p h3 h4 h5 h6 ul ol li blockquote hr strong em del a code pre div span table thead tbody tr th td".split(
  " ",
);
const HIGHLIGHT_MAX = 50_000; // characters; longer code stays plain

const parser = new MarkdownIt({ linkify: true, maxNesting: 20 });
parser.validateLink = (address) => /^(https?:\/\/|mailto:)/i.test(address);
parser.linkify.set({ fuzzyLink: false, fuzzyEmail: false });
parser.core.ruler.push("page", ({ tokens }) => {
  for (const token of tokens) {
    const level = Number(token.tag[1]) + 2; // the page has two above
    if (token.type.startsWith("heading")) token.tag = `h${Math.min(6, level)}`;
    const style = token.attrGet("style"); // of a cell; the page's policy allows classes only
    if (style) token.attrs = [["class", String(style).replace("text-align:", "")]];
  }
});
const { escapeHtml } = parser.utils;
const CODE_END = "</code></pre>";
const codeRule: RendererRule = (tokens, index) => {
  const language = escapeHtml(tokens[index].info.trim().slice(0, 40));
  return `<pre><code class="${language}">${escapeHtml(tokens[index].content.replace(/\n$/, ""))}${CODE_END}`;
};
Object.assign(parser.renderer.rules, {
  fence: codeRule,
  code_block: codeRule,
  table_open: () => '<div class="wide" tabindex="0"><table>',
  table_close: () => "</table></div>",
  s_open: () => "<del>",
  s_close: () => "</del>",
  hardbreak: () => "\n", // shown as one, as every line end of a paragraph
});
// Images become links: nothing is loaded.
parser.renderer.rules.image = (tokens, index) => {
  const address = String(tokens[index].attrGet("src"));
  return `<a href="${escapeHtml(address)}">${escapeHtml(tokens[index].content || address)}</a>`;
};

type Shown = { text: string; isWhole: boolean; blocks: string[] };
const shown = new WeakMap<Element, Shown>(); // what an element shows: the HTML of each child

/** Show a text; `isWhole`: it will not grow, so that its last code can be coloured. */
export function renderMarkdown(parent: Element, text: string, isWhole = true): void {
  const last = shown.get(parent);
  if (last?.text === text && last.isWhole === isWhole) return;
  const before = last?.blocks ?? [];
  const blocks = blocksOf(text);
  let same = 0;
  while (same < before.length && before[same] === blocks[same]) same += 1;
  if (same < before.length && same < blocks.length && grow(before[same], blocks[same], parent.children[same]))
    same += 1;
  while (parent.children.length > same) parent.lastElementChild?.remove();
  for (const block of blocks.slice(same)) parent.append(elementOf(block));
  shown.set(parent, { text, isWhole, blocks });
  for (const code of parent.querySelectorAll<HTMLElement>("code[data-language]")) {
    if (isWhole || !parent.lastElementChild?.contains(code)) highlight(code);
  }
}

/** The HTML of each top-level block. */
function blocksOf(text: string): string[] {
  const env = {};
  const tokens = parser.parse(text, env);
  let first = 0;
  return tokens.flatMap((token, index) => {
    if (token.level > 0 || token.nesting > 0) return [];
    const html = parser.renderer.render(tokens.slice(first, index + 1), parser.options, env);
    first = index + 1;
    return html;
  });
}

/** Growing code is appended to, so that a selection in it stays. */
function grow(before: string, block: string, element: Element): boolean {
  const code = element.matches(".code") ? element.querySelector("code[data-language]") : null;
  const known = before.slice(0, -CODE_END.length);
  if (!code || !block.startsWith(known)) return false;
  code.append(fragmentOf(block.slice(known.length, -CODE_END.length)));
  return true;
}

function fragmentOf(html: string): DocumentFragment {
  const allowed = { ALLOWED_TAGS: TAGS, ALLOWED_ATTR: ["href", "class", "start", "tabindex"] };
  return DOMPurify.sanitize(html, { ...allowed, RETURN_DOM_FRAGMENT: true });
}

function elementOf(html: string): Element {
  const fragment = fragmentOf(html);
  for (const link of fragment.querySelectorAll("a")) {
    Object.assign(link, { target: "_blank", rel: "noopener noreferrer nofollow" });
  }
  for (const pre of fragment.querySelectorAll("pre")) {
    pre.replaceWith(codeElement(pre.firstElementChild?.className ?? "", pre.textContent ?? ""));
  }
  return fragment.firstElementChild ?? make("p");
}

function codeElement(language: string, text: string): Element {
  const code = make("code", { "data-language": language }, text);
  const copy = copyButton(() => code.textContent ?? "", "Copy this code");
  const head = make("div.code-head", make("span", language || "code"), copy);
  return make("div.code", head, make("pre", { tabindex: "0" }, code));
}

async function highlight(code: HTMLElement): Promise<void> {
  const [language] = (code.dataset.language ?? "").toLowerCase().split(/\s/);
  delete code.dataset.language;
  const text = code.textContent ?? "";
  if (!language || text.length > HIGHLIGHT_MAX) return;
  const { highlighted } = await import("./highlight.ts");
  const html = highlighted(text, language);
  if (html === null || code.textContent !== text) return;
  code.replaceChildren(fragmentOf(html));
}
