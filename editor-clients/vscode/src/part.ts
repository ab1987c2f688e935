/** How much of an item stands in the document. */

/**
 * What part of an item's text is written, in UTF-16 units of the item; undefined where something
 * else is. Line ends are the document's own, whatever the item's are.
 */
export function lengthOf(written: string, itemText: string): number | undefined {
  const lineEnd = itemText.includes("\r\n") ? "\r\n" : "\n";
  const part = written.replaceAll("\r\n", "\n").replaceAll("\n", lineEnd);
  return itemText.startsWith(part) ? part.length : undefined;
}
