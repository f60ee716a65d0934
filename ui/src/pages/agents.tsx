export function AgentsPage() {
  return <main className="page" />;
}
