"""Imports that keep the modules of one app apart from those of another, and from installed
packages.

A folder of apps becomes a package under a private name, `greenroom_apps` for the first one in a process, and each app
a package in it: `shop/tools.py` is the module `greenroom_apps.shop.tools`, whatever else is called `tools`. `sys.path`
is left as it is. Relative imports then work unchanged. For absolute imports, each module of an app has an
`__import__` of its own among its builtins, so that imports inside functions, which happen much later, are resolved in
the same way. For code of the app `shop`, the first part of the imported name is looked up

1. in the standard library,
2. as the app itself, if it has the module that is named, as in `from shop.tools import x`,
3. beside `shop/agent.py`, as in `import tools`,
4. among the installed packages,
5. beside the folder `shop`, as in `from shared.database import connect`; such modules are loaded once for all apps.

Of the app `team.bots`, in `team/bots`, the own name is `bots` as well as `team.bots`, and beside its folder means in
`team`, then in the folder above that. The `__init__.py` of `team`, if there is one, runs before its first app.

`importlib.import_module("tools")` is not resolved so: write `import_module(".tools", __package__)`.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import importlib.util
import itertools
import sys
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
)
from pathlib import Path
from types import ModuleType
from typing import Any

_numbers = itertools.count(1)


class PrivatePackage(MetaPathFinder):
    """A folder as a package of its own. Its modules can be imported as long as the process lives, since apps also
    import late.

    apps: names of the known apps in it. A module of no known app counts as one of the folder at the top level that
    contains it.
    imports: by the name of a module, its imports from outside of its app.
    """

    def __init__(self, folder: Path) -> None:
        number = next(_numbers)
        if number == 1:
            self.name = "greenroom_apps"
        else:
            self.name = f"greenroom_apps_{number}"

        self.folder = folder
        self.apps: AbstractSet[str] = frozenset()
        self.imports: dict[str, set[str]] = {}
        sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == self.name:
            spec = ModuleSpec(fullname, None, is_package=True)
            spec.submodule_search_locations = [str(self.folder)]
            return spec
        if not fullname.startswith(self.name + "."):
            return None
        return next((spec for folder in path or () if (spec := self._find_in(folder, fullname))), None)

    def has(self, dotted: str) -> bool:
        """Whether there is such a module, or a folder with Python files: `shop`, `shop.tools`."""
        *parents, name = dotted.split(".")
        spec = self._find_in(str(self.folder.joinpath(*parents)), name)
        if spec is None:
            return False
        return spec.loader is not None or any(self.folder.joinpath(*parents, name).glob("*.py"))

    def shadowed_by(self, dotted: str) -> Path | None:
        """The module that hides a folder of the same name from imports."""
        parts = dotted.split(".")
        for end in range(1, len(parts)):
            spec = self._find_in(str(self.folder.joinpath(*parts[: end - 1])), parts[end - 1])
            if spec is not None and spec.submodule_search_locations is None and spec.origin is not None:
                return Path(spec.origin)
        return None

    def app_of(self, module: str, apps: AbstractSet[str]) -> str | None:
        """Returns the app that a loaded module belongs to."""
        above = itertools.accumulate(module.split(".")[1:], "{}.{}".format)
        return next((dotted for dotted in above if dotted in apps), None)

    def imported_by(self, app: str) -> set[str]:
        """The loaded modules outside of an app that its modules have imported, directly or through
        others.
        """
        importing = {name for name in self.imports if self.app_of(name, {app}) is not None}
        waiting = list(importing)
        for module in waiting:
            new = self.imports.get(module, set()) - importing
            importing |= new
            waiting += new
        return {name for name in importing if name in sys.modules and self.app_of(name, {app}) is None}

    def forget(self, modules: set[str]) -> None:
        """Drops modules, so that they are imported again."""
        for module in modules:
            sys.modules.pop(module, None)
            self.imports.pop(module, None)
            parent, _, name = module.rpartition(".")
            if parent in sys.modules:
                vars(sys.modules[parent]).pop(name, None)

    def loaded(self, besides: AbstractSet[str] = frozenset()) -> set[str]:
        """Returns the names of the loaded modules, without those in `besides`."""
        prefix = f"{self.name}."
        return {name for name in set(sys.modules) - besides if name.startswith(prefix)}

    def _find_in(self, folder: str, fullname: str) -> ModuleSpec | None:
        # A finder of its own for each question: one that is kept trusts its listing for as long as the folder's mtime
        # looks the same, which can hide a file that was just written.
        # It only calls classes.
        loader: Any = partial(_AppModuleLoader, self)
        finder = FileFinder(
            folder,
            (ExtensionFileLoader, EXTENSION_SUFFIXES),
            (loader, SOURCE_SUFFIXES),
        )
        return finder.find_spec(fullname)


class _AppModuleLoader(SourceFileLoader):
    """Runs a module's source with the `__import__` of its app."""

    def __init__(self, package: PrivatePackage, fullname: str, path: str) -> None:
        super().__init__(fullname, path)
        self._package = package

    def path_stats(self, path: str) -> Mapping[str, Any]:
        raise OSError  # no bytecode cache: it would miss a change within the resolution of the file's mtime

    def exec_module(self, module: ModuleType) -> None:
        app = self._package.app_of(module.__name__, self._package.apps)
        if app is None:
            app = module.__name__.removeprefix(self._package.name + ".").partition(".")[0]
        importer = _Importer(self._package, app)
        vars(module)["__builtins__"] = {**vars(builtins), "__import__": importer.import_name}
        super().exec_module(module)


class _Importer:
    def __init__(self, package: PrivatePackage, app: str) -> None:
        self._package = package
        self._app = app.split(".")
        self._own = f"{package.name}.{app}"
        self._above = [self._app[:end] for end in range(len(self._app) - 1, -1, -1)]
        """The folders that the app's folder is in, the innermost first."""
        self._prefix_of = functools.cache(self._find_prefix)

    def import_name(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,  # noqa: A002 - as in `builtins.__import__`
        locals: Mapping[str, object] | None = None,  # noqa: A002
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """`builtins.__import__` for the modules of one app."""
        names = tuple(fromlist or ())
        prefix = self._prefix_of(name, names) if level == 0 else None
        if prefix is None:
            return builtins.__import__(name, globals, locals, names, level)

        module = importlib.import_module(f"{prefix}.{name}")
        if prefix != self._own:
            imported = {module.__name__, *(f"{module.__name__}.{each}" for each in names)}
            self._package.imports.setdefault(str((globals or {}).get("__name__")), set()).update(imported)

        if names:
            return builtins.__import__(module.__name__, globals, locals, names)

        return sys.modules[f"{prefix}.{name.partition('.')[0]}"]

    def _find_prefix(self, module: str, names: tuple[str, ...]) -> str | None:
        """The private package that an absolute name is in. names: the names imported from it."""
        package = self._package
        app = self._app

        parts = module.split(".")
        if parts[0] in sys.stdlib_module_names:
            return None

        for above in self._above:
            own = app[len(above) :]
            named = parts[len(own) : len(own) + 1] or names
            if parts[: len(own)] == own and any(self._has([*app, name]) for name in named):
                return ".".join([package.name, *above])

        if self._has_any(app, parts, names):
            return ".".join([package.name, *app])
        if is_installed(parts[0], apart_from=[package.folder.joinpath(*above, parts[0]) for above in self._above]):
            return None

        for above in self._above:
            if self._has_any(above, parts, names):
                return ".".join([package.name, *above])

        return None

    def _has_any(self, above: list[str], parts: list[str], names: tuple[str, ...]) -> bool:
        """True if the first part exists, or one of the names in it: a folder may have modules in other folders only."""
        if self._has([*above, parts[0]]):
            return True
        if not self._package.folder.joinpath(*above, parts[0]).is_dir():
            return False

        module = [*above, *parts]
        return self._has(module) or any(self._has([*module, name]) for name in names)

    def _has(self, parts: list[str]) -> bool:
        return self._package.has(".".join(parts))


def package_importing(folder: Path) -> PrivatePackage | None:
    """The package that is importing the app in this folder right now, whose code asks for more of
    the app.
    """
    for finder in sys.meta_path:
        if isinstance(finder, PrivatePackage) and folder.is_relative_to(finder.folder):
            app = ".".join([finder.name, *folder.relative_to(finder.folder).parts])
            if any(_is_importing(name) for name in finder.loaded() if name == app or name.startswith(f"{app}.")):
                return finder
    return None


def _is_importing(name: str) -> bool:
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))  # set by importlib while a module's code runs


def is_installed(name: str, *, apart_from: Iterable[Path]) -> bool:
    """Whether `name` can be imported from `sys.path`, apart from the modules at or in these paths."""
    try:
        spec = importlib.util.find_spec(name)
    except (ValueError, ImportError):  # a module that was made by hand, as `__main__` is
        return name in sys.modules

    if spec is None:
        return False

    origins = [Path(path).resolve() for path in (spec.origin, *(spec.submodule_search_locations or ())) if path]
    own = [each.resolve() for path in apart_from for each in (path, path.with_suffix(".py"))]

    return not any(origin.is_relative_to(path) for origin in origins for path in own)
