export function SignInPage() {
  return <main className="page" />;
}
