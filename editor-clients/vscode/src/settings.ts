/** The section `suture` of the settings. The server is told of all of it; this is what we need. */

import {ConfigurationTarget, workspace, type WorkspaceConfiguration} from "vscode";

export const SECTION = "suture";
/** Languages that get no suggestions unless the user names them, as `suture lsp` has it. */
export const OFF_UNLESS_NAMED: readonly string[] = [
  "git-commit", "gitcommit", "scminput", "log", "search-result", "output",
];

export function programPath(): string {
  return section().get<string>("path", "");
}

/** All options, as the server takes them. Of a workspace without trust it reads no files. */
export function allOptions(): Record<string, unknown> {
  const {context, ...options} = workspace.getConfiguration().get<Record<string, object>>(SECTION, {});
  return {...options, context: workspace.isTrusted ? context : {...context, neighbours: false}};
}

export function isOn(): boolean {
  return section().get<boolean>("enable", true);
}

export function isLanguageOn(language: string): boolean {
  const languages = section().get<Record<string, boolean>>("languages", {});
  return languages[language] ?? !OFF_UNLESS_NAMED.includes(language);
}

export async function toggleEverything(): Promise<void> {
  await update("enable", !isOn());
}

export async function toggleLanguage(language: string): Promise<void> {
  const key = "languages";
  const wanted = !isLanguageOn(language);
  const target = targetOf(section(), key);
  const inspected = section().inspect<Record<string, boolean>>(key);
  const own = target === ConfigurationTarget.Workspace ? inspected?.workspaceValue : inspected?.globalValue;
  await section().update(key, {...own, [language]: wanted}, target);
}

export async function choosePath(path: string): Promise<void> {
  await update("path", path);
}

async function update(key: string, value: unknown): Promise<void> {
  await section().update(key, value, targetOf(section(), key));
}

/** Where a change has effect: the user's settings, unless the workspace sets it already. */
function targetOf(options: WorkspaceConfiguration, key: string): ConfigurationTarget {
  const isOfWorkspace = options.inspect(key)?.workspaceValue !== undefined;
  return isOfWorkspace ? ConfigurationTarget.Workspace : ConfigurationTarget.Global;
}

function section(): WorkspaceConfiguration {
  return workspace.getConfiguration(SECTION);
}
