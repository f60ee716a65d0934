// The files of a sandbox: Emscripten's file system in memory, with a limit, and the requests of the host for files.

const BYTES_PER_FILE = 4096; // a disk of n bytes has room for n / 4096 files, folders and links
const MAX_WALKED = 100_000;
const MAX_NAMES = 100;

// Emscripten's numbers of errors
const EEXIST = 20;
const EINVAL = 28;
const EISDIR = 31;
const ENOENT = 44;
const ENOSPC = 51;

// What Python raises, and says, in these cases.
const ERRORS = new Map([
  [2, ["PermissionError", "Permission denied"]],
  [EEXIST, ["FileExistsError", "File exists"]],
  [EISDIR, ["IsADirectoryError", "Is a directory"]],
  [32, ["OSError", "Too many levels of symbolic links"]],
  [37, ["OSError", "File name too long"]],
  [ENOENT, ["FileNotFoundError", "No such file or directory"]],
  [ENOSPC, ["OSError", "No space left on device"]],
  [54, ["NotADirectoryError", "Not a directory"]],
]);

const encoder = new TextEncoder();

export class Files {
  #fs;
  #workingDir;
  #knownFiles = new Map();

  constructor(fs, workingDir, diskBytes) {
    this.#fs = fs;
    this.#workingDir = workingDir;
    limitDisk(fs, diskBytes);
  }

  write(files, payload) {
    let start = 0;
    for (const { name, size } of files) {
      this.#writeFile(this.#path(name), payload.slice(start, start + size));
      start += size;
    }
  }

  #writeFile(path, content) {
    const fs = this.#fs;
    fs.mkdirTree(path.slice(0, path.lastIndexOf("/")) || "/");
    this.#removeOther(path);
    try {
      fs.writeFile(path, content);
    } catch (error) {
      fs.unlink(path);
      throw error;
    }
    const { node } = fs.lookupPath(path, { follow: false });
    this.#knownFiles.set(path, fingerprint(node));
  }

  // Whatever but a file has this name is replaced, unless it is a folder.
  #removeOther(path) {
    const { exists, object } = this.#fs.analyzePath(path, true);
    if (exists && this.#fs.isDir(object.mode)) {
      throw new this.#fs.ErrnoError(EISDIR);
    }
    if (exists && !this.#fs.isFile(object.mode)) {
      this.#fs.unlink(path);
    }
  }

  read(name, limit) {
    const { node } = this.#fs.lookupPath(this.#path(name), { follow: true });
    if (this.#fs.isDir(node.mode)) {
      throw new this.#fs.ErrnoError(EISDIR);
    }
    if (!this.#fs.isFile(node.mode)) {
      throw new FileError("OSError", "It is no regular file");
    }
    if (node.usedBytes > limit) {
      throw new FileError("OSError", `It has more than ${limit} bytes`);
    }
    return contentOf(node);
  }

  list(limit) {
    return this.#walk()
      .filter(([path]) => path.isWellFormed())
      .slice(0, limit)
      .map(([path, node]) => [this.#relative(path), node.usedBytes, node.mtime * 1_000_000]);
  }

  // Calls sendFile with the name and content of each file that code has written; returns the names of those left out.
  changed({ max_files, max_file_bytes, max_bytes }, sendFile) {
    const files = this.#walk();
    const leftOut = [];
    let sent = 0;
    let bytesLeft = max_bytes;
    for (const [path, node] of files) {
      const name = this.#relative(path);
      if (this.#knownFiles.get(path) === fingerprint(node) || name.split("/").includes("__pycache__")) {
        continue;
      }
      if (name.isWellFormed() && sent < max_files && node.usedBytes <= Math.min(bytesLeft, max_file_bytes)) {
        sent += 1;
        bytesLeft -= node.usedBytes;
        sendFile(name, contentOf(node));
      } else {
        leftOut.push(name.toWellFormed());
      }
    }

    this.#knownFiles = new Map(files.map(([path, node]) => [path, fingerprint(node)]));
    return { named: leftOut.slice(0, MAX_NAMES), notNamed: Math.max(leftOut.length - MAX_NAMES, 0) };
  }

  // Code may have closed them, or have put files in their place.
  reopenStandardStreams() {
    for (const [fd, path] of ["/dev/stdin", "/dev/stdout", "/dev/stderr"].entries()) {
      const stream = this.#fs.getStream(fd);
      if (stream) {
        this.#fs.close(stream);
      }
      this.#fs.open(path, fd === 0 ? 0 : 1); // gets the lowest number that is free
    }
  }

  openFiles() {
    return new Set(this.#fs.streams.filter((stream) => stream));
  }

  closeAllBut(kept) {
    for (const stream of this.openFiles()) {
      if (!kept.has(stream)) {
        this.#fs.close(stream);
      }
    }
  }

  // Returns the regular files below the working directory by path, sorted. Doesn't follow links.
  #walk() {
    const found = [];
    const { exists, object } = this.#fs.analyzePath(this.#workingDir, true);
    const folders = exists && this.#fs.isDir(object.mode) ? [[this.#workingDir, object]] : [];
    let seen = 0;
    while (folders.length > 0) {
      const [path, folder] = folders.pop();
      for (const [name, node] of Object.entries(folder.contents)) {
        seen += 1;
        if (seen > MAX_WALKED) {
          return found;
        }
        if (this.#fs.isFile(node.mode)) {
          found.push([`${path}/${name}`, node]);
        } else if (this.#fs.isDir(node.mode)) {
          folders.push([`${path}/${name}`, node]);
        }
      }
    }
    return found.sort(([a], [b]) => (a < b ? -1 : 1));
  }

  #path(name) {
    return name.startsWith("/") ? name : `${this.#workingDir}/${name}`;
  }

  #relative(path) {
    return path.slice(this.#workingDir.length + 1);
  }
}

export class FileError extends Error {
  constructor(type, message) {
    super(message);
    this.type = type;
  }
}

// Returns the error of a request as the host expects it; null for what is no error of files.
export function describeError(error) {
  if (error instanceof FileError) {
    return { error: error.type, message: error.message };
  }
  if (typeof error?.errno === "number") {
    const [type, message] = ERRORS.get(error.errno) ?? ["OSError", `Error ${error.errno}`];
    return { error: type, message };
  }
  return null;
}

// Returns a copy of bytes, which Emscripten keeps as signed ones if code has written them.
function contentOf(node) {
  return new Uint8Array(node.contents.subarray(0, node.usedBytes));
}

// Times have milliseconds, in which a file can change twice: `limitDisk` counts the changes of each.
function fingerprint(node) {
  return `${node.id} ${node.changes}`;
}

// Makes writing fail with ENOSPC once the files, those without a name included, have more than `diskBytes`.
function limitDisk(fs, diskBytes) {
  const memory = fs.filesystems.MEMFS;
  const { dir, file } = memory.ops_table;
  const before = usage(fs);
  const maxNodes = Math.floor(diskBytes / BYTES_PER_FILE);
  let { bytes, nodes } = before;

  // What is deleted is only noticed when the disk seems full.
  function reserve(newBytes, newNodes) {
    bytes += newBytes;
    nodes += newNodes;
    if (bytes - before.bytes <= diskBytes && nodes - before.nodes <= maxNodes) {
      return;
    }
    const now = usage(fs);
    bytes = now.bytes + newBytes;
    nodes = now.nodes + newNodes;
    if (bytes - before.bytes > diskBytes || nodes - before.nodes > maxNodes) {
      bytes = now.bytes;
      nodes = now.nodes;
      throw new fs.ErrnoError(ENOSPC);
    }
  }

  function resize(node, size) {
    if (size > node.contents.length) {
      reserve(size - node.contents.length, 0);
    }
    node.changes = (node.changes ?? 0) + 1;
  }

  const { write, setattr } = { write: file.stream.write, setattr: file.node.setattr };
  file.stream.write = memory.stream_ops.write = (stream, buffer, offset, length, position, canOwn) => {
    resize(stream.node, position + length);
    return write(stream, buffer, offset, length, position, canOwn);
  };
  file.node.setattr = (node, attributes) => {
    if (attributes.size !== undefined) {
      resize(node, attributes.size);
    }
    return setattr(node, attributes);
  };

  const { mknod, symlink } = dir.node;
  dir.node.mknod = (...details) => {
    reserve(0, 1);
    return mknod(...details);
  };
  dir.node.symlink = (...details) => {
    reserve(0, 1);
    return symlink(...details);
  };
}

function usage(fs) {
  const open = fs.streams.filter((stream) => stream).map((stream) => stream.node);
  const left = [fs.root, ...open];
  const seen = new Set();
  let bytes = 0;
  while (left.length > 0) {
    const node = left.pop();
    if (!node || seen.has(node)) {
      continue;
    }
    seen.add(node);
    if (fs.isFile(node.mode)) {
      bytes += node.contents?.length ?? 0;
    } else if (fs.isDir(node.mode)) {
      left.push(...Object.values(node.contents ?? {}), node.mounted?.root);
    }
  }
  return { bytes, nodes: seen.size };
}
