// How the server does: asked each second while somebody looks, and drawn.

import {byId, make, percent, row, table, tell} from "./dom.js";
import {REASONS} from "./reasons.js";
import {draw, sparkline} from "./sparkline.js";

const PERIOD_MS = 1000;
const STATES = {
  ready: "ready",
  loading: "loading the model",
  stalled: "stalled: it has work and completes none",
};

/** Asks for `/v1/status` and shows it, in `tiles`, `ends` and the page's head. */
export class Numbers {
  constructor({server, tiles, ends}) {
    this._server = server;
    this._tiles = tiles;
    this._ends = ends;
    this._timer = 0;
    this._round = 0;
    this._parts = new Map();
    document.addEventListener("visibilitychange", () => this.begin());
  }

  /** Look now, and then each second while the page is visible. */
  async begin() {
    clearTimeout(this._timer);
    const round = ++this._round;
    if (document.visibilityState !== "visible") return;
    await this._look(round);
    if (round === this._round) this._timer = setTimeout(() => this.begin(), PERIOD_MS);
  }

  async _look(round) {
    try {
      const status = await this._server.get("v1/status");
      if (round !== this._round) return;
      this._say(status.state, STATES[status.state] ?? status.state);
      this._show(status);
    } catch (error) {
      if (round === this._round) this._say(...failure(error));
    }
  }

  _say(state, text) {
    document.body.dataset.server = state;
    tell(byId("state"), text);
  }

  _show(status) {
    const {model} = status;
    tell(byId("model"), model.name);
    tell(byId("about"), [
      "Suture " + status.suture,
      model.n_ctx ? model.n_ctx + " tokens of context" : "",
      model.family ? "FIM as " + model.family : model.fim ? "FIM" : "no FIM",
      "up " + duration(status.uptime_s),
    ].filter(Boolean).join(" · "));
    for (const [name, value, detail, values] of tilesOf(status)) this._tile(name, value, detail, values);
    this._tables(status.recent);
  }

  /** A tile is made once and then only its texts change: nothing moves under who reads it. */
  _tile(name, value, detail, values) {
    let part = this._parts.get(name);
    if (!part) {
      part = {value: make("dd", [], "value"), detail: make("dd", [], "told")};
      if (values) part.picture = sparkline();
      const parts = [make("dt", name), part.value, part.picture, part.detail];
      this._tiles.append(make("div", parts, "tile"));
      this._parts.set(name, part);
    }
    tell(part.value, value);
    tell(part.detail, detail);
    if (values) draw(part.picture, values);
  }

  _tables({finish, reasons, healing}) {
    const told = JSON.stringify([finish, reasons, healing]);
    if (told === this._told) return;
    this._told = told;
    this._ends.replaceChildren(
      counts("How they ended", finish, () => ""),
      counts("Why nothing, or less", reasons, (code) => REASONS[code] ?? ""),
      counts("Healed at the cursor", healing, () => ""),
    );
  }
}

/** Name, value, what goes with it, and what is drawn, of each tile. */
function tilesOf({recent, shown, running = 0, waiting = 0, memory_bytes: memory}) {
  const {first_text_ms: first, total_ms: total, evaluated_tokens: evaluated} = recent;
  const {requests, first_text_ms: firsts} = recent.by_second;
  const accepted = shown.select + shown.select_line;
  return [
    ["Requests a minute", String(recent.per_minute), running + " at work, " + waiting + " waiting",
      requests.map((n) => n || null)],
    ["First text, median", milliseconds(first?.p50), spread(first, milliseconds), firsts],
    ["Whole answer, median", milliseconds(total?.p50), spread(total, milliseconds)],
    ["Tokens read per key, median", evaluated ? String(evaluated.p50) : "–", spread(evaluated, String)],
    ["From the cache", share(recent.reused_tokens, recent.prompt_tokens),
      of(recent.reused_tokens, recent.prompt_tokens, "prompt tokens")],
    ["Drafts that came true", share(recent.accepted_tokens, recent.drafted_tokens),
      of(recent.accepted_tokens, recent.drafted_tokens, "tokens")],
    ["Accepted", share(accepted, shown.view),
      of(accepted, shown.view, "shown") + ", " + shown.dismiss + " dismissed; counted here only"],
    ["Memory", memory === null ? "–" : (memory / 2 ** 20).toFixed(0) + " MiB", "of the server's process"],
  ];
}

function counts(title, counted, meaning) {
  const rows = Object.entries(counted).map(([name, n]) =>
    row([make("td", n, "number"), make("td", name, "name"), make("td", meaning(name), "told")]));
  const shown = rows.length ? table([], rows) : make("p", "Nothing yet.", "told");
  return make("section", [make("h3", title), shown]);
}

function failure(error) {
  if (error.reason === "UNREACHABLE") return ["gone", "gone: the server cannot be reached"];
  if (error.reason === "AUTH") return ["locked", "wants an API key"];
  return ["failed", "failed: " + error.message];
}

const milliseconds = (ms) =>
  ms === undefined ? "–" : ms < 10000 ? ms.toFixed(ms < 10 ? 1 : 0) + " ms" : (ms / 1000).toFixed(1) + " s";

const spread = (values, format) =>
  values ? "mean " + format(values.mean) + ", 95 % within " + format(values.p95) : "no request yet";

const share = (n, all) => all ? percent(n / all) : "–";

const of = (n, all, noun) => n + " of " + all + " " + noun;

function duration(seconds) {
  const minutes = Math.floor(seconds / 60);
  if (minutes < 1) return Math.floor(seconds) + " s";
  if (minutes < 60) return minutes + " min";
  return Math.floor(minutes / 60) + " h " + (minutes % 60) + " min";
}
