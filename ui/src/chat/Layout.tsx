import { PanelLeft } from "lucide-react";
import { type ReactNode, useCallback, useState } from "react";
import { Sessions } from "./Sessions";

const KEY = "greenroom.sessions";
const NARROW = "(max-width: 719px)";

/** Sessions at the left, foldable; on narrow pages instead of the rest. */
export function Layout(props: { app: string; user: string; session: string; head: ReactNode; children: ReactNode }) {
  const { app, user, session, head, children } = props;
  const [isOpen, setOpen] = useState(() => !matchMedia(NARROW).matches && localStorage.getItem(KEY) !== "closed");
  const onChoose = useCallback(() => {
    if (matchMedia(NARROW).matches) setOpen(false);
  }, []);
  function toggle(open: boolean) {
    setOpen(open);
    if (!matchMedia(NARROW).matches) localStorage.setItem(KEY, open ? "open" : "closed");
  }
  return (
    <div className={`chat${isOpen ? " with-sessions" : ""}`}>
      {isOpen && (
        <Sessions
          app={app}
          user={user}
          session={session}
          onChoose={onChoose}
        />
      )}
      <div className="chat-main">
        <div className="chat-head">
          <button type="button" className="button quiet" aria-expanded={isOpen} onClick={() => toggle(!isOpen)} title="Sessions">
            <PanelLeft size={16} aria-hidden="true" />
            <span className="hidden">{isOpen ? "Hide sessions" : "Show sessions"}</span>
          </button>
          {head}
        </div>
        {children}
      </div>
    </div>
  );
}
