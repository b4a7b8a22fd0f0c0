import { WIDTH } from "./other.mjs";
const audio = document.querySelector("audio");
const event = (name) => new Promise((done) => audio.addEventListener(name, done, { once: true }));
if (audio.readyState === 0) await event("loadedmetadata");
audio.currentTime = audio.duration - 10;
await event("seeked");
const isStyled = getComputedStyle(audio).width === WIDTH;
console.log(`end: ${audio.duration} s, at ${audio.currentTime} s, ${isStyled}`);
