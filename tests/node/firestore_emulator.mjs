// Serves @firestore-emulator/server on the port given, with what it lacks of Firestore's semantics:
// update masks that quote names, replace maps and delete fields; writes that replace a document; queries over all
// collections of a name; cursors.
import { FirestoreServer } from "@firestore-emulator/server";

const server = new FirestoreServer();
const state = server.state;

const write = state.writeV1Document.bind(state);
state.writeV1Document = (date, one) => {
  if (!one.has_update) return write(date, one);
  const document = state.getDocument(one.update.name);
  const before = document.metadata.hasExist ? document.fields : {};
  const paths = one.update_mask ? one.update_mask.field_paths.map(names) : null;
  if (paths) one.update_mask.field_paths = [];
  const kept = document.fields;
  document.fields = {};
  try {
    const result = write(date, one);
    document.fields = paths ? paths.reduce((fields, path) => replaced(fields, document.fields, path), before) : document.fields;
    return result;
  } catch (error) {
    document.fields = kept;
    throw error;
  }
};

state.v1Query = (parent, query) => {
  const { collection_id, all_descendants } = query.from[0];
  let found = [];
  if (all_descendants) collect(state.getProject(parent.split("/")[1]).getDatabase(parent.split("/")[3]), collection_id, found);
  else found = state.getCollection(`${parent}/${collection_id}`).getAllDocuments();
  found = found.filter((document) => document.metadata.hasExist && query.order_by.every(({ field }) => valueAt(document.fields, field)));
  const filters = query.has_where ? (query.where.has_field_filter ? [query.where] : query.where.composite_filter.filters) : [];
  for (const { field_filter } of filters)
    found = found.filter((document) => {
      const value = valueAt(document.fields, field_filter.field);
      return value !== undefined && fits(value, field_filter);
    });
  found.sort((a, b) => compared(query.order_by, (field) => valueAt(a.fields, field), (field) => valueAt(b.fields, field)));
  if (query.has_start_at) {
    const bounds = query.start_at.values.map((value) => plain(value));
    found = found.filter((document) => {
      for (const [index, { direction, field }] of query.order_by.entries()) {
        const value = valueAt(document.fields, field).value;
        if (value !== bounds[index]) return direction === 2 ? value < bounds[index] : value > bounds[index];
      }
      return query.start_at.before;
    });
  }
  return query.has_limit ? found.slice(0, query.limit.value) : found;
};

function collect(parent, name, found) {
  for (const collection of Object.values(parent.collections)) {
    if (collection.name === name) found.push(...collection.getAllDocuments());
    for (const document of collection.getAllDocuments()) collect(document, name, found);
  }
}

function fits(field, { op, value }) {
  const wanted = plain(value);
  switch (op) {
    case 1: return field.value < wanted;
    case 2: return field.value <= wanted;
    case 3: return field.value > wanted;
    case 4: return field.value >= wanted;
    case 5: return field.value === wanted;
    case 7: return field.value.some((one) => one.value === wanted);
    case 8: return wanted.includes(field.value);
    case 9: return field.value.some((one) => wanted.includes(one.value));
    default: throw new Error(`The operator ${op} is not known`);
  }
}

function plain(value) {
  if (value.has_array_value) return value.array_value.values.map(plain);
  for (const kind of ["string_value", "integer_value", "double_value", "boolean_value"])
    if (value[`has_${kind}`]) return value[kind];
  throw new Error("This kind of value can't be compared");
}

function compared(orders, a, b) {
  for (const { direction, field } of orders) {
    const [one, other] = [a(field).value, b(field).value];
    if (one !== other) return (one < other) === (direction === 2) ? 1 : -1;
  }
  return 0;
}

function valueAt(fields, { field_path }) {
  return names(field_path).reduce((value, name, index) => (index ? value?.value?.[name] : value[name]), fields);
}

// The names of a path like a.`b.c`.d
function names(path) {
  return [...path.matchAll(/`((?:[^`\\]|\\.)*)`|([^.`]+)/g)].map(([, quoted, bare]) => quoted?.replace(/\\(.)/g, "$1") ?? bare);
}

function replaced(fields, given, [name, ...inner]) {
  const result = { ...fields };
  const field = given?.[name];
  if (!inner.length) {
    if (field) result[name] = field;
    else delete result[name];
  } else {
    const map = fields[name]?.type === "map_value" ? fields[name] : field;
    if (map) result[name] = new map.constructor(replaced(fields[name]?.value ?? {}, field?.value, inner));
  }
  return result;
}

await server.start(Number(process.argv[2]));
console.log("ready");
