import type { Content } from "greenroom-client";
import { Camera, CameraOff, Mic, MicOff, PhoneOff } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import type { SessionPlace } from "../api";
import { Conversation, type LiveState, START } from "./conversation";
import "./live.css";

const PHASES = { connecting: "Connecting…", live: "Live: speak", reconnecting: "Connection lost; reconnecting…", ended: "" } as const;

/** A live conversation while it is mounted. onSender: gets what sends a message in it, and null at its end. */
export default function LiveControls({ place: { app, user, session }, onSender, onEnd }: {
  place: SessionPlace;
  onSender: (send: ((content: Content) => void) | null) => void;
  onEnd: (error: string | null) => void;
}) {
  const [state, setState] = useState<LiveState>(START);
  const held = useRef<Conversation>(null);
  const handlers = useRef({ onSender, onEnd });
  handlers.current = { onSender, onEnd };
  useEffect(() => {
    const conversation = new Conversation({ app, user, session }, (next) => {
      setState(next);
      if (next.phase === "ended") handlers.current.onEnd(next.error);
    });
    held.current = conversation;
    handlers.current.onSender((content) => conversation.send(content));
    void conversation.start();
    return () => {
      handlers.current.onSender(null);
      conversation.stop();
    };
  }, [app, user, session]);
  const { isMuted, camera, isSpeaking, level, phase, error } = state;
  return (
    <section className="live" aria-label="Live conversation">
      <span role="status" className={phase === "reconnecting" ? "status wait" : "status ok"}>
        {phase === "live" && isSpeaking ? "Live: the agent speaks" : phase === "live" && isMuted ? "Live: muted" : PHASES[phase]}
      </span>
      <meter aria-label="Loudness of the microphone" className="live-level" min={0} max={1} value={level} />
      {camera !== null && <Preview stream={camera} />}
      {error !== null && <span className="status bad" role="alert">{error}</span>}
      <span className="spread" />
      <button type="button" className="button" aria-pressed={isMuted} onClick={() => held.current?.mute(!isMuted)}>
        {isMuted ? <MicOff size={16} aria-hidden="true" /> : <Mic size={16} aria-hidden="true" />}
        Mute
      </button>
      <button type="button" className="button" aria-pressed={camera !== null} onClick={() => void held.current?.switchCamera(camera === null)}>
        {camera === null ? <Camera size={16} aria-hidden="true" /> : <CameraOff size={16} aria-hidden="true" />}
        Camera
      </button>
      <button type="button" className="button" onClick={() => held.current?.stop()}>
        <PhoneOff size={16} aria-hidden="true" />
        End
      </button>
    </section>
  );
}

function Preview({ stream }: { stream: MediaStream }) {
  const video = useRef<HTMLVideoElement>(null);
  useEffect(() => {
    if (video.current !== null) video.current.srcObject = stream;
  }, [stream]);
  return <video ref={video} className="live-preview" muted autoPlay playsInline aria-label="Your camera" />;
}
