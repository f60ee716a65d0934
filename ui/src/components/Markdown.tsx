import { Suspense, lazy, memo } from "react";

const Rendered = lazy(() => import("./RenderedMarkdown"));

/** Sanitised Markdown; plain text until its renderer is loaded. */
export const Markdown = memo(function Markdown({ text }: { text: string }) {
  return (
    <div className="markdown">
      <Suspense fallback={<p style={{ whiteSpace: "pre-wrap" }}>{text}</p>}>
        <Rendered text={text} />
      </Suspense>
    </div>
  );
});
