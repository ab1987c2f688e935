import assert from "node:assert/strict";
import test from "node:test";

import {find, type Surroundings} from "../src/executable";

const HERE = "/home/me/project";

function at(programs: readonly string[], changes: Partial<Surroundings> = {}): Surroundings {
  return {
    setting: "",
    folders: [HERE],
    isTrusted: true,
    path: "/usr/bin:/opt/bin",
    home: "/home/me",
    isWindows: false,
    interpreter: undefined,
    isProgram: (path) => programs.includes(path),
    resolved: (path) => path,
    ...changes,
  };
}

function missing(surroundings: Surroundings): string {
  const found = find(surroundings);
  assert.ok("missing" in found, JSON.stringify(found));
  return found.missing;
}

test("the setting comes first, and nothing takes its place", () => {
  const programs = ["/usr/bin/suture", "/mine/suture", "/home/me/bin/suture"];
  assert.deepEqual(find(at(programs, {setting: "/mine/suture"})), {path: "/mine/suture"});
  assert.deepEqual(find(at(programs, {setting: "~/bin/suture"})), {path: "/home/me/bin/suture"});
  assert.match(missing(at(programs, {setting: "/gone/suture"})), /`suture\.path` names \/gone\/suture/);
  assert.match(missing(at(programs, {setting: "suture"})), /no absolute path/);
});

test("each folder of the workspace is looked into, in its order", () => {
  const setting = "${workspaceFolder}/.venv/bin/suture";
  const folders = ["/a", "/b"];
  const [first, second] = ["/a/.venv/bin/suture", "/b/.venv/bin/suture"];
  assert.deepEqual(find(at([first, second], {setting, folders})), {path: first});
  assert.deepEqual(find(at([second], {setting, folders})), {path: second});
  assert.match(missing(at(["/usr/bin/suture"], {setting, folders})), /where no program is/);
  // Without a folder it is none of the root's.
  assert.match(missing(at(["/.venv/bin/suture"], {setting, folders: []})), /where no program is/);
});

test("the PATH is searched in its order, then the user's own programs, then the workspace", () => {
  const own = `${HERE}/.venv/bin/suture`;
  const local = "/home/me/.local/bin/suture";
  const all = [own, local, "/opt/bin/suture", "/usr/bin/suture"];
  for (const expected of ["/usr/bin/suture", "/opt/bin/suture", local, own]) {
    assert.deepEqual(find(at(all.slice(0, all.indexOf(expected) + 1))), {path: expected});
  }
  const interpreter = "/envs/a/bin/python";
  assert.deepEqual(find(at(["/envs/a/bin/suture"], {interpreter})), {path: "/envs/a/bin/suture"});
});

test("E1: nothing of a workspace without trust is run, however it is named", () => {
  const own = `${HERE}/.venv/bin/suture`;
  const untrusted = {isTrusted: false};
  missing(at([own], untrusted));
  missing(at([own], {...untrusted, interpreter: `${HERE}/.venv/bin/python`}));
  missing(at([own], {...untrusted, path: `${HERE}/.venv/bin:/usr/bin`}));
  missing(at([own], {...untrusted, setting: own}));
  missing(at([own], {...untrusted, setting: "${workspaceFolder}/.venv/bin/suture"}));
  missing(at([own], {...untrusted, setting: `/usr/..${HERE}/.venv/bin/suture`}));
  // Through links: of the program, and of the folder.
  const resolved = (path: string): string => (path === "/usr/bin/suture" ? own : path);
  missing(at(["/usr/bin/suture"], {...untrusted, resolved}));
  const folders = ["/links/project"];
  const real = (path: string): string => path.replace("/links/project", HERE);
  missing(at([own], {...untrusted, folders, path: `${HERE}/.venv/bin`, resolved: real}));
  // What is the user's own is.
  assert.deepEqual(find(at(["/usr/bin/suture"], untrusted)), {path: "/usr/bin/suture"});
});

test("folders of the PATH that depend on where one is are left out", () => {
  missing(at(["bin/suture", "suture", "./suture"], {path: "bin::.:"}));
});

test("a folder whose name begins with dots is a folder like any other", () => {
  const own = `${HERE}/..bin/suture`;
  missing(at([own], {isTrusted: false, path: `${HERE}/..bin`}));
});
