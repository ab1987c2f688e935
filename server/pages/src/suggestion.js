// A suggestion and the text around it, as one types; no editor in it. Places and lengths are
// UTF-16 units of a document whose line ends are "\n", as the editor counts.
//
//   text    what is suggested to stand between `from` and `to`
//   typed   the beginning of it that stands before the cursor already
//   rest    what of it does not
//   behind  what stands between the cursor and `to`: closers, which the rest writes as well
//
// G1  Whatever was typed through, putting `rest` in the place of `behind` makes it `text`.
// G2  A change that is neither typing `text` on nor taking some of it back ends the suggestion.

const CLOSERS = /^[)\]}"'`]+$/;
const CLOSER_OF = {"(": ")", "[": "]", "{": "}"};
const QUOTES = "\"'`";

/** `text` with "\n" for line ends; a CR at its end may be half of one, and is left out. */
export function lineFeeds(text) {
  return text.replace(/\r$/, "").replace(/\r\n?/g, "\n");
}

/** The length in the editor of the first `n` code points of a text with any line ends. */
export function editorLength(text, n) {
  let end = 0;
  for (let left = n; left > 0 && end < text.length; left--) {
    end += text.codePointAt(end) > 0xffff ? 2 : 1;
  }
  return text.slice(0, end).replace(/\r\n?/g, "\n").length;
}

/** The part of a suggestion that is not typed yet. */
export const restOf = ({text, typed}) => text.slice(typed.length);

/** The suggestion where now `typed` stands before the cursor and `behind` after it; or null. */
export function followed(suggestion, typed, behind) {
  const {text, behind: before} = suggestion;
  if (!text.startsWith(typed)) return null;
  const rest = text.slice(typed.length);
  if (!rest && !suggestion.growing) return null;
  if (before.endsWith(behind)) return {...suggestion, typed, behind};
  const added = behind.slice(0, behind.length - before.length);
  const isWritten = suggestion.growing || places(rest, added) !== null;
  const isClosed = behind.endsWith(before) && CLOSERS.test(added) && isWritten;
  return isClosed ? {...suggestion, typed, behind} : null;
}

/** Where in `rest` each character of `behind` stands, in their order; null if they do not all. */
export function places(rest, behind) {
  const found = [];
  let depth = 0;
  for (let at = 0; at < rest.length && found.length < behind.length; at++) {
    const mark = rest[at];
    if (depth === 0 && mark === behind[found.length]) {
      found.push(at);
    } else if (CLOSER_OF[mark]) {
      depth++;
    } else if (")]}".includes(mark)) {
      depth = Math.max(0, depth - 1);
    } else if (QUOTES.includes(mark)) {
      at = stringEnd(rest, at);
    }
  }
  return found.length === behind.length ? found : null;
}

/** The quote that ends the string that begins at `at`; `at` if none does in its line. */
function stringEnd(text, at) {
  for (let end = at + 1; end < text.length && text[end] !== "\n"; end++) {
    if (text[end] === "\\") end++;
    else if (text[end] === text[at]) return end;
  }
  return at;
}

/**
 * What to draw: the rest in parts, each with the number of characters of `behind` before it.
 *
 * null: what stands behind the cursor has to be hidden, and all of the rest drawn in its place.
 */
export function parts(suggestion) {
  const rest = restOf(suggestion);
  const found = places(rest, suggestion.behind);
  if (found === null) return null;
  const ends = [...found, rest.length];
  return ends
    .map((end, over) => ({over, text: rest.slice(over ? found[over - 1] + 1 : 0, end)}))
    .filter(({text}) => text);
}

/** The change that takes the first `n` units of the rest: `text` over so many units behind. */
export function taking(suggestion, n) {
  const rest = restOf(suggestion);
  if (n >= rest.length) return {over: suggestion.behind.length, text: rest};
  const found = places(rest, suggestion.behind) ?? [];
  return {over: found.filter((at) => at < n).length, text: rest.slice(0, n)};
}

const WORD = /^\s*(?:[\p{L}\p{N}\p{M}_]+|[^\s\p{L}\p{N}\p{M}_]+|$)/u;
const LINE = /^\n*[^\n]*/;

/** How much of the rest is its first word, with the blanks before it. */
export const wordLength = (rest) => WORD.exec(rest)[0].length;

/** How much of the rest is its first line, with the line ends before it. */
export const lineLength = (rest) => LINE.exec(rest)[0].length;
