export function RunsPage() {
  return <main className="page" />;
}
