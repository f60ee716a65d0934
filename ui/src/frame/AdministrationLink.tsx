import { Link } from "@tanstack/react-router";
import { ShieldCheck } from "lucide-react";
import { visiblePages } from "../admin/pages";
import { useMe } from "../admin/useMe";

/** The link to the group "Administration", for those who see one of its pages. */
export default function AdministrationLink({ isCurrent }: { isCurrent: boolean }) {
  const first = visiblePages(useMe().data)[0];
  if (first === undefined) return null;
  return (
    <Link to={first.to} className={`rail-link${isCurrent ? " current" : ""}`} title="Administration" aria-current={isCurrent ? "page" : undefined}>
      <ShieldCheck size={20} aria-hidden="true" />
      <span className="rail-name">Administration</span>
    </Link>
  );
}
