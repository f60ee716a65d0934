// Sound as the live connection has it: 16-bit little-endian samples, one channel.

export const INPUT_RATE = 16_000;
export const OUTPUT_RATE = 24_000;

/** Samples from -1 to 1 as 16-bit ones; what is louder is cut. */
export function encodePcm(samples: Float32Array): ArrayBuffer {
  const view = new DataView(new ArrayBuffer(samples.length * 2));
  for (const [index, sample] of samples.entries()) {
    const cut = Math.max(-1, Math.min(1, sample));
    view.setInt16(index * 2, Math.round(cut * (cut < 0 ? 0x8000 : 0x7fff)), true);
  }
  return view.buffer;
}

/** base64 to samples from -1 to 1. An odd byte at the end is left out. */
export function decodePcm(data: string): Float32Array<ArrayBuffer> {
  const bytes = Uint8Array.from(atob(data.replace(/-/g, "+").replace(/_/g, "/")), (letter) => letter.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  const samples = new Float32Array(Math.floor(bytes.length / 2));
  for (const index of samples.keys()) samples[index] = view.getInt16(index * 2, true) / 0x8000;
  return samples;
}

/** The rate of `audio/pcm;rate=24000`; null for other media types. */
export function rateOf(mimeType: string | undefined): number | null {
  const found = /^audio\/pcm(?:;.*?rate=(\d+))?/i.exec(mimeType ?? "");
  return found === null ? null : Number(found[1] ?? OUTPUT_RATE);
}

/** Loudness from 0 to 1. */
export function levelOf(samples: Float32Array): number {
  let sum = 0;
  for (const sample of samples) sum += sample * sample;
  return Math.min(1, Math.sqrt(sum / Math.max(1, samples.length)) * 4);
}

/** Start of a piece of sound: right after the one before it, or, if that has ended, with a little lead. Seconds. */
export function startOf(now: number, endOfLast: number, lead = 0.05): number {
  return endOfLast > now ? endOfLast : now + lead;
}
