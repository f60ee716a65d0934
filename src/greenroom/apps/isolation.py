"""Imports that keep the modules of one app apart from those of another, and from installed packages.

A folder of apps becomes a package under a private name, `greenroom_apps` for the first one in a process, and each app
a package in it: `shop/tools.py` is the module `greenroom_apps.shop.tools`, whatever else is called `tools`. `sys.path`
is left as it is. Relative imports then work by themselves. In the source of the apps, absolute imports are bent to the
private names before the source is compiled, so that those inside functions, which happen much later, come out right
too. For code of the app `shop`, the first part of the imported name is looked for

1. in the standard library,
2. as the app itself, if it has the module that is named, as in `from shop.tools import x`,
3. beside `shop/agent.py`, as in `import tools`,
4. among the installed packages,
5. beside the folder `shop`, as in `from shared.database import connect`; such modules are loaded once for all apps.

Of the app `team.bots`, in `team/bots`, the own name is `bots` as well as `team.bots`, and beside its folder means in
`team`, then in the folder above that. The `__init__.py` of `team`, if there is one, runs before its first app.

Not bent are names that are made at run time (`importlib.import_module("tools")`): write `import_module(".tools",
__package__)`.
"""

from __future__ import annotations

import ast
import importlib.util
import itertools
import sys
from collections.abc import Sequence
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
from types import CodeType, ModuleType
from typing import Any

_numbers = itertools.count(1)


class PrivatePackage(MetaPathFinder):
    """A folder as a package of its own. Stays findable as long as the process lives: apps import late, too.

    apps: names of the apps in it, as far as they are known. A module of none of these counts as one of the folder right
    in this one that it is in.
    """

    def __init__(self, folder: Path) -> None:
        number = next(_numbers)
        self.name = "greenroom_apps" if number == 1 else f"greenroom_apps_{number}"
        self.folder = folder
        self.apps: AbstractSet[str] = frozenset()
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
        found = (self._find_in(folder, fullname) for folder in path or ())
        return next((spec for spec in found if spec is not None), None)

    def has(self, dotted: str) -> bool:
        """Whether there is such a module, or a folder with Python files: `shop`, `shop.tools`."""
        *parents, name = dotted.split(".")
        spec = self._find_in(str(self.folder.joinpath(*parents)), name)
        if spec is None:
            return False
        return spec.loader is not None or any(self.folder.joinpath(*parents, name).glob("*.py"))

    def hiding(self, dotted: str) -> Path | None:
        """The module that keeps what is below a folder of the same name from being imported."""
        parts = dotted.split(".")
        for end in range(1, len(parts)):
            spec = self._find_in(str(self.folder.joinpath(*parts[: end - 1])), parts[end - 1])
            if spec is not None and spec.submodule_search_locations is None and spec.origin is not None:
                return Path(spec.origin)
        return None

    def app_of(self, module: str, apps: AbstractSet[str]) -> str | None:
        """Which of the apps a loaded module belongs to."""
        dotted = module[len(self.name) + 1 :]
        end = dotted.find(".")
        while end != -1:
            if dotted[:end] in apps:
                return dotted[:end]
            end = dotted.find(".", end + 1)
        return dotted if dotted in apps else None

    def forget(self, modules: set[str]) -> None:
        """Drop modules, so that they are imported anew."""
        for module in modules:
            sys.modules.pop(module, None)
            parent, _, name = module.rpartition(".")
            if parent in sys.modules:
                vars(sys.modules[parent]).pop(name, None)

    def loaded(self) -> set[str]:
        return {name for name in list(sys.modules) if name.startswith(self.name + ".")}

    def _find_in(self, folder: str, fullname: str) -> ModuleSpec | None:
        # A finder of its own for each question: one that is kept trusts its listing for as long as the folder's mtime
        # looks the same, which can hide a file that was just written.
        # It only calls what is typed as a class.
        bending: Any = partial(_BendingLoader, self)
        finder = FileFinder(folder, (ExtensionFileLoader, EXTENSION_SUFFIXES), (bending, SOURCE_SUFFIXES))
        return finder.find_spec(fullname)


class _BendingLoader(SourceFileLoader):
    def __init__(self, package: PrivatePackage, fullname: str, path: str) -> None:
        super().__init__(fullname, path)
        self._package = package

    def get_code(self, fullname: str) -> CodeType:
        # No `__pycache__`: what is cached there belongs to the source as it is written.
        path = self.get_filename(fullname)
        tree = ast.parse(self.get_data(path), path)
        app = self._package.app_of(fullname, self._package.apps)
        if app is None:
            app = fullname.removeprefix(self._package.name + ".").partition(".")[0]
        bent = _Bender(self._package, app).visit(tree)
        return compile(bent, path, "exec", dont_inherit=True)


class _Bender(ast.NodeTransformer):
    def __init__(self, package: PrivatePackage, app: str) -> None:
        self._package = package
        self._app = app
        parts = app.split(".")
        self._around = [parts[:end] for end in range(len(parts) - 1, -1, -1)]
        """The folders that the app's folder is in, the innermost first."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Any:
        if node.level == 0 and node.module is not None:
            prefix = self._prefix(node.module, [alias.name for alias in node.names])
            if prefix is not None:
                node.module = f"{prefix}.{node.module}"
        return node

    def visit_Import(self, node: ast.Import) -> Any:
        imports = [ast.Import(names=[name]) for alias in node.names for name in self._bend(alias)]
        return [ast.copy_location(statement, node) for statement in imports]

    def _bend(self, alias: ast.alias) -> list[ast.alias]:
        prefix = self._prefix(alias.name, [])
        if prefix is None:
            return [alias]
        first = alias.name.partition(".")[0]
        whole = ast.alias(name=f"{prefix}.{alias.name}", asname=alias.asname or first)
        if alias.asname is not None or alias.name == first:
            return [_at(whole, alias)]
        # `import shop.tools` loads the module and binds `shop`, which needs a second statement under another name.
        return [_at(whole, alias), _at(ast.alias(name=f"{prefix}.{first}", asname=first), alias)]

    def _prefix(self, module: str, names: list[str]) -> str | None:
        """The private package that the absolute name `module` is in; `names` are imported from it."""
        private, app = self._package, self._app.split(".")
        parts = module.split(".")
        if parts[0] in sys.stdlib_module_names:
            return None
        for above in self._around:
            own = app[len(above) :]
            named = parts[len(own) : len(own) + 1] or names
            if parts[: len(own)] == own and any(self._has([*app, name]) for name in named):
                return ".".join([private.name, *above])
        if self._has_any(app, parts, names):
            return f"{private.name}.{self._app}"
        if _is_installed(parts[0], besides={private.folder.joinpath(*above, parts[0]) for above in self._around}):
            return None
        for above in self._around:
            if self._has_any(above, parts, names):
                return ".".join([private.name, *above])
        return None

    def _has_any(self, above: list[str], parts: list[str], names: list[str]) -> bool:
        """Whether the first part is there, or what is named in it: a folder may have modules in other folders only."""
        if self._has([*above, parts[0]]):
            return True
        if not self._package.folder.joinpath(*above, parts[0]).is_dir():
            return False
        return any(self._has([*above, *parts, *more]) for more in ([], *([name] for name in names)))

    def _has(self, parts: list[str]) -> bool:
        return self._package.has(".".join(parts))


def _at(alias: ast.alias, place: ast.alias) -> ast.alias:
    return ast.copy_location(alias, place)


def _is_installed(name: str, *, besides: set[Path]) -> bool:
    """Whether `name` can be imported from `sys.path`, apart from what is asked about itself, folders or files."""
    try:
        spec = importlib.util.find_spec(name)
    except (ValueError, ImportError):  # a module that was made by hand, as `__main__` is
        return name in sys.modules
    if spec is None:
        return False
    places = [Path(place).resolve() for place in (spec.origin, *(spec.submodule_search_locations or ())) if place]
    own = {file for place in besides for file in (place, place.with_suffix(".py"), place / "__init__.py")}
    return own.isdisjoint(places)
