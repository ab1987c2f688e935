/**
 * Where the program `suture` is. A workspace may bring a program of that name, so nothing in a
 * workspace is run before the user trusts it.
 *
 * E1  In a workspace without trust no path is answered that leads into it.
 * E2  What the setting names is answered, or nothing: no other program takes its place.
 */

import {delimiter, dirname, isAbsolute, join, normalize, relative, sep} from "node:path";

/** All that the search depends on. */
export interface Surroundings {
  /** The setting `suture.path`. */
  readonly setting: string;
  readonly folders: readonly string[];
  readonly isTrusted: boolean;
  /** The environment variable PATH. */
  readonly path: string;
  readonly home: string;
  readonly isWindows: boolean;
  /** The Python interpreter that the Python extension would run, where one is known. */
  readonly interpreter: string | undefined;
  /** Whether a path is a program. */
  isProgram(path: string): boolean;
  /** A path without links; itself where nothing is there. */
  resolved(path: string): string;
}

export type Found = {readonly path: string} | {readonly missing: string};

const ENVIRONMENTS = [".venv", "venv", "env"];

/** The program, or a sentence that says why there is none. */
export function find(at: Surroundings): Found {
  if (at.setting.trim()) return findSetting(at, at.setting.trim());
  const mayRun = (path: string) => at.isProgram(path) && (at.isTrusted || !isWithin(at, path));
  const path = [...onPath(at), ...(at.isTrusted ? inEnvironments(at) : [])].find(mayRun);
  if (path) return {path};
  const where = at.isTrusted ? "on the PATH or in this workspace's environment" : "on the PATH";
  return {missing: `There is no program \`suture\` ${where}.`};
}

function findSetting(at: Surroundings, setting: string): Found {
  const named = `\`suture.path\` names ${setting}`;
  const isOfWorkspace = setting.includes("${workspaceFolder}");
  if (isOfWorkspace && !at.isTrusted) return {missing: `${named}, in a workspace without trust.`};
  const ofHome = setting.replace(/^~(?=[/\\]|$)/, () => at.home);
  const paths = (isOfWorkspace ? at.folders : [""]).map((folder) =>
    normalize(ofHome.replaceAll("${workspaceFolder}", () => folder)),
  );
  if (!paths.every(isAbsolute)) return {missing: `${named}, which is no absolute path.`};
  const path = paths.find((one) => at.isProgram(one));
  if (!path) return {missing: `${named}, where no program is.`};
  if (!at.isTrusted && isWithin(at, path)) {
    return {missing: `${named}, in a workspace without trust.`};
  }
  return {path};
}

/** Programs are looked for in what PATH has of absolute folders: others depend on where we are. */
function onPath(at: Surroundings): string[] {
  const folders = at.path.split(delimiter).filter(isAbsolute);
  return [...folders, join(at.home, ".local", "bin")].map((folder) => join(folder, name(at)));
}

function inEnvironments(at: Surroundings): string[] {
  const bin = at.isWindows ? "Scripts" : "bin";
  const own = at.folders.flatMap((folder) =>
    ENVIRONMENTS.map((environment) => join(folder, environment, bin, name(at))),
  );
  return at.interpreter ? [...own, join(dirname(at.interpreter), name(at))] : own;
}

function name(at: Surroundings): string {
  return at.isWindows ? "suture.exe" : "suture";
}

/** Whether a path leads into the workspace, by its name or by where its links lead. */
function isWithin(at: Surroundings, path: string): boolean {
  return [path, at.resolved(path)].some((one) =>
    at.folders.some((folder) => [folder, at.resolved(folder)].some((root) => contains(root, one))),
  );
}

function contains(folder: string, path: string): boolean {
  const way = relative(folder, path);
  return way !== ".." && !way.startsWith(`..${sep}`) && !isAbsolute(way);
}
