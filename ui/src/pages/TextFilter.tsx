import { useState } from "react";

/** Applied with Enter or when the field is left. */
export function TextFilter({ label, value, set }: { label: string; value: string; set: (value: string) => void }) {
  const [draft, setDraft] = useState(value);
  const apply = () => draft.trim() !== value && set(draft.trim());
  return (
    <input
      className="input text-filter"
      aria-label={label}
      placeholder={label}
      value={draft}
      onChange={(event) => setDraft(event.target.value)}
      onBlur={apply}
      onKeyDown={(event) => event.key === "Enter" && apply()}
    />
  );
}
