import { Markdown } from "../components/Markdown";

/** A growing text. Only its last block is parsed again when more comes. */
export function StreamingText({ text }: { text: string }) {
  return (
    <div className="streaming">
      {blocksOf(text).map((block, index) => (
        <Markdown key={index} text={block} />
      ))}
    </div>
  );
}

/** Cuts at blank lines outside of fenced code. */
function blocksOf(text: string): readonly string[] {
  const blocks: string[] = [];
  let block: string[] = [];
  let isFenced = false;
  for (const line of text.split("\n")) {
    if (line.trimStart().startsWith("```")) isFenced = !isFenced;
    if (line.trim() === "" && !isFenced) {
      if (block.length > 0) blocks.push(block.join("\n"));
      block = [];
    } else block.push(line);
  }
  if (block.length > 0) blocks.push(block.join("\n"));
  return blocks;
}
