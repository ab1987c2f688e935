// Ghost text: a suggestion in the state of an editor, drawn where it would stand, and its keys.

import {isolateHistory} from "@codemirror/commands";
import {Prec, StateEffect, StateField, Text} from "@codemirror/state";
import {Decoration, EditorView, WidgetType, keymap} from "@codemirror/view";

import {followed, lineLength, parts, restOf, taking, wordLength} from "./suggestion.js";

/** Shows `{id, from, text, nReplaced, growing}`: more of the suggestion `id`, or another one. */
export const show = StateEffect.define();
/** Takes the suggestion away. */
export const clear = StateEffect.define();

/** The suggestion that is shown, or null. */
export const suggestionField = StateField.define({
  create: () => null,
  update(suggestion, transaction) {
    if (suggestion && (transaction.docChanged || transaction.selection)) {
      suggestion = follow(suggestion, transaction);
    }
    for (const effect of transaction.effects) {
      if (effect.is(clear)) suggestion = null;
      if (effect.is(show)) suggestion = shown(suggestion, effect.value, transaction.state);
    }
    return suggestion;
  },
  provide: (field) => EditorView.decorations.from(field, decorations),
});

/** The suggestion after a change of the text or the selection; null if that ends it. */
function follow(suggestion, {changes, newDoc, newSelection}) {
  const {from} = suggestion;
  let isInside = newSelection.ranges.length === 1 && newSelection.main.empty;
  changes.iterChangedRanges((start, end) => {
    isInside = isInside && start >= from && end <= suggestion.to;
  });
  const at = newSelection.main.head;
  const to = changes.mapPos(suggestion.to, 1);
  if (!isInside || at < from || at > to) return null;
  const next = followed(suggestion, newDoc.sliceString(from, at), newDoc.sliceString(at, to));
  return next && {...next, to};
}

function shown(suggestion, more, state) {
  const at = state.selection.main.head;
  const known = suggestion?.id === more.id ? suggestion : {from: more.from, to: more.from};
  const to = Math.min(known.to + more.nReplaced, state.doc.length);
  const grown = {
    id: more.id,
    from: known.from,
    to,
    text: more.text,
    typed: state.doc.sliceString(known.from, at),
    behind: state.doc.sliceString(at, to),
    growing: more.growing,
  };
  return grown.text.startsWith(grown.typed) && (restOf(grown) || grown.growing) ? grown : null;
}

class Ghost extends WidgetType {
  constructor(text) {
    super();
    this.text = text;
  }

  eq(other) {
    return other.text === this.text;
  }

  get lineBreaks() {
    return this.text.split("\n").length - 1;
  }

  toDOM() {
    const element = document.createElement("span");
    element.className = "ghost";
    element.setAttribute("aria-hidden", "true"); // the line under the editor reads it
    element.textContent = this.text;
    return element;
  }

  ignoreEvent() {
    return false;
  }
}

function decorations(suggestion) {
  if (!suggestion || !restOf(suggestion)) return Decoration.none;
  const {from, to, typed} = suggestion;
  const at = from + typed.length;
  const drawn = parts(suggestion);
  if (drawn === null) {
    const widget = new Ghost(restOf(suggestion));
    return Decoration.set(Decoration.replace({widget}).range(at, to));
  }
  return Decoration.set(drawn.map(({over, text}) =>
    Decoration.widget({widget: new Ghost(text), side: 1}).range(at + over)));
}

/** A command that takes as much of the rest as `length` says of it, and tells `onTaken`. */
function take(length, kind, onTaken) {
  return (view) => {
    const suggestion = view.state.field(suggestionField);
    const rest = suggestion && restOf(suggestion);
    if (!rest) return false;
    const {over, text} = taking(suggestion, length(rest));
    const at = view.state.selection.main.head;
    view.dispatch({
      // As lines: a text would be split at the document's own line ends.
      changes: {from: at, to: at + over, insert: Text.of(text.split("\n"))},
      selection: {anchor: at + text.length},
      annotations: isolateHistory.of("full"),
      userEvent: "input.complete",
      scrollIntoView: true,
    });
    onTaken(text.length === rest.length ? "all" : kind, suggestion.id);
    return true;
  };
}

/** The commands: `all`, `word` and `line` take, `dismiss` takes away; `on` hears of which id. */
export function ghostCommands(on) {
  return {
    all: take((rest) => rest.length, "all", on),
    word: take(wordLength, "word", on),
    line: take(lineLength, "line", on),
    dismiss(view) {
      const suggestion = view.state.field(suggestionField);
      if (!suggestion || !restOf(suggestion)) return false;
      view.dispatch({effects: clear.of(null)});
      on("dismiss", suggestion.id);
      return true;
    },
  };
}

/** The field and its keys, which are other keys' own where nothing is shown. */
export function ghostText(commands) {
  return [
    suggestionField,
    Prec.highest(keymap.of([
      {key: "Tab", run: commands.all},
      {key: "Mod-ArrowRight", run: commands.word},
      {key: "Mod-ArrowDown", run: commands.line},
      {key: "Escape", run: commands.dismiss},
    ])),
  ];
}
