import { DEFAULT_USER } from "./api";

const KEY = "greenroom.user";

/** The user whose sessions an app opens with. */
export function chosenUser(): string {
  return localStorage.getItem(KEY) ?? DEFAULT_USER;
}

export function setChosenUser(user: string): void {
  if (user === DEFAULT_USER) localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, user);
}

/** The part of an app's address that names the chosen user. */
export function userSearch(user = chosenUser()): { readonly user?: string } {
  return user === DEFAULT_USER ? {} : { user };
}

/** An address of this page; one of an app that names no user gets the chosen one. */
export function withChosenUser(address: string): string {
  const { pathname, search, searchParams } = new URL(address, location.origin);
  const user = chosenUser();
  if (user === DEFAULT_USER || !pathname.startsWith("/apps/") || searchParams.has("user")) return address;
  return `${pathname}${search === "" ? "?" : `${search}&`}user=${encodeURIComponent(user)}`;
}
