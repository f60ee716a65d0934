type Kind = "added" | "removed" | "place" | "same";

function kindOf(line: string): Kind {
  if (line.startsWith("+")) return "added";
  if (line.startsWith("-")) return "removed";
  return line.startsWith("@@") ? "place" : "same";
}

/** A unified diff, its added and removed lines marked by color and by their first character. */
export function Diff({ text, label }: { text: string; label: string }) {
  return (
    <pre className="diff" aria-label={label} role="region" tabIndex={0}>
      {text.split("\n").map((line, index) => (
        <span key={index} className={kindOf(line)}>
          {line}
          {"\n"}
        </span>
      ))}
    </pre>
  );
}
