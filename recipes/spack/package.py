# Copyright redrt's authors. SPDX-License-Identifier: MIT OR Apache-2.0
"""Spack's recipe: copy it to packages/redrt/package.py of a repository of your own, and put the address of the sources in."""

from spack.package import *


class Redrt(Package):
    """MPI over replicated processes, with live copies onto spare hosts, checkpoints, and programs that were built for other MPIs."""

    homepage = "https://example.invalid/redrt"
    git = "https://example.invalid/redrt.git"

    license("MIT OR Apache-2.0")
    version("main", branch="main")
    version("0.2.0", tag="v0.2.0")

    variant("fortran", default=True, description="Modules mpi and mpi_f08 for the compiler of Fortran")

    depends_on("c", type="build")
    depends_on("fortran", type="build", when="+fortran")
    depends_on("rust@1.95:", type="build")
    provides("mpi@:5.0")

    def install(self, spec, prefix):
        installer = Executable("scripts/install.sh")
        installer(prefix)

    def setup_run_environment(self, env):
        for variable, name in (("MPICC", "mpicc"), ("MPICXX", "mpicxx"), ("MPIF77", "mpif77"), ("MPIF90", "mpif90")):
            env.set(variable, join_path(self.prefix.bin, name))

    def setup_dependent_build_environment(self, env, dependent_spec):
        self.setup_run_environment(env)

    def setup_dependent_package(self, module, dependent_spec):
        self.spec.mpicc = join_path(self.prefix.bin, "mpicc")
        self.spec.mpicxx = join_path(self.prefix.bin, "mpicxx")
        self.spec.mpif77 = join_path(self.prefix.bin, "mpif77")
        self.spec.mpifc = join_path(self.prefix.bin, "mpif90")
