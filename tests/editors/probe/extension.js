// What a test asks of the workbench that keys and the page do not tell: which text a document has,
// settings, files to open, rows of the popup. It answers over HTTP on a port of the loopback, which
// it writes into the file that PROBE_PORT_FILE names.

const {renameSync, writeFileSync} = require("node:fs");
const {createServer} = require("node:http");
const vscode = require("vscode");

const {commands, window, workspace} = vscode;
const SETTLE_MS = 30_000;

let rows = [];

const ACTIONS = {
  /** The document, with its text where that is another than the caller knows. */
  async document({known}) {
    await caughtUp();
    const editor = window.activeTextEditor;
    if (!editor) return {name: "", version: 0, text: "", line: 0, before: ""};
    const {document, selection: {active}} = editor;
    const name = `${document.uri} ${document.version}`;
    const before = document.lineAt(active.line).text.slice(0, active.character);
    return {name, text: name === known ? null : document.getText(), line: active.line, before};
  },

  /** The file at a path, or a buffer without one, with this text, alone and to be typed in. */
  async open({path, text, language, tabSize}) {
    await closeAll();
    const document = path
      ? await workspace.openTextDocument(vscode.Uri.file(path))
      : await workspace.openTextDocument({content: text, language});
    const editor = await window.showTextDocument(document, {preview: false});
    // One that was open of late is read anew from the disk.
    const deadline = Date.now() + SETTLE_MS;
    while (path && document.getText() !== text && Date.now() < deadline) {
      await commands.executeCommand("workbench.action.files.revert");
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    editor.options = {tabSize};
    await commands.executeCommand("workbench.action.focusActiveEditorGroup");
    await waken();
    return document.getText() === text;
  },

  /** Put the cursor behind so many code points of a line. */
  async goTo({line, index}) {
    const editor = window.activeTextEditor;
    const text = editor.document.lineAt(line).text;
    const at = new vscode.Position(line, [...text].slice(0, index).join("").length);
    editor.selection = new vscode.Selection(at, at);
    editor.revealRange(new vscode.Range(at, at), vscode.TextEditorRevealType.InCenter);
    await caughtUp();
  },

  /** User settings; null is the default. */
  async configure({settings}) {
    for (const [key, value] of Object.entries(settings)) {
      const known = workspace.getConfiguration().inspect(key)?.globalValue;
      if (JSON.stringify(known ?? null) === JSON.stringify(value)) continue;
      const target = vscode.ConfigurationTarget.Global;
      await workspace.getConfiguration().update(key, value ?? undefined, target);
    }
    await caughtUp();
  },

  /** The words that the popup has from now on. */
  popup(wanted) {
    rows = wanted.rows;
  },

  async run({command, given}) {
    return (await commands.executeCommand(command, ...(given ?? []))) ?? null;
  },

  /** What the extension says of itself; null before it runs. The page knows whom to ask by then. */
  async status() {
    await caughtUp();
    return vscode.extensions.getExtension("suture.suture")?.exports?.status ?? null;
  },
};

/** Wait for all that happened in the page until now: what it tells comes before this answer. */
async function caughtUp() {
  await commands.executeCommand("noop");
}

/**
 * Have the editor look for inline suggestions from its first key on. Each editor of each group does
 * so when the browser has time, up to five seconds after it was made. This command has it do so at
 * once, and nothing else where nothing is shown.
 */
async function waken() {
  await commands.executeCommand("editor.action.accessibleViewAcceptInlineCompletion");
}

async function closeAll() {
  const deadline = Date.now() + SETTLE_MS;
  while (window.tabGroups.all.some(({tabs}) => tabs.length > 0) && Date.now() < deadline) {
    await commands.executeCommand("workbench.action.revertAndCloseActiveEditor");
  }
}

const completions = {
  provideCompletionItems(document, position) {
    const range = document.getWordRangeAtPosition(position) ?? new vscode.Range(position, position);
    const typed = document.getText(range);
    return rows.map((label, n) => {
      const item = new vscode.CompletionItem(label, vscode.CompletionItemKind.Text);
      return Object.assign(item, {range, filterText: typed, sortText: String(n).padStart(3, "0")});
    });
  },
};

async function answer(request, response) {
  let body = "";
  for await (const chunk of request) body += chunk;
  let told;
  try {
    const {action, ...given} = JSON.parse(body);
    told = {result: (await ACTIONS[action](given)) ?? null};
  } catch (error) {
    told = {error: String(error?.stack ?? error)};
  }
  response.setHeader("content-type", "application/json");
  // Or Node would close it some seconds later, perhaps just when the next request is on its way.
  response.setHeader("connection", "close");
  response.end(JSON.stringify(told));
}

exports.activate = (context) => {
  const server = createServer(answer).listen(0, "127.0.0.1", () => {
    const path = process.env.PROBE_PORT_FILE;
    writeFileSync(`${path}.new`, String(server.address().port));
    renameSync(`${path}.new`, path);
  });
  context.subscriptions.push(
    {dispose: () => server.close()},
    vscode.languages.registerCompletionItemProvider({pattern: "**"}, completions),
  );
};
