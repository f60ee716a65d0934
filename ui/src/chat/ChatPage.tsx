export function ChatPage() {
  return <main className="page" />;
}
