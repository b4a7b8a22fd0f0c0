// A WebSocket client of HTTP/2 (RFC 8441): node web_socket_http2.js URL PATH MESSAGE...
"use strict";
const http2 = require("http2");
const [url, path, ...messages] = process.argv.slice(2);

const mask = Buffer.from([1, 2, 3, 4]);
const frame = (opcode, text) => {
  const content = Buffer.from(text).map((byte, index) => byte ^ mask[index % 4]);
  return Buffer.concat([Buffer.from([128 | opcode, 128 | content.length]), mask, content]);
};

const session = http2.connect(url, { rejectUnauthorized: false, servername: "example.com" });
session.on("remoteSettings", (settings) => {
  if (!settings.enableConnectProtocol) return console.log("no extended CONNECT"), session.close();
  const stream = session.request({
    ":method": "CONNECT", ":protocol": "websocket", ":path": path, ":scheme": new URL(url).protocol.slice(0, -1),
    ":authority": "example.com", "sec-websocket-version": "13", cookie: "session=ann",
  });
  stream.on("response", (fields) => {
    process.stdout.write(`${fields[":status"]} ${fields["sec-websocket-accept"]}\n`);
    messages.forEach((message) => stream.write(frame(1, message)));
    stream.write(frame(8, ""));
  });
  stream.on("data", (bytes) => process.stdout.write(bytes));
  stream.on("end", () => { stream.end(); session.close(); });
});
session.on("error", (error) => console.log(`error ${error.code}`));
