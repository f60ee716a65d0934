export function SettingsPage() {
  return <main className="page" />;
}
