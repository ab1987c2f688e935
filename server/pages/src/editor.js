// The editor of the playground: one text, its language and line ends, and what is suggested in it.

import {closeBrackets, closeBracketsKeymap} from "@codemirror/autocomplete";
import {defaultKeymap, history, historyKeymap, indentWithTab} from "@codemirror/commands";
import {bracketMatching, indentOnInput, indentUnit} from "@codemirror/language";
import {Compartment, EditorState, Text} from "@codemirror/state";
import {EditorView, drawSelection, dropCursor, highlightActiveLine, keymap, lineNumbers} from "@codemirror/view";

import {highlighting} from "./languages.js";

const CURSOR = "‸";

/** A text with a mark where the cursor is: `{doc, at}`. */
export function marked(text) {
  const at = text.indexOf(CURSOR);
  return {doc: Text.of(text.replace(CURSOR, "").split("\n")), at};
}

/**
 * Types over a selection as the editor would. The browser's own way of it sets style attributes,
 * which the page's policy refuses with a complaint.
 */
const typesOver = EditorView.domEventHandlers({
  beforeinput(event, view) {
    const {state} = view;
    const {from, to, empty} = state.selection.main;
    if (event.inputType !== "insertText" || !event.data || empty || view.composing) return false;
    const typed = () => state.update(state.replaceSelection(event.data), {
      userEvent: "input.type",
      scrollIntoView: true,
    });
    const handlers = state.facet(EditorView.inputHandler);
    if (!handlers.some((handle) => handle(view, from, to, event.data, typed))) view.dispatch(typed());
    event.preventDefault();
    return true;
  },
});

const theme = EditorView.theme({
  "&": {height: "24rem", backgroundColor: "var(--panel)", border: "1px solid var(--line)", borderRadius: "6px"},
  "&.cm-focused": {outline: "2px solid var(--bar)", outlineOffset: "-1px"},
  ".cm-scroller": {fontFamily: "ui-monospace, monospace", fontSize: "14px", lineHeight: "1.5"},
  ".cm-gutters": {backgroundColor: "var(--panel)", border: "none", color: "var(--faint)"},
  ".cm-content": {caretColor: "var(--ink)"},
  ".cm-cursor": {borderLeftColor: "var(--ink)", borderLeftWidth: "2px"},
  ".cm-activeLine": {backgroundColor: "var(--active)"},
  ".cm-activeLineGutter": {backgroundColor: "var(--panel)", color: "var(--ink)"},
  "& .cm-selectionBackground, &.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground":
    {background: "var(--selection)"},
  "&.cm-focused .cm-matchingBracket": {backgroundColor: "var(--selection)"},
  ".ghost": {color: "var(--ghost)", fontStyle: "italic", whiteSpace: "pre"},
});

/** An editor in `parent`, with `extensions` before its own. */
export class Editor {
  constructor({parent, nonce, language, extensions}) {
    this._language = new Compartment();
    this.lineEnd = "\n";
    this._sample = marked(language.sample);
    const {doc, at} = this._sample;
    const all = [
      extensions,
      EditorView.cspNonce.of(nonce),
      this._language.of(language.extension),
      [lineNumbers(), highlightActiveLine(), drawSelection(), dropCursor(), history()],
      typesOver,
      [bracketMatching(), closeBrackets(), indentOnInput(), indentUnit.of("    "), highlighting, theme],
      keymap.of([...closeBracketsKeymap, ...defaultKeymap, ...historyKeymap, indentWithTab]),
      EditorView.contentAttributes.of({
        "aria-label": "Text; suggestions appear as you type",
        "aria-describedby": "keys",
        autocapitalize: "off",
      }),
    ];
    const state = EditorState.create({doc, selection: {anchor: at}, extensions: all});
    this.view = new EditorView({state, parent});
  }

  /** The texts around the cursor. They have the line ends that are chosen, the editor its own. */
  around({doc, selection} = this.view.state) {
    const at = selection.main.head;
    return {
      prefix: doc.sliceString(0, at, this.lineEnd).toWellFormed(),
      suffix: doc.sliceString(at, doc.length, this.lineEnd).toWellFormed(),
    };
  }

  /** Take another language, and its sample where the one before was not touched. */
  setLanguage(language) {
    const {doc} = this.view.state;
    const isUntouched = doc.eq(this._sample.doc) || !doc.length;
    this.view.dispatch({effects: this._language.reconfigure(language.extension)});
    this._sample = marked(language.sample);
    if (isUntouched) this.restart();
  }

  /** Begin with the language's sample again. */
  restart() {
    const {doc, at} = this._sample;
    this.view.dispatch({
      changes: {from: 0, to: this.view.state.doc.length, insert: doc},
      selection: {anchor: at},
      scrollIntoView: true,
    });
  }
}
