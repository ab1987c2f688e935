// Bundles the extension into dist/, with the licences of what is in it.

import {mkdirSync, readFileSync, readdirSync, writeFileSync} from "node:fs";
import {dirname, join} from "node:path";
import {fileURLToPath} from "node:url";

import {build} from "esbuild";

const HERE = dirname(fileURLToPath(import.meta.url));

/** The licences of all packages that code was taken from, each text once. */
function licences(inputs) {
  const folders = new Set();
  for (const path of Object.keys(inputs)) {
    const found = /^.*node_modules\/(?:@[^/]+\/)?[^/]+/.exec(path);
    if (found) folders.add(found[0]);
  }
  const byText = new Map();
  for (const folder of [...folders].sort()) {
    const {name, version, license} = JSON.parse(read(join(folder, "package.json")));
    const text = read(join(folder, licenceOf(folder))).trim();
    byText.set(text, [...(byText.get(text) ?? []), `${name} ${version} (${license})`]);
  }
  const parts = [...byText].map(([text, packages]) => packages.join("\n") + "\n\n" + text + "\n");
  return "The extension has code of these packages in it.\n\n" + parts.join("\n" + "-".repeat(72) + "\n\n");
}

function licenceOf(folder) {
  const found = readdirSync(join(HERE, folder)).find((name) => /^licen[cs]e/i.test(name));
  if (!found) throw new Error(`${folder} has no licence`);
  return found;
}

function read(path) {
  return readFileSync(join(HERE, path), "utf8");
}

const result = await build({
  absWorkingDir: HERE,
  entryPoints: ["src/extension.ts"],
  outfile: "dist/extension.js",
  bundle: true,
  minify: true,
  platform: "node",
  format: "cjs",
  target: "node20",
  external: ["vscode"],
  legalComments: "none",
  metafile: true,
  logLevel: "warning",
});
mkdirSync(join(HERE, "dist"), {recursive: true});
writeFileSync(join(HERE, "dist/licences.txt"), licences(result.metafile.inputs));
