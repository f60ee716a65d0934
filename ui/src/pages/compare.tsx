export function ComparePage() {
  return <main className="page" />;
}
