// Elements. What is shown is always the text of a text node, whatever a model or a file has in it.

/** The element of the page with this id. */
export const byId = (id) => document.getElementById(id);

/** A new element; `content` is one or several of nodes, texts and numbers, or nothing. */
export function make(tag, content, className) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  for (const part of [content].flat()) {
    if (part !== undefined && part !== null) {
      element.append(part instanceof Node ? part : document.createTextNode(String(part)));
    }
  }
  return element;
}

/** A table row; what is no cell yet becomes one. */
export function row(cells) {
  return make("tr", cells.map((cell) => cell instanceof HTMLTableCellElement ? cell : make("td", cell)));
}

/** A table with a head where there are `heads`, wide ones to be scrolled. */
export function table(heads, rows) {
  const parts = [make("tbody", rows)];
  if (heads.length) {
    const cells = heads.map((head) => {
      const cell = make("th", head);
      cell.scope = "col";
      return cell;
    });
    parts.unshift(make("thead", make("tr", cells)));
  }
  return make("div", make("table", parts), "scrolled");
}

/** Show another text in an element, where it is another: readers are told of each change. */
export function tell(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export const count = (n, noun) => n + " " + noun + (n === 1 ? "" : "s");

export function percent(share) {
  if (share > 0 && share < 0.00001) return "<0.001 %";
  return (100 * share).toFixed(share && share < 0.01 ? 3 : 1) + " %";
}
