// Builds the page into built/: `make pages`. The result is committed, so that nobody needs npm to
// install or to test Suture.

import {createHash} from "node:crypto";
import {copyFileSync, readFileSync, readdirSync, writeFileSync} from "node:fs";
import {dirname, join} from "node:path";
import {fileURLToPath} from "node:url";

import {build} from "esbuild";

const HERE = dirname(fileURLToPath(import.meta.url));
const SOURCES = ["build.mjs", "package-lock.json", "package.json",
  ...readdirSync(join(HERE, "src")).map((name) => "src/" + name)].sort();
const BUILT = ["icon.svg", "licences.txt", "page.css", "page.html", "page.js"];

const sha256 = (data) => createHash("sha256").update(data).digest("hex");
const read = (path) => readFileSync(join(HERE, path));

/** A line for each file: its digest and its name. */
const digests = (paths) => paths.map((path) => sha256(read(path)) + "  " + path + "\n").join("");

/** The licences of all packages that code was taken from, each text once. */
function licences(inputs) {
  const names = new Set();
  for (const path of Object.keys(inputs)) {
    const found = /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path);
    if (found) names.add(found[1]);
  }
  const byText = new Map();
  for (const name of [...names].sort()) {
    const {version, license} = JSON.parse(read(`node_modules/${name}/package.json`));
    const text = read(`node_modules/${name}/LICENSE`).toString().trim();
    byText.set(text, [...(byText.get(text) ?? []), `${name} ${version} (${license})`]);
  }
  const parts = [...byText].map(([text, packages]) => packages.join("\n") + "\n\n" + text + "\n");
  return "The page has code of these packages in it.\n\n" + parts.join("\n" + "-".repeat(72) + "\n\n");
}

const result = await build({
  absWorkingDir: HERE,
  entryPoints: ["src/page.js", "src/page.css"],
  outdir: "built",
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  metafile: true,
  banner: {js: "/*! Licences of the packages in it: licences.txt */"},
  logLevel: "warning",
});
copyFileSync(join(HERE, "src/page.html"), join(HERE, "built/page.html"));
copyFileSync(join(HERE, "src/icon.svg"), join(HERE, "built/icon.svg"));
writeFileSync(join(HERE, "built/licences.txt"), licences(result.metafile.inputs));
writeFileSync(
  join(HERE, "built/digests.txt"),
  digests(SOURCES) + digests(BUILT.map((name) => "built/" + name)),
);
