// Asks for a suggestion as one types: after a pause, and never two at once.
//
// A key that goes on with what is shown asks for nothing. Any other key ends what is asked, and
// what answers it after all is not shown: the text is another one then.

import {EditorView, ViewPlugin} from "@codemirror/view";

import {clear, show, suggestionField} from "./ghost.js";
import {REASONS} from "./reasons.js";
import {editorLength, lineFeeds, restOf} from "./suggestion.js";

const MIN_PAUSE_MS = 40;
const MAX_PAUSE_MS = 200;

/** A name for this editor's requests. Not `randomUUID`, which pages have on loopback and TLS only. */
function newSession() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return "page-" + Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * The extension. `question(state)` is the body of a request, `tell(message)` says what came of it:
 * `{state: "idle" | "asking" | "shown" | "nothing" | "failed", ...}`; `report(type, id, query)` hears
 * of what was shown.
 */
export function completing({server, question, tell, report}) {
  const session = newSession();
  let seq = 0;
  let pauseMs = MIN_PAUSE_MS;

  class Completing {
    constructor(view) {
      this.view = view;
      this.timer = 0;
      this.asking = null;
    }

    update({state, startState, docChanged, transactions}) {
      const isMoved = docChanged || !state.selection.eq(startState.selection);
      const isCleared = transactions.some(({effects}) => effects.some((one) => one.is(clear)));
      if (!isMoved && !isCleared) return;
      if (state.field(suggestionField)) return; // it goes on
      this.stop();
      tell({state: "idle"});
      if (docChanged && state.doc.length) this.soon(pauseMs); // an empty text says nothing
    }

    destroy() {
      this.stop();
    }

    stop() {
      clearTimeout(this.timer);
      this.asking?.controller.abort();
      this.asking = null;
    }

    soon(ms) {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.ask(), ms);
    }

    /** Ask now, whatever was asked before. */
    async ask() {
      const {state} = this.view;
      const {main, ranges} = state.selection;
      if (this.view.composing || ranges.length > 1 || !main.empty) return;
      this.stop();
      const asked = {
        id: ++seq,
        doc: state.doc,
        at: main.head,
        controller: new AbortController(),
        began: performance.now(),
        text: "",
        firstMs: null,
      };
      this.asking = asked;
      tell({state: "asking"});
      try {
        await this.listen(asked, {...question(state), session, seq: asked.id});
      } catch (error) {
        this.failed(asked, error);
      }
    }

    async listen(asked, body) {
      const events = server.events("infill", JSON.stringify(body), asked.controller.signal);
      for await (const event of events) {
        if (this.asking !== asked) return;
        asked.text += event.content;
        if (event.stop) this.end(asked, event, body.input_suffix);
        else this.grow(asked, asked.text, 0, true);
      }
      if (this.asking === asked) throw new Error("the stream broke off");
    }

    grow(asked, text, nReplaced, growing) {
      const {state} = this.view;
      const isShown = state.field(suggestionField)?.id === asked.id;
      // Whatever moved the cursor ended what was asked; this is for what nobody thought of.
      if (!isShown && (!state.doc.eq(asked.doc) || state.selection.main.head !== asked.at)) return;
      if (asked.firstMs === null && text) {
        asked.firstMs = performance.now() - asked.began;
        pauseMs = Math.min(MAX_PAUSE_MS, Math.max(MIN_PAUSE_MS, asked.firstMs / 4));
        report("view", asked.id);
      }
      const suggestion = {id: asked.id, from: asked.at, text: lineFeeds(text), nReplaced, growing};
      if (text || isShown) this.view.dispatch({effects: show.of(suggestion)});
    }

    end(asked, event, suffix) {
      const {suture} = event;
      const {text, delete_after: n} = suture.edit;
      const hasText = Boolean(text || n);
      const wasShown = this.view.state.field(suggestionField)?.id === asked.id;
      if (hasText || wasShown) this.grow(asked, text, editorLength(suffix, n), false);
      this.asking = null;
      const suggestion = this.view.state.field(suggestionField);
      if (suggestion?.id === asked.id) {
        const totalMs = performance.now() - asked.began;
        tell({state: "shown", suture, firstMs: asked.firstMs, totalMs, text: restOf(suggestion)});
      } else if (wasShown) {
        this.soon(0); // all of it was typed while it came
      } else {
        // What an earlier question brought is no answer to this one.
        if (suggestion) this.view.dispatch({effects: clear.of(null)});
        tell({state: "nothing", ...why(suture)});
      }
    }

    failed(asked, error) {
      if (this.asking !== asked || error.name === "AbortError") return;
      this.asking = null;
      const reason = error.reason ?? "ERROR";
      tell({state: "failed", reason, why: error.reason ? REASONS[reason] : error.message});
      if (error.retryS) this.soon(1000 * error.retryS);
    }
  }

  const plugin = ViewPlugin.fromClass(Completing);
  return {
    extension: [plugin, leavesCompositionsAlone(plugin)],
    ask: (view) => void view.plugin(plugin).ask(),
  };
}

/** Nothing is shown beside what an input method composes, nor asked before it is done. */
function leavesCompositionsAlone(plugin) {
  return EditorView.domEventHandlers({
    compositionstart(event, view) {
      view.plugin(plugin).stop();
      if (view.state.field(suggestionField)) view.dispatch({effects: clear.of(null)});
    },
    compositionend(event, view) {
      view.plugin(plugin).soon(MIN_PAUSE_MS);
    },
  });
}

/** Why an answer has no text. */
function why({reason, finish}) {
  const code = reason ?? "EMPTY";
  return {reason: code, why: REASONS[code] ?? "It ended with " + finish + "."};
}
