/** The search for the program as it is in this window. */

import {accessSync, constants, realpathSync, statSync} from "node:fs";
import {homedir} from "node:os";

import {extensions, workspace, type Uri} from "vscode";

import {find, type Found} from "./executable";
import {programPath} from "./settings";

/** Looks for the program anew. */
export function findProgram(): Found {
  const folders = workspace.workspaceFolders ?? [];
  return find({
    setting: programPath(),
    folders: folders.map((folder) => folder.uri.fsPath),
    isTrusted: workspace.isTrusted,
    path: process.env["PATH"] ?? "",
    home: homedir(),
    isWindows: process.platform === "win32",
    interpreter: interpreter(folders[0]?.uri),
    isProgram,
    resolved,
  });
}

interface PythonApi {
  readonly environments?: {
    getActiveEnvironmentPath?(resource?: Uri): {readonly path?: string} | undefined;
  };
}

/** What the Python extension says where it runs already: we start it for nothing. */
function interpreter(folder: Uri | undefined): string | undefined {
  const python = extensions.getExtension<PythonApi>("ms-python.python");
  if (!python?.isActive) return undefined;
  return python.exports?.environments?.getActiveEnvironmentPath?.(folder)?.path;
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}

function resolved(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    return path;
  }
}
