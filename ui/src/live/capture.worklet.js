// Runs in the audio thread: hands on the microphone's samples, a tenth of a second at a time.
const SIZE = 1600;

class Capture extends AudioWorkletProcessor {
  samples = new Float32Array(SIZE);
  count = 0;

  process([input]) {
    for (const sample of input[0] ?? []) {
      this.samples[this.count++] = sample;
      if (this.count === SIZE) {
        this.port.postMessage(this.samples);
        this.samples = new Float32Array(SIZE);
        this.count = 0;
      }
    }
    return true;
  }
}

registerProcessor("capture", Capture);
