// Stands in for the package `entities` of markdown-it, whose tables are 20 kB: the browser knows the names too.

/** The text of one entity, such as `&amp;`; the entity itself if there is none of that name. */
export function decodeHTMLStrict(entity: string): string {
  return new DOMParser().parseFromString(entity, "text/html").documentElement.textContent ?? entity;
}
