import { type CompletionContext, type CompletionResult, autocompletion, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { yaml } from "@codemirror/lang-yaml";
import { HighlightStyle, bracketMatching, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { lintGutter, setDiagnostics } from "@codemirror/lint";
import { EditorState } from "@codemirror/state";
import { EditorView, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { useEffect, useRef } from "react";
import { type Schema, suggest } from "./schema";

/** line: from 1. */
export type Complaint = { readonly line: number; readonly text: string };

const COLORS = HighlightStyle.define([
  { tag: tags.propertyName, color: "var(--accent)" },
  { tag: tags.definition(tags.propertyName), color: "var(--accent)" },
  { tag: [tags.comment, tags.meta], color: "var(--soft)" },
]);
const LOOK = EditorView.theme({
  "&": { fontSize: "13px", color: "var(--ink)", backgroundColor: "var(--paper)" },
  "&.cm-focused": { outline: "2px solid var(--accent)" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "20px", maxHeight: "60vh" },
  ".cm-content, .cm-gutter": { minHeight: "160px" },
  ".cm-gutters": { color: "var(--soft)", backgroundColor: "var(--raised)", border: "0" },
  ".cm-content": { caretColor: "var(--ink)" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  ".cm-tooltip": { color: "var(--ink)", backgroundColor: "var(--raised)", border: "1px solid var(--line-strong)" },
});

/** A YAML text with completion by a schema. complaint: marks its line. */
export function YamlEditor({ text, schema, label, complaint, onChange, onSave }: {
  text: string;
  schema: Schema;
  label: string;
  complaint: Complaint | null;
  onChange: (text: string) => void;
  onSave: () => void;
}) {
  const place = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView>(null);
  const handlers = useRef({ text, onChange, onSave });
  handlers.current = { text, onChange, onSave };
  useEffect(() => {
    if (place.current === null) return;
    const created = new EditorView({
      parent: place.current,
      state: EditorState.create({
        doc: handlers.current.text,
        extensions: [
          lineNumbers(),
          lintGutter(),
          history(),
          yaml(),
          bracketMatching(),
          indentUnit.of("  "),
          syntaxHighlighting(COLORS),
          autocompletion({ override: [(context) => complete(schema, context)] }),
          keymap.of([
            { key: "Mod-s", run: () => (handlers.current.onSave(), true) },
            ...completionKeymap,
            ...defaultKeymap,
            ...historyKeymap,
            indentWithTab,
          ]),
          EditorView.updateListener.of((update) => {
            if (update.docChanged) handlers.current.onChange(update.state.doc.toString());
          }),
          EditorView.contentAttributes.of({ "aria-label": label }),
          LOOK,
        ],
      }),
    });
    view.current = created;
    return () => created.destroy();
  }, [schema, label]);
  useEffect(() => {
    const length = view.current?.state.doc.length ?? 0;
    if (view.current?.state.doc.toString() !== text) view.current?.dispatch({ changes: { from: 0, to: length, insert: text } });
  }, [text]);
  useEffect(() => {
    const editor = view.current;
    if (editor === null) return;
    const line = editor.state.doc.line(Math.min(complaint?.line ?? 1, editor.state.doc.lines));
    const found = complaint === null ? [] : [{ from: line.from, to: line.to, severity: "error" as const, message: complaint.text }];
    editor.dispatch(setDiagnostics(editor.state, found));
    if (complaint !== null) editor.dispatch({ effects: EditorView.scrollIntoView(line.from, { y: "center" }) });
  }, [complaint]);
  return <div ref={place} className="yaml-editor" />;
}

function complete(schema: Schema, context: CompletionContext): CompletionResult | null {
  const found = suggest(schema, context.state.sliceDoc(0, context.pos));
  if (found === null || (!context.explicit && found.from === context.pos)) return null;
  return {
    from: found.from,
    validFor: /^[\w.-]*$/,
    options: found.options.map(({ label, detail, info }) => ({
      label,
      detail,
      ...(info === "" ? {} : { info }),
      apply: found.isKey ? `${label}: ` : label,
    })),
  };
}
