import { Link, useLocation } from "@tanstack/react-router";
import type { ReactNode } from "react";
import "../pages/pages.css";
import "./admin.css";
import { visiblePages } from "./pages";
import { useMe } from "./useMe";

/** A page of the group "Administration", below the links to all of them. actions: beside the heading. */
export function AdminPage({ title, actions, children }: { title: string; actions?: ReactNode; children: ReactNode }) {
  const { pathname } = useLocation();
  const pages = visiblePages(useMe().data);
  return (
    <main className="page admin">
      {pages.length > 1 && (
        <nav className="tabs" aria-label="Administration">
          {pages.map(({ to, name }) => (
            <Link key={to} to={to} className="tab admin-tab" aria-current={pathname === to ? "page" : undefined}>
              {name}
            </Link>
          ))}
        </nav>
      )}
      <div className="row">
        <h1 className="spread">{title}</h1>
        {actions}
      </div>
      {children}
    </main>
  );
}
