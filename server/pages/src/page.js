// The page: numbers, the playground and the explanation of its cursor. `/explain` is the same one
// without the numbers.

import {EditorView, keymap} from "@codemirror/view";

import {completing} from "./completing.js";
import {byId, count, make, tell} from "./dom.js";
import {Editor} from "./editor.js";
import {Explaining} from "./explain.js";
import {ghostCommands, ghostText, suggestionField} from "./ghost.js";
import {LANGUAGES} from "./languages.js";
import {Numbers} from "./numbers.js";
import {Server} from "./server.js";
import {restOf} from "./suggestion.js";

const isExplaining = location.pathname.endsWith("/explain");
const server = new Server(() => {
  byId("key_row").hidden = false;
});
const language = () => LANGUAGES[byId("language").selectedIndex];
byId("language").append(...LANGUAGES.map(({name}) => make("option", name)));

/** What is asked at the cursor, by both routes. */
function question(state) {
  const {prefix, suffix} = editor.around(state);
  const giveBack = byId("give_back").value;
  return {
    input_prefix: prefix,
    input_suffix: byId("open_end").checked ? "" : suffix,
    path: language().path,
    language: language().id,
    healing: byId("healing").value,
    give_back: giveBack === "stable" ? giveBack : Number(giveBack),
    layout: byId("layout").value,
    fim_boundary: byId("fim_boundary").value,
  };
}

// What a user does with a suggestion is counted, as Tabby's clients tell it: the first thing, and
// no text goes with it.
const settled = new Set();

function report(type, id, query = "") {
  server.report("v1/events" + query, {type, completion_id: "page-" + id, choice_index: 0});
}

function onTaken(kind, id) {
  if (kind === "word" || settled.has(id)) return;
  settled.add(id);
  if (kind === "dismiss") report("dismiss", id);
  else report("select", id, kind === "line" ? "?select_kind=line" : "");
}

const SAID = {
  idle: () => [],
  asking: () => ["…"],
  nothing: ({reason, why}) => [reason + ": " + why],
  failed: ({reason, why}) => [reason + ": " + why],
  shown: ({suture, firstMs, totalMs, text}) => [
    "Suggestion: first text " + firstMs.toFixed(0) + " ms, whole " + totalMs.toFixed(0) + " ms; "
      + count(suture.prompt.evaluated, "token") + " read, " + suture.prompt.reused
      + " from the cache; healing " + suture.healing.level + ".",
    // Who sees it sees it in the editor.
    make("span", text, "unseen"),
  ],
};

function onCompletion(message) {
  byId("message").className = message.state;
  byId("message").replaceChildren(...SAID[message.state](message));
  // One after the other: they share the engine.
  if (message.state === "asking") explaining.stop();
  else explain();
}

const commands = ghostCommands(onTaken);
const asker = completing({
  server,
  question: (state) => ({
    ...question(state),
    temperature: 0,
    n_predict: Number(byId("length").value),
    stream: true,
  }),
  tell: onCompletion,
  report,
});
const explaining = new Explaining({
  server,
  question: () => question(editor.view.state),
  answer: byId("answer"),
  tell(text, isBad) {
    tell(byId("explaining"), text);
    byId("explaining").className = isBad ? "weak" : "told";
  },
});

function explain() {
  if (byId("wants_explanation").checked) explaining.soon();
}

const BUTTONS = {take_all: commands.all, take_word: commands.word, take_line: commands.line,
  dismiss: commands.dismiss, ask: asker.ask};

const editor = new Editor({
  parent: byId("editor"),
  nonce: byId("style").nonce,
  language: language(),
  extensions: [
    ghostText(commands),
    asker.extension,
    keymap.of([{key: "Alt-\\", run: (view) => asker.ask(view) ?? true}]),
    EditorView.updateListener.of(({state, selectionSet, docChanged}) => {
      const suggestion = state.field(suggestionField);
      const isShown = Boolean(suggestion && restOf(suggestion));
      for (const id of ["take_all", "take_word", "take_line", "dismiss"]) byId(id).disabled = !isShown;
      if (selectionSet || docChanged) explain();
    }),
  ],
});

for (const [id, run] of Object.entries(BUTTONS)) {
  byId(id).addEventListener("click", () => {
    run(editor.view);
    editor.view.focus();
  });
}
byId("restart").addEventListener("click", () => {
  editor.restart();
  editor.view.focus();
});
byId("language").addEventListener("change", () => editor.setLanguage(language()));
byId("line_ends").addEventListener("change", () => {
  editor.lineEnd = byId("line_ends").value === "crlf" ? "\r\n" : "\n";
});
for (const id of ["healing", "give_back", "layout", "fim_boundary", "open_end", "length", "line_ends"]) {
  byId(id).addEventListener("change", () => asker.ask(editor.view));
}
byId("wants_explanation").addEventListener("change", ({target}) => {
  byId("explanation").hidden = !target.checked;
  if (target.checked) explaining.again();
  else explaining.stop();
});
for (const key of document.querySelectorAll(".mod")) {
  key.prepend(/Mac|iPhone|iPad/.test(navigator.platform) ? "⌘ " : "Ctrl ");
}

const numbers = new Numbers({server, tiles: byId("tiles"), ends: byId("ends")});

function begin() {
  if (!isExplaining) numbers.begin();
  if (isExplaining) explaining.again();
}

byId("key_row").addEventListener("submit", (event) => {
  event.preventDefault();
  server.key = byId("key").value.trim();
  byId("key_row").hidden = true;
  begin();
  editor.view.focus();
});
byId(isExplaining ? "to_explain" : "to_status").setAttribute("aria-current", "page");
byId("numbers").hidden = isExplaining;
byId("about").hidden = isExplaining;
document.body.dataset.page = isExplaining ? "explain" : "status";
begin();
