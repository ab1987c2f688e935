// The languages of the playground: how each is highlighted, and what the server is told of it.

import {HighlightStyle, Language, StreamLanguage, defineLanguageFacet, syntaxHighlighting} from "@codemirror/language";
import {c, cpp, csharp, java} from "@codemirror/legacy-modes/mode/clike";
import {go} from "@codemirror/legacy-modes/mode/go";
import {javascript, typescript} from "@codemirror/legacy-modes/mode/javascript";
import {python} from "@codemirror/legacy-modes/mode/python";
import {ruby} from "@codemirror/legacy-modes/mode/ruby";
import {rust} from "@codemirror/legacy-modes/mode/rust";
import {shell} from "@codemirror/legacy-modes/mode/shell";
import {tags} from "@lezer/highlight";
import {parser} from "@lezer/markdown";

import {SAMPLES} from "./samples.js";

const stream = (mode) => StreamLanguage.define(mode);
const markdown = new Language(defineLanguageFacet(), parser, [], "markdown");

// By the names that editors have for them.
export const LANGUAGES = [
  ["python", "Python", "py", stream(python)],
  ["javascript", "JavaScript", "js", stream(javascript)],
  ["typescript", "TypeScript", "ts", stream(typescript)],
  ["go", "Go", "go", stream(go)],
  ["rust", "Rust", "rs", stream(rust)],
  ["c", "C", "c", stream(c)],
  ["cpp", "C++", "cpp", stream(cpp)],
  ["java", "Java", "java", stream(java)],
  ["csharp", "C#", "cs", stream(csharp)],
  ["ruby", "Ruby", "rb", stream(ruby)],
  ["shellscript", "Shell", "sh", stream(shell)],
  ["markdown", "Markdown", "md", markdown],
  ["plaintext", "Plain text", "txt", []],
].map(([id, name, ending, extension]) =>
  ({id, name, path: "playground." + ending, extension, sample: SAMPLES[id] ?? "‸"}));

export const highlighting = syntaxHighlighting(HighlightStyle.define([
  {tag: [tags.keyword, tags.modifier, tags.operatorKeyword], color: "var(--keyword)"},
  {tag: [tags.string, tags.special(tags.string), tags.regexp], color: "var(--string)"},
  {tag: [tags.number, tags.bool, tags.null, tags.atom], color: "var(--number)"},
  {tag: tags.comment, color: "var(--faint)"},
  {tag: [tags.typeName, tags.className, tags.standard(tags.name)], color: "var(--type)"},
  {tag: [tags.definition(tags.name), tags.function(tags.name)], color: "var(--name)"},
  {tag: [tags.heading, tags.strong], fontWeight: "bold"},
  {tag: tags.emphasis, fontStyle: "italic"},
  {tag: [tags.link, tags.url], color: "var(--bar)"},
  {tag: tags.monospace, color: "var(--string)"},
]));
