// An authenticator without packages: node authenticator.js HOST PORT
"use strict";
const http = require("http");

const users = { "session=ann": "ann", "session=bob": "bob" };
const LARGE_BYTES = 100_000_000;

const userOf = (request) => users[request.headers.cookie];
const admit = (request, response, status) => {
  response.writeHead(status, { "Remote-User": userOf(request), "X-Seen": "secret" });
  response.end();
};

const answers = {
  // As Authelia, which sends browsers to its own pages.
  "/forward-auth": (request, response) => {
    const fields = request.headers;
    if (userOf(request)) return admit(request, response, 200);
    const url = `${fields["x-forwarded-proto"]}://${fields["x-forwarded-host"]}${fields["x-forwarded-uri"]}`;
    response.writeHead(fields["x-forwarded-method"] === "GET" ? 302 : 401, {
      "Location": `https://login.example/?rd=${encodeURIComponent(url)}`,
      "Set-Cookie": ["a=1; HttpOnly", "b=2"],
      "X-Client": fields["x-forwarded-for"],
    });
    response.end("log in first\n");
  },
  // As oauth2-proxy, whose decision other fields carry.
  "/oauth2/auth": (request, response) => {
    if (userOf(request)) return admit(request, response, 202);
    response.writeHead(401, {
      "WWW-Authenticate": "Bearer",
      "X-Asked": `${request.headers["x-original-method"]} ${request.headers["x-original-url"]}`,
    });
    response.end("Unauthorized\n");
  },
  "/error": (request, response) => { response.writeHead(500); response.end("broken\n"); },
  "/vanish": (request) => request.socket.destroy(),
  "/garbage": (request) => request.socket.end("This is not HTTP.\r\n\r\n"),
  "/slow": (request, response) => setTimeout(() => admit(request, response, 200), 500),
  "/large": (request, response) => {
    const part = Buffer.alloc(65536, "x");
    let left = LARGE_BYTES;
    response.writeHead(userOf(request) ? 200 : 403, { "Content-Length": LARGE_BYTES });
    const send = () => {
      while (left > 0) {
        const bytes = Math.min(left, part.length);
        left -= bytes;
        if (!response.write(part.subarray(0, bytes))) return response.once("drain", send);
      }
      response.end();
    };
    send();
  },
};

http.createServer((request, response) => {
  request.resume();
  const answer = answers[new URL(request.url, "http://localhost").pathname];
  if (answer) return answer(request, response);
  response.writeHead(404);
  response.end();
}).listen(Number(process.argv[3]), process.argv[2]);
