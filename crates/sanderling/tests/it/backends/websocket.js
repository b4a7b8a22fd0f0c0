// A WebSocket client over TLS: node websocket.js HOST PORT NAME PATH MESSAGE...
"use strict";
const tls = require("tls");
const [host, port, servername, path, ...messages] = process.argv.slice(2);

const mask = Buffer.from([1, 2, 3, 4]);
const frame = (opcode, text) => {
  const content = Buffer.from(text).map((byte, index) => byte ^ mask[index % 4]);
  return Buffer.concat([Buffer.from([128 | opcode, 128 | content.length]), mask, content]);
};

const socket = tls.connect({ host, port, servername, rejectUnauthorized: false, ALPNProtocols: ["http/1.1"] }, () => {
  socket.write(`GET ${path} HTTP/1.1\r\nHost: ${servername}\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n` +
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n");
  messages.forEach((message) => socket.write(frame(1, message)));
  socket.write(frame(8, ""));
});
socket.on("data", (bytes) => process.stdout.write(bytes));
socket.on("end", () => socket.end());
