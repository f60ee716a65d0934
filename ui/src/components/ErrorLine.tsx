import { GreenroomError } from "greenroom-client";
import { TriangleAlert } from "lucide-react";
import type { ReactNode } from "react";

/** One line of what went wrong, with the error's code. children: what can be done. */
export function ErrorLine({ error, children }: { error: unknown; children?: ReactNode }) {
  const code = error instanceof GreenroomError ? error.code : "";
  return (
    <div className="error-line" role="alert">
      <TriangleAlert size={16} aria-hidden="true" />
      <span className="spread">
        {error instanceof Error ? error.message : String(error)} {code !== "" && <code className="soft">{code}</code>}
      </span>
      {children}
    </div>
  );
}
