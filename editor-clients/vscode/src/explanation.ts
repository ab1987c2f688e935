/** What is known of the last request, as a text that one reads. */

import type {Explained, Report} from "./protocol";

const SOURCES: Readonly<Record<Explained["source"], string>> = {
  "": "Nobody was asked.",
  server: "It was asked of the server.",
  typed: "You typed into what was suggested before: nobody was asked.",
  ahead: "It had been asked for ahead, while you read the suggestion before it.",
};
const LEVELS: Readonly<Record<string, string>> = {
  exact: "drawn from the model's own distribution, given these bytes",
  exact_seq: "drawn from the model's own distribution, one way to write these bytes after another",
  recursive: "token by token, each constrained to these bytes; not exact",
  canonical: "as the tokenizer itself would write them",
  hygiene: "kept as they were; nothing was given back",
  none: "not at all",
};
const BAR = 40;

/** The explanation, in Markdown. */
export function explanation(explained: Explained): string {
  const {suggestion, report} = explained;
  const parts = [
    suggestion ? "# What was suggested" : "# Why nothing was suggested",
    suggestion ? quoted(suggestion.text) : because(explained),
    suggestion && suggestion.delete_after > 0
      ? `It takes the place of ${many(suggestion.delete_after, "character")} behind the cursor.`
      : "",
    suggestion && explained.reason ? `There is less of it than could be: ${because(explained)}` : "",
    "## How",
    `${SOURCES[explained.source] ?? explained.source} It took ${explained.took_ms} ms.`,
    ...reported(report),
    otherFiles(explained),
    "## The server",
    statusOf(explained),
  ];
  if (Object.keys(report).length > 0) parts.push("## All that it reported", json(report));
  return parts.filter(Boolean).join("\n\n") + "\n";
}

function reported(report: Report): string[] {
  return [healing(report), prompt(report), drafts(report), rules(report), confidence(report)];
}

function because({reason, message}: Explained): string {
  const words = message || "no more is known";
  return reason ? `\`${reason}\`: ${words}.` : `${words.charAt(0).toUpperCase()}${words.slice(1)}.`;
}

function healing({healing}: Report): string {
  if (!healing) return "";
  const how = LEVELS[healing.level] ?? healing.level;
  const what = healing.pending
    ? `\`${shown(healing.pending)}\` at the cursor (${many(healing.dropped_tokens, "token")}) was given back`
    : "Nothing at the cursor had to be given back";
  return `**Healing** (\`${healing.level}\`). ${what}${healing.pending ? `: ${how}.` : "."}`;
}

/** What of the prompt was read anew is what takes the time. */
function prompt({prompt}: Report): string {
  if (!prompt) return "";
  const share = prompt.tokens > 0 ? prompt.reused / prompt.tokens : 0;
  const n = Math.round(BAR * share);
  const lines = [
    `**Prompt** (layout \`${prompt.layout}\`). ${many(prompt.tokens, "token")}, ` +
      `${prompt.reused} of them from the cache, ${prompt.evaluated} evaluated.`,
    `    [${"=".repeat(n)}${"#".repeat(BAR - n)}]  = from the cache, # evaluated`,
    prompt.truncated ? "Text far from the cursor was left out: there was no room for it." : "",
    prompt.excluded > 0
      ? `Left out of other files, for they hold secrets: ${many(prompt.excluded, "part")}.`
      : "",
  ];
  return lines.filter(Boolean).join("\n\n");
}

function otherFiles({files}: Explained): string {
  if (files.length === 0) return "";
  return `**Other files** that the model was shown parts of: ${files.map((file) => `\`${shown(file)}\``).join(", ")}.`;
}

function drafts({draft}: Report): string {
  if (!draft || draft.proposed === 0) return "";
  return `**Drafts.** ${draft.accepted} of ${many(draft.proposed, "drafted token")} came true.`;
}

function rules({rules}: Report): string {
  if (!rules || rules.length === 0) return "";
  return `**Shaping.** Done to the model's text: ${rules.map((rule) => `\`${rule}\``).join(", ")}.`;
}

function confidence({confidence}: Report): string {
  if (confidence === undefined || confidence === null) return "";
  return `**Confidence.** The tokens are probable by ${(100 * confidence).toFixed(0)} % on average.`;
}

function statusOf({status}: Explained): string {
  const {kind, reason, message} = status;
  if (!reason && !message) return "Nothing is wrong with it.";
  return [`${kind}:`, reason ? `\`${reason}\`` : "", message].filter(Boolean).join(" ");
}

/** A text as a block of code, with a fence that is longer than any in it. */
function quoted(text: string): string {
  const longest = Math.max(2, ...(text.match(/`+/g) ?? []).map((run) => run.length));
  const fence = "`".repeat(longest + 1);
  return `${fence}\n${text.replace(/\n$/, "")}\n${fence}`;
}

function json(report: Report): string {
  return "```json\n" + JSON.stringify(report, null, 2).replaceAll("```", "`\\u0060`") + "\n```";
}

/** A piece of text within a line. */
function shown(text: string): string {
  return text.replaceAll("`", "'").replaceAll("\r", "␍").replaceAll("\n", "␊").replaceAll("\t", "␉");
}

function many(n: number, noun: string): string {
  return `${n} ${noun}${n === 1 ? "" : "s"}`;
}
