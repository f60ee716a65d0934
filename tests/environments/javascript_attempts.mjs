// Attempts of JavaScript to reach the host. Prints the names of those that succeed, with what they got.
//
// Arguments: a file of the host, a path to write to, the port of an HTTP server.

const [secret, output, port] = Deno.args;
const url = `http://127.0.0.1:${port}/`;

function settled(register) {
  return new Promise((resolve, reject) => register(resolve, reject));
}

const attempts = {
  // Files
  read: () => Deno.readTextFile(secret),
  read_at_once: () => Deno.readTextFileSync(secret),
  read_above: () => Deno.readTextFile(new URL("../sandbox.py", `file://${Deno.cwd()}/`)),
  open: () => Deno.open(secret),
  own_environment: () => Deno.readTextFile("/proc/self/environ"),
  own_memory: () => Deno.open("/proc/self/mem"),
  list: () => Deno.readDirSync("/").next(),
  status: () => Deno.stat(secret),
  real_path: () => Deno.realPath("/"),
  follow_link: () => Deno.readLink("/proc/self/exe"),
  fetch_file: () => fetch(`file://${secret}`),
  write: () => Deno.writeTextFile(output, "x"),
  make_folder: () => Deno.mkdir(output),
  make_temporary: () => Deno.makeTempDir(),
  write_to_own_folder: () => Deno.writeTextFile(`${Deno.cwd()}/x`, "x"),
  remove: () => Deno.remove(secret),
  rename: () => Deno.rename(secret, output),
  link: () => Deno.link(secret, output),
  symbolic_link: () => Deno.symlink(secret, output),
  change_folder: () => Deno.chdir("/"),
  change_mode: () => Deno.chmod(secret, 0o777),
  watch: () => Deno.watchFs("/"),

  // Network
  fetch: () => fetch(url),
  connect: () => Deno.connect({ port: Number(port) }),
  connect_tls: () => Deno.connectTls({ port: Number(port) }),
  connect_unix: () => Deno.connect({ transport: "unix", path: "/var/run/docker.sock" }),
  listen: () => Deno.listen({ port: 0 }),
  serve: () => Deno.serve({ port: 0 }, () => new Response("")),
  resolve_name: () => Deno.resolveDns("localhost", "A"),
  web_socket: () =>
    settled((resolve, reject) => {
      const socket = new WebSocket(url.replace("http", "ws"));
      socket.onopen = resolve;
      socket.onerror = reject;
    }),
  event_source: () =>
    settled((resolve, reject) => {
      const source = new EventSource(url);
      source.onopen = resolve;
      source.onerror = reject;
    }),

  // Processes
  start_process: () => new Deno.Command("/bin/true").output(),
  start_itself: () => new Deno.Command(Deno.execPath()).output(),
  kill_parent: () => Deno.kill(Deno.ppid, "SIGTERM"),
  load_library: () => Deno.dlopen("libc.so.6", {}),

  // The machine
  variable: () => Deno.env.get("PATH"),
  variables: () => Deno.env.toObject(),
  set_variable: () => Deno.env.set("A", "b"),
  host_name: () => Deno.hostname(),
  memory: () => Deno.systemMemoryInfo(),
  user: () => Deno.uid(),
  interfaces: () => Deno.networkInterfaces(),

  // More permissions
  request: () =>
    settled(async (resolve, reject) => {
      const { state } = await Deno.permissions.request({ name: "read" });
      (state === "granted" ? resolve : reject)(state);
    }),
  worker_of_host: () =>
    settled((resolve, reject) => {
      const worker = new Worker(`file://${secret}`, { type: "module" });
      worker.onmessage = resolve;
      worker.onerror = (event) => {
        event.preventDefault();
        reject(event);
      };
    }),

  // Code
  import_file: () => import(`file://${secret}`),
  import_url: () => import(url),
  import_npm: () => import("npm:left-pad"),
  import_jsr: () => import("jsr:@std/fs"),
  evaluate: () => eval("1"),
  make_function: () => new Function("return 1")(),
  make_async_function: () => (async () => {}).constructor("return 1")(),
  timer_of_text: () =>
    settled((resolve, reject) => {
      globalThis.resolveTimer = resolve;
      setTimeout("resolveTimer()", 0);
      setTimeout(reject, 300);
    }),

  // Node's modules
  node_read: async () => (await import("node:fs")).readFileSync(secret),
  node_write: async () => (await import("node:fs")).writeFileSync(output, "x"),
  node_start: async () => (await import("node:child_process")).execFileSync("/bin/true"),
  node_fork: async () => (await import("node:child_process")).fork(secret),
  node_connect: async () => {
    const net = await import("node:net");
    await settled((resolve, reject) => net.connect(Number(port), "127.0.0.1", resolve).on("error", reject));
  },
  node_request: async () => {
    const http = await import("node:http");
    await settled((resolve, reject) => http.get(url, resolve).on("error", reject));
  },
  node_variables: async () => {
    const names = Object.keys((await import("node:process")).env);
    return names.length > 0 ? names : Promise.reject();
  },
  node_kill: async () => {
    const process = await import("node:process");
    process.kill(process.ppid);
  },
  node_load_library: async () => (await import("node:process")).dlopen({ exports: {} }, "/lib/libc.so.6"),
  node_user: async () => (await import("node:os")).userInfo(),
  node_host_name: async () => (await import("node:os")).hostname(),
  node_database: async () => new (await import("node:sqlite")).DatabaseSync(output),
  node_debugger: async () => (await import("node:inspector")).open(0),
  node_wasi: async () => {
    const { WASI } = await import("node:wasi");
    return new WASI({ version: "preview1", preopens: { "/": "/" } });
  },
  node_heap_file: async () => (await import("node:v8")).writeHeapSnapshot(output),
};

const succeeded = {};
for (const [name, attempt] of Object.entries(attempts)) {
  try {
    succeeded[name] = String(await attempt());
  } catch {
    // as it should be
  }
}
console.log(JSON.stringify({ attempts: Object.keys(attempts).length, succeeded }));
Deno.exit(0);
