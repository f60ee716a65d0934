import { expect, test } from "vitest";
import { decodePcm, encodePcm, levelOf, rateOf, startOf } from "./pcm";

function base64(buffer: ArrayBuffer): string {
  return btoa(String.fromCharCode(...new Uint8Array(buffer)));
}

test("samples survive both ways", () => {
  const samples = new Float32Array([0, 0.5, -0.5, 1, -1]);
  const back = decodePcm(base64(encodePcm(samples)));
  expect([...back].map((one) => Math.round(one * 1000) / 1000)).toEqual([0, 0.5, -0.5, 1, -1]);
});

test("what is too loud is cut, and an odd byte left out", () => {
  expect([...new Int16Array(encodePcm(new Float32Array([2, -2])))]).toEqual([32767, -32768]);
  expect(decodePcm(btoa("\x00\x40\x01")).length).toBe(1);
  expect(decodePcm("__8=")[0]).toBeCloseTo(-1 / 0x8000);
});

test("rates of media types", () => {
  expect([rateOf("audio/pcm;rate=16000"), rateOf("audio/pcm"), rateOf("image/png"), rateOf(undefined)]).toEqual([16000, 24000, null, null]);
});

test("loudness", () => {
  expect(levelOf(new Float32Array(8))).toBe(0);
  expect(levelOf(new Float32Array(8).fill(1))).toBe(1);
  expect(levelOf(new Float32Array(0))).toBe(0);
});

test("pieces follow each other without a gap, and start anew after a silence", () => {
  expect(startOf(1, 1.5)).toBe(1.5);
  expect(startOf(2, 1.5)).toBeCloseTo(2.05);
});
