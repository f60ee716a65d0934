export type * from "./wire";
