// Markdown text -> blocks, as plain data: { kind, source, ... }, in linear time.

const FENCE = /^ {0,3}(`{3,}(?=[^`]*$)|~{3,})(.*)$/;
const HEADING = /^ {0,3}(#{1,6})\s(.*)$/;
const RULE = /^ {0,3}(?:(?:\*\s*){3,}|(?:-\s*){3,}|(?:_\s*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,8})([-*+]|\d{1,9}[.)])( {1,4}|$)/;
const DIVIDER = /^\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?$/; // of a line without spaces around it
const DEPTH_MAX = 6; // nesting of lists and quotes; deeper ones become paragraphs

export function blocksOf(text, depth = 0) {
  const lines = text.replaceAll("\t", "    ").split("\n");
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    if (!lines[at].trim()) {
      at += 1;
      continue;
    }
    const [block, end] = blockAt(lines, at, depth);
    block.source = lines.slice(at, end).join("\n");
    blocks.push(block);
    at = end;
  }
  return blocks;
}

/** The block that begins at a line, and the index of the line after it. */
function blockAt(lines, at, depth) {
  const line = lines[at];
  const fence = FENCE.exec(line);
  if (fence) return codeAt(lines, at, fence);
  const heading = HEADING.exec(line);
  if (heading) return [{ kind: "heading", level: heading[1].length, text: heading[2].trim().replace(/(?:^|\s)#+$/, "").trim() }, at + 1];
  if (RULE.test(line)) return [{ kind: "rule" }, at + 1];
  if (depth < DEPTH_MAX && QUOTE.test(line)) return quoteAt(lines, at, depth);
  if (depth < DEPTH_MAX && ITEM.test(line)) return listAt(lines, at, depth);
  if (isTable(lines, at)) return tableAt(lines, at);
  let end = at + 1;
  while (end < lines.length && lines[end].trim() && !interrupts(lines, end, depth)) end += 1;
  return [{ kind: "paragraph", text: lines.slice(at, end).join("\n").trim() }, end];
}

/** Whether a line ends the paragraph before it. */
function interrupts(lines, at, depth) {
  const line = lines[at];
  if (FENCE.test(line) || HEADING.test(line) || RULE.test(line) || isTable(lines, at)) return true;
  return depth < DEPTH_MAX && (QUOTE.test(line) || ITEM.test(line));
}

function codeAt(lines, at, [, marks, language]) {
  const indent = lines[at].search(/\S/);
  const isEnd = (line) => {
    const text = line.trim();
    return text.length >= marks.length && text === marks[0].repeat(text.length);
  };
  let end = at + 1;
  while (end < lines.length && !isEnd(lines[end])) end += 1;
  const inside = lines.slice(at + 1, end).map((line) => dedented(line, indent));
  return [{ kind: "code", language: language.trim().slice(0, 40), text: inside.join("\n") }, Math.min(end + 1, lines.length)];
}

function quoteAt(lines, at, depth) {
  let end = at;
  while (end < lines.length && QUOTE.test(lines[end])) end += 1;
  const inside = lines.slice(at, end).map((line) => line.replace(QUOTE, ""));
  return [{ kind: "quote", blocks: blocksOf(inside.join("\n"), depth + 1) }, end];
}

function listAt(lines, at, depth) {
  const [, first, mark] = ITEM.exec(lines[at]);
  const isOrdered = /\d/.test(mark);
  const items = [];
  let end = at;
  while (end < lines.length) {
    const item = ITEM.exec(lines[end]);
    if (!item || item[1].length > first.length + 3 || /\d/.test(item[2]) !== isOrdered || RULE.test(lines[end])) break;
    const indent = item[0].length || item[1].length + item[2].length + 1;
    const inside = [lines[end].slice(item[0].length)];
    end += 1;
    while (end < lines.length && belongs(lines, end, item[1].length)) {
      inside.push(dedented(lines[end], indent));
      end += 1;
    }
    items.push(blocksOf(inside.join("\n"), depth + 1));
  }
  while (end > at + 1 && !lines[end - 1].trim()) end -= 1;
  return [{ kind: "list", isOrdered, start: isOrdered ? parseInt(mark, 10) : 1, items }, end];
}

/** Whether a line belongs to the list item above it: indented, or the same paragraph. */
function belongs(lines, at, indent) {
  const line = lines[at];
  if (!line.trim()) {
    let next = at + 1;
    if (next < lines.length && !lines[next].trim()) return false; // two empty lines end a list
    return next < lines.length && (ITEM.test(lines[next]) || lines[next].search(/\S/) > indent);
  }
  if (line.search(/\S/) > indent + 1) return true;
  if (ITEM.test(line)) return false;
  return lines[at - 1].trim() !== "" && !interrupts(lines, at, 0);
}

function dedented(line, indent) {
  const own = line.search(/\S/);
  return own < 0 ? "" : line.slice(Math.min(own, indent));
}

function isTable(lines, at) {
  return at + 1 < lines.length && lines[at].includes("|") && lines[at + 1].includes("-") && DIVIDER.test(lines[at + 1].trim())
    && cellsOf(lines[at]).length === cellsOf(lines[at + 1]).length;
}

function tableAt(lines, at) {
  const head = cellsOf(lines[at]);
  const sides = cellsOf(lines[at + 1]).map((cell) => (cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : "left"));
  let end = at + 2;
  while (end < lines.length && lines[end].trim() && lines[end].includes("|")) end += 1;
  const rows = lines.slice(at + 2, end).map((line) => cellsOf(line).slice(0, head.length));
  return [{ kind: "table", head, sides, rows }, end];
}

function cellsOf(line) {
  const inside = line.trim().replace(/^\|/, "").replace(/(?<!\\)\|$/, "");
  return inside.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}
