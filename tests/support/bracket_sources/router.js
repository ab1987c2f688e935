"use strict";

const http = require("http");
const { URL } = require("url");

const routes = [];

function route(method, pattern, handler) {
  const names = [];
  const source = pattern.replace(/:([a-z]+)/g, (_, name) => {
    names.push(name);
    return "([^/]+)";
  });
  routes.push({ method, names, test: new RegExp("^" + source + "$"), handler });
}

function match(method, path) {
  for (const entry of routes) {
    if (entry.method !== method) continue;
    const found = entry.test.exec(path);
    if (found) {
      const params = {};
      entry.names.forEach((name, i) => {
        params[name] = decodeURIComponent(found[i + 1]);
      });
      return { handler: entry.handler, params };
    }
  }
  return null;
}

function send(response, status, body) {
  const text = JSON.stringify(body, null, 2);
  response.writeHead(status, {
    "Content-Type": "application/json",
    "Content-Length": Buffer.byteLength(text),
  });
  response.end(text);
}

const notes = new Map([[1, { title: "first", done: false }]]);

route("GET", "/notes/:id", (request, response, params) => {
  const note = notes.get(Number(params.id));
  if (!note) return send(response, 404, { error: `no note ${params.id}` });
  send(response, 200, note);
});

route("POST", "/notes", async (request, response) => {
  let text = "";
  for await (const chunk of request) text += chunk;
  try {
    const note = JSON.parse(text);
    const id = Math.max(0, ...notes.keys()) + 1;
    notes.set(id, { title: String(note.title || "untitled"), done: false });
    send(response, 201, { id });
  } catch (error) {
    send(response, 400, { error: "not JSON: " + error.message });
  }
});

const server = http.createServer((request, response) => {
  const url = new URL(request.url, "http://localhost");
  const found = match(request.method, url.pathname);
  if (found) {
    found.handler(request, response, found.params);
  } else {
    send(response, 404, { error: "not found" });
  }
});

if (require.main === module) {
  const port = parseInt(process.env.PORT || "8080", 10);
  server.listen(port, () => console.log(`listening on ${port}`));
}

module.exports = { route, match, server };
