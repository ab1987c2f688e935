// What `/v1/explain` says of a cursor: asked once the cursor rests, and drawn.

import {count, make, percent, row, table} from "./dom.js";
import {REASONS} from "./reasons.js";

const PAUSE_MS = 350;

/** Keeps `answer` about the place where the cursor is; `tell(text, isBad)` says how it goes. */
export class Explaining {
  constructor({server, question, answer, tell}) {
    this._server = server;
    this._question = question;
    this._answer = answer;
    this._tell = tell;
    this._timer = 0;
    this._asking = null;
    this._asked = "";
  }

  /** Ask once the cursor rests, if it stands elsewhere than what is shown, or asked, is about. */
  soon(ms = PAUSE_MS) {
    clearTimeout(this._timer);
    if (JSON.stringify(this._question()) === this._asked) return;
    this.stop();
    this._timer = setTimeout(() => this._ask(), ms);
  }

  /** Ask again even if nothing has changed. */
  again() {
    this._asked = "";
    this.soon(0);
  }

  /** Ask nothing, for now; what is shown stays. */
  stop() {
    clearTimeout(this._timer);
    if (!this._asking) return;
    this._asking.abort();
    this._asking = null;
    this._asked = "";
  }

  async _ask() {
    const body = this._asked = JSON.stringify(this._question());
    const mine = this._asking = new AbortController();
    this._tell("…", false);
    try {
      const said = await this._server.post("v1/explain", body, mine.signal);
      if (mine !== this._asking) return;
      this._asking = null;
      this._answer.replaceChildren(...drawn(said));
      this._tell("", false);
    } catch (error) {
      if (mine !== this._asking) return;
      this.stop();
      this._tell(REASONS[error.reason] ?? error.message, true);
      if (error.retryS) this._timer = setTimeout(() => this._ask(), 1000 * error.retryS);
    }
  }
}

/** The sections of an explanation. */
function drawn(said) {
  return [boundary(said), covers(said), methods(said), diagnoses(said), prompt(said)];
}

const NAMES = new Map([["\n", "⏎"], ["\t", "⇥"], ["\r", "␍"], [" ", "·"]]);

function visible(string) {
  return Array.from(string, (character) => {
    if (NAMES.has(character)) return NAMES.get(character);
    if (/[\p{C}\p{Z}]/u.test(character)) {
      return "\\u{" + character.codePointAt(0).toString(16) + "}";
    }
    return character;
  }).join("");
}

const code = (string, className) => make("code", visible(string), className);

function token(one) {
  return make("span", [code(one.name), make("small", one.id)], "token");
}

function bar(share) {
  const fill = make("div", [], "fill");
  fill.style.width = Math.max(0, Math.min(100, 100 * share)) + "%";
  const track = make("div", fill, "track");
  track.setAttribute("aria-hidden", "true");
  return track;
}

function section(title, ...parts) {
  return make("section", [make("h3", title), ...parts]);
}

function boundary(said) {
  const {typed, kept, pending, dropped_tokens: dropped} = said.boundary;
  const cursor = make("span", "‸", "cursor");
  const given = pending ? [make("span", code(pending), "token pending"),
    make("span", " pending: " + count(dropped, "token") + " given back", "told")] : [];
  return section("At the cursor", table([], [
    row(["bytes", [code(said.cursor.before), cursor, code(said.cursor.after)]]),
    row(["as typed", typed.map(token)]),
    row(["as kept", [...kept.map(token), ...given]]),
  ]));
}

function covers(said) {
  const found = said.covers;
  if (!found) return section("Covers", make("p", "None: nothing is healed exactly here.", "told"));
  const rows = found.best.map((cover) => {
    const end = cover.exact_end
      ? ["exact end: ", ...cover.next.flatMap((one) => [code(one.token.name), " " + percent(one.probability) + "  "])]
      : ["adds ", code(cover.overhang)];
    return row([bar(cover.probability), make("td", percent(cover.probability), "number"),
      cover.tokens.map(token), end]);
  });
  if (found.others > 5e-4) {
    rows.push(row([bar(found.others), make("td", percent(found.others), "number"), "others", ""]));
  }
  const told = "The model gives what is pending " + percent(found.evidence.probability) + " ("
    + found.evidence.bits_per_byte.toFixed(1) + " bits a byte); " + count(found.nodes.length, "node")
    + ", tv_bound " + found.tv_bound.toPrecision(2) + ".";
  return section("Covers", table(["", "", "tokens", "past the cursor"], rows),
    make("p", told, "told"), ...tree(found.nodes));
}

function tree(nodes) {
  const lists = nodes.map(() => make("ul"));
  const root = make("ul");
  nodes.forEach((node, at) => {
    const parent = node.parent < 0 ? root : lists[node.parent];
    parent.append(make("li", [token(node.token), " " + percent(node.probability), lists[at]]));
  });
  return nodes.length ? [make("p", "Paths from the cut, by their own probability:", "told"), root] : [];
}

function methods(said) {
  const rows = said.methods.map((one) => {
    const cells = row([one.name + (one.asked ? " (asked)" : ""), one.level, code(one.text),
      one.reason || one.finish]);
    if (one.asked) cells.className = "asked";
    return cells;
  });
  return section("What each method makes of it", table(["method", "level", "text", "ends"], rows));
}

function diagnoses(said) {
  if (!said.diagnoses.length) return section("The boundary", make("p", "Nothing is weak here.", "told"));
  const items = said.diagnoses.map((one) => make("li", [
    make("strong", (one.healed ? "healed " : "weak ") + one.code, one.healed ? "healed" : "weak"),
    ": " + one.found + (one.healed ? "" : " " + one.cure),
  ]));
  return section("The boundary", make("ul", items));
}

function prompt(said) {
  const map = make("div", [], "map");
  map.setAttribute("aria-hidden", "true");
  for (const one of said.prompt.segments) {
    for (const [n, className] of [[one.reused, "cached"], [one.tokens - one.reused, ""]]) {
      if (!n) continue;
      const piece = make("div", [], className);
      piece.style.flexGrow = n;
      piece.title = one.role + ": " + n;
      map.append(piece);
    }
  }
  const rows = said.prompt.segments.map((one) => row([one.role,
    make("td", one.tokens, "number"), make("td", one.reused, "number")]));
  const told = said.model + ": " + said.prompt.layout
    + (said.prompt.boundary ? ", tail " + said.prompt.boundary : "") + ", "
    + count(said.prompt.tokens, "token") + ", " + said.prompt.reused + " from the cache"
    + (said.prompt.truncated ? ", text left out" : "")
    + (said.prompt.excluded ? ", " + said.prompt.excluded + " with secrets left out" : "") + ".";
  return section("Prompt", map, make("p", told, "told"),
    table(["part", "tokens", "from the cache"], rows));
}
