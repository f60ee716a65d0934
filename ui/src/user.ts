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
