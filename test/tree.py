"""The project's source files, as the house checks see them."""
import os
import pathlib

FOLDERS = ("include", "lib", "drivers", "apps", "test", "bench", "config", ".ci")
CPP = (".h", ".cc", ".c")


def root_of(argv):
    """The source tree: the first argument, or the folder above this one."""
    return pathlib.Path(argv[1] if len(argv) > 1 else pathlib.Path(__file__).parents[1]).resolve()


def source_files(root, suffixes=CPP, folders=FOLDERS):
    """Files with one of the suffixes, sorted; hidden folders, build folders and corpora are left out."""
    found = []
    for folder in folders:
        for path, names, files in os.walk(root / folder):
            names[:] = [name for name in names if not name.startswith((".", "build", "__", "corpus"))]
            found += [pathlib.Path(path, file) for file in files if file.endswith(suffixes)]
    return sorted(found)
