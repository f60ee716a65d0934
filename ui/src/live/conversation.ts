// A live conversation of the page: microphone and camera to the server, the model's voice to the loudspeaker.
import { type Content, type Event, type GreenroomError, LiveConnection } from "greenroom-client";
import { SERVER, type SessionPlace } from "../api";
import captureUrl from "./capture.worklet.js?url";
import { INPUT_RATE, OUTPUT_RATE, decodePcm, encodePcm, levelOf, rateOf, startOf } from "./pcm";

export type Phase = "connecting" | "live" | "reconnecting" | "ended";
/** level: of the microphone, from 0 to 1. camera: the picture that is sent, where it is on. */
export type LiveState = {
  readonly phase: Phase;
  readonly error: string | null;
  readonly isMuted: boolean;
  readonly isSpeaking: boolean;
  readonly level: number;
  readonly camera: MediaStream | null;
};

const FRAME_MS = 1_000;
const MOST_WIDTH = 768;
const RETRIES = 5;
const RETRY_MS = 1_000;
export const START: LiveState = { phase: "connecting", error: null, isMuted: false, isSpeaking: false, level: 0, camera: null };

export class Conversation {
  private state = START;
  private connection: LiveConnection | null = null;
  private microphone: MediaStream | null = null;
  private input: AudioContext | null = null;
  private readonly player = new Player((isSpeaking) => this.set({ isSpeaking }));
  private frames: ReturnType<typeof setInterval> | null = null;
  private tries = 0;
  private isStopped = false;

  constructor(
    private readonly place: SessionPlace,
    private readonly show: (state: LiveState) => void,
  ) {}

  async start(): Promise<void> {
    try {
      this.microphone = await navigator.mediaDevices.getUserMedia({ audio: { echoCancellation: true, noiseSuppression: true } });
      if (this.isStopped) return this.release();
      this.input = new AudioContext({ sampleRate: INPUT_RATE });
      await this.input.audioWorklet.addModule(captureUrl);
      const capture = new AudioWorkletNode(this.input, "capture", { numberOfOutputs: 0 });
      capture.port.onmessage = (message: MessageEvent<Float32Array>) => this.hear(message.data);
      this.input.createMediaStreamSource(this.microphone).connect(capture);
      this.connect();
    } catch (error) {
      this.end(reasonOf(error, "microphone"));
    }
  }

  send(content: Content): void {
    this.connection?.sendContent(content);
  }

  mute(isMuted: boolean): void {
    for (const track of this.microphone?.getAudioTracks() ?? []) track.enabled = !isMuted;
    if (isMuted) this.connection?.endAudio();
    this.set({ isMuted, level: 0 });
  }

  async switchCamera(isOn: boolean): Promise<void> {
    stopTracks(this.state.camera);
    if (this.frames !== null) clearInterval(this.frames);
    this.frames = null;
    if (!isOn) return this.set({ camera: null });
    try {
      const camera = await navigator.mediaDevices.getUserMedia({ video: { width: { ideal: MOST_WIDTH } } });
      if (this.isStopped) return stopTracks(camera);
      this.set({ camera, error: null });
      const video = Object.assign(document.createElement("video"), { srcObject: camera, muted: true });
      await video.play();
      this.frames = setInterval(() => void this.sendFrame(video), FRAME_MS);
    } catch (error) {
      this.set({ camera: null, error: reasonOf(error, "camera") });
    }
  }

  stop(): void {
    this.end(null);
  }

  private connect(): void {
    this.connection = new LiveConnection(SERVER, this.place, {
      modalities: ["AUDIO"],
      onOpen: () => {
        this.tries = 0;
        this.set({ phase: "live", error: null });
      },
      onEvent: (event) => this.play(event),
      onEnd: (error) => this.ended(error),
    });
  }

  private ended(error: GreenroomError | null): void {
    if (this.isStopped) return;
    if (error?.code !== "Unavailable" || this.tries === RETRIES) return this.end(error?.message ?? null);
    this.tries += 1;
    this.player.clear();
    this.set({ phase: "reconnecting" });
    setTimeout(() => this.isStopped || this.connect(), RETRY_MS);
  }

  private hear(samples: Float32Array): void {
    if (this.state.isMuted) return;
    this.connection?.sendAudio(encodePcm(samples));
    this.set({ level: levelOf(samples) });
  }

  private play(event: Event): void {
    if (event.interrupted) this.player.clear();
    for (const part of event.content?.parts ?? []) {
      const rate = rateOf(part.inlineData?.mimeType ?? undefined);
      if (rate !== null && part.inlineData?.data) this.player.add(decodePcm(part.inlineData.data), rate);
    }
  }

  private async sendFrame(video: HTMLVideoElement): Promise<void> {
    if (video.videoWidth === 0) return;
    const scale = Math.min(1, MOST_WIDTH / video.videoWidth);
    const canvas = new OffscreenCanvas(video.videoWidth * scale, video.videoHeight * scale);
    canvas.getContext("2d")?.drawImage(video, 0, 0, canvas.width, canvas.height);
    const bytes = new Uint8Array(await (await canvas.convertToBlob({ type: "image/jpeg", quality: 0.7 })).arrayBuffer());
    let text = "";
    for (const byte of bytes) text += String.fromCharCode(byte);
    this.connection?.sendBlob("image/jpeg", btoa(text));
  }

  private end(error: string | null): void {
    if (this.isStopped) return;
    this.isStopped = true;
    this.connection?.close();
    this.release();
    this.set({ phase: "ended", error, camera: null, level: 0, isSpeaking: false });
  }

  private release(): void {
    stopTracks(this.microphone);
    stopTracks(this.state.camera);
    if (this.frames !== null) clearInterval(this.frames);
    void this.input?.close();
    this.player.close();
  }

  private set(change: Partial<LiveState>): void {
    this.state = { ...this.state, ...change };
    this.show(this.state);
  }
}

/** Plays pieces of sound one after the other. */
class Player {
  private readonly context = new AudioContext({ sampleRate: OUTPUT_RATE });
  private readonly playing = new Set<AudioBufferSourceNode>();
  private end = 0;

  constructor(private readonly onChange: (isPlaying: boolean) => void) {}

  add(samples: Float32Array<ArrayBuffer>, rate: number): void {
    if (samples.length === 0) return;
    const buffer = this.context.createBuffer(1, samples.length, rate);
    buffer.copyToChannel(samples, 0);
    const source = Object.assign(this.context.createBufferSource(), { buffer });
    source.connect(this.context.destination);
    const start = startOf(this.context.currentTime, this.end);
    this.end = start + buffer.duration;
    source.onended = () => {
      if (this.playing.delete(source) && this.playing.size === 0) this.onChange(false);
    };
    if (this.playing.size === 0) this.onChange(true);
    this.playing.add(source);
    source.start(start);
  }

  /** Ends at once, as when the user speaks over the model. */
  clear(): void {
    for (const source of this.playing) source.stop();
    if (this.playing.size > 0) this.onChange(false);
    this.playing.clear();
    this.end = 0;
  }

  close(): void {
    this.clear();
    void this.context.close();
  }
}

function stopTracks(stream: MediaStream | null): void {
  for (const track of stream?.getTracks() ?? []) track.stop();
}

function reasonOf(error: unknown, device: string): string {
  const name = error instanceof Error ? error.name : "";
  if (name === "NotAllowedError") return `The browser does not allow the use of the ${device}. Allow it in the page's settings, and try again.`;
  if (name === "NotFoundError") return `There is no ${device}.`;
  return error instanceof Error ? error.message : String(error);
}
