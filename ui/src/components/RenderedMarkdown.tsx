import ReactMarkdown from "react-markdown";
import rehypeSanitize from "rehype-sanitize";
import remarkGfm from "remark-gfm";

const REMARK = [remarkGfm];
const REHYPE = [rehypeSanitize];

/** Links open in a tab of their own; images from other servers are links, since the page loads nothing from elsewhere. */
export default function RenderedMarkdown({ text }: { text: string }) {
  return (
    <ReactMarkdown
      remarkPlugins={REMARK}
      rehypePlugins={REHYPE}
      components={{
        a: ({ href, children }) => (
          <a href={href} target="_blank" rel="noreferrer">
            {children}
          </a>
        ),
        img: ({ src, alt }) => (
          <a href={typeof src === "string" ? src : undefined} target="_blank" rel="noreferrer">
            {alt || "image"}
          </a>
        ),
      }}
    >
      {text}
    </ReactMarkdown>
  );
}
