// An application without packages: node application.js HOST PORT
"use strict";
const crypto = require("crypto");
const http = require("http");

const waiting = [];
let requestCount = 0;

const download = (type) => (request, response, query) => {
  const part = Buffer.alloc(65536, "0123456789abcdef");
  let left = Number(query.get("bytes"));
  if (!query.has("chunked")) response.setHeader("Content-Length", left);
  if (type) response.setHeader("Content-Type", type), response.setHeader("ETag", '"a"');
  const send = () => {
    while (left > 0) {
      const bytes = Math.min(left, part.length);
      left -= bytes;
      if (!response.write(part.subarray(0, bytes))) return response.once("drain", send);
    }
    response.end();
  };
  send();
};

const routes = {
  "/echo": (request, response) => {
    const parts = [];
    request.on("data", (part) => parts.push(part));
    request.on("end", () => {
      const content = Buffer.concat(parts);
      const { method, url, httpVersion, rawHeaders } = request;
      const fields = {};
      for (let index = 0; index < rawHeaders.length; index += 2) {
        const name = rawHeaders[index].toLowerCase();
        (fields[name] = fields[name] || []).push(rawHeaders[index + 1]);
      }
      requestCount += 1;
      const text = content.length < 1000 ? content.toString() : "";
      response.setHeader("Content-Type", "application/json");
      response.setHeader("X-Powered-By", "Node");
      response.setHeader("Set-Cookie", ["a=1", "b=2; HttpOnly"]);
      response.end(JSON.stringify({ method, url, httpVersion, fields, text, length: content.length }));
    });
  },
  // The length and the hash of the content.
  "/upload": (request, response) => {
    const hash = crypto.createHash("sha256");
    let length = 0;
    request.on("data", (part) => { hash.update(part); length += part.length; });
    request.on("end", () => response.end(`${length} ${hash.digest("hex")}`));
  },
  "/download": download(""),
  "/text": download("text/plain"),
  // One event at once, and another one after a request to /fire.
  "/events": (request, response) => {
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    response.write("data: first\n\n");
    waiting.push(() => response.end("data: second\n\n"));
  },
  "/fire": (request, response) => {
    const count = waiting.length;
    waiting.splice(0).forEach((go) => go());
    response.end(`${count}`);
  },
  "/waiting": (request, response) => response.end(`${waiting.length}`),
  "/hold": (request, response) => waiting.push(() => response.end("held")),
  "/count": (request, response) => response.end(`${requestCount}`),
  "/pid": (request, response) => response.end(`${process.pid}`),
  "/cut": (request, response) => {
    response.setHeader("Content-Length", 1000);
    response.write("the first part", () => request.socket.destroy());
  },
  "/vanish": (request) => request.socket.destroy(),
  "/garbage": (request) => request.socket.end("This is not HTTP.\r\n\r\n"),
  "/early": (request, response) => { response.writeEarlyHints({ link: "</a.css>; rel=preload" }); response.end("late"); },
};

const server = http.createServer((request, response) => {
  const url = new URL(request.url, "http://localhost");
  const route = routes[url.pathname];
  if (route) return route(request, response, url.searchParams);
  response.writeHead(404);
  response.end("the application has no such path");
});

// RFC 6455: messages of less than 126 bytes are sent back, and a close is answered.
server.on("upgrade", (request, socket, head) => {
  const accept = crypto.createHash("sha1")
    .update(request.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest("base64");
  socket.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
    `Sec-WebSocket-Accept: ${accept}\r\n\r\n`);
  let received = head;
  const take = (bytes) => {
    received = Buffer.concat([received, bytes]);
    while (received.length >= 6 && received.length >= 6 + (received[1] & 127)) {
      const length = received[1] & 127;
      const content = received.subarray(6, 6 + length).map((byte, index) => byte ^ received[2 + (index % 4)]);
      const opcode = received[0] & 15;
      received = received.subarray(6 + length);
      socket.write(Buffer.concat([Buffer.from([128 | opcode, length]), content]));
      if (opcode === 8) return socket.end();
    }
  };
  socket.on("data", take);
  socket.on("error", () => {});
  take(Buffer.alloc(0));
});

server.listen(Number(process.argv[3]), process.argv[2]);
