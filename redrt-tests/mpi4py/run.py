"""Runs mpi4py's own test suite without the tests that the lists of exclusions name, and counts.

    run.py TESTDIR EXCLUSIONS[,EXCLUSIONS]... [OPTION OF TESTDIR/main.py]...

Prints one line on standard output, from rank 0: how many tests ran, passed, failed, were skipped by the suite itself, and
were left out by the lists. The exit code is that of the suite.
"""

import fnmatch
import os
import sys


def run():
    sys.dont_write_bytecode = True
    directory, exclusions, *options = sys.argv[1:]
    sys.path.insert(0, directory)

    patterns = []
    for path in exclusions.split(","):
        with open(path, encoding="utf-8") as lines:
            patterns += [line.split("#")[0].strip() for line in lines]
    patterns = [pattern for pattern in patterns if pattern]
    files = [pattern for pattern in patterns if "." not in pattern]
    names = [pattern for pattern in patterns if "." in pattern]
    used = set()
    excluded = []

    import main  # noqa: E402  (the suite's, from its directory)

    class Loader(main.TestLoader):
        """Leaves out what is listed."""

        def _match_path(self, path, full_path, pattern):
            name = os.path.splitext(path)[0]
            if name in files:
                used.add(name)
                return False
            return super()._match_path(path, full_path, pattern)

        def getTestCaseNames(self, test_case):
            found = super().getTestCaseNames(test_case)
            prefix = f"{test_case.__module__}.{test_case.__qualname__}."
            kept = []
            for name in found:
                matching = [pattern for pattern in names if fnmatch.fnmatchcase(prefix + name, pattern)]
                used.update(matching)
                if matching:
                    excluded.append(prefix + name)
                else:
                    kept.append(name)
            return kept

    class Program(main.TestProgram):
        """Counts at the end."""

        def runTests(self):
            try:
                super().runTests()
            finally:
                result = self.result
                # When several parts of a test fail, it is still one failed test.
                failed = {getattr(test, "test_case", test).id() for test, _ in result.failures + result.errors}
                skipped = len(result.skipped)
                from mpi4py import MPI

                if MPI.COMM_WORLD.rank == 0:
                    left_out = sum(1 for name in files if name in used)
                    print(
                        f"{result.testsRun} ran, {result.testsRun - len(failed) - skipped} passed, {len(failed)} failed, "
                        f"{skipped} skipped by the suite; left out: {len(excluded)} tests and {left_out} files",
                        flush=True,
                    )
                    if "-i" not in options:
                        unused = [pattern for pattern in patterns if pattern not in used]
                        if unused:
                            print("exclusions that match nothing:", *unused, flush=True)

    main.TestLoader = Loader
    sys.argv = [os.path.join(directory, "main.py"), *options]
    Program(module=None)


# Processes that the suite's own tests spawn import this file again.
if __name__ == "__main__":
    run()
