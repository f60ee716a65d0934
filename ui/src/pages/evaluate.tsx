export function EvaluatePage() {
  return <main className="page" />;
}
