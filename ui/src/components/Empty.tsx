import type { ReactNode } from "react";

/** Content of an empty page: what would be here, and how to get it. */
export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <section className="empty">
      <h2>{title}</h2>
      {children}
    </section>
  );
}
