"""PETSc by petsc4py: Poisson's equation in one dimension, by conjugate gradients, with vectors and a matrix that are
distributed over all ranks."""

import sys

import petsc4py

petsc4py.init(sys.argv)
from petsc4py import PETSc  # noqa: E402

count = 2000
matrix = PETSc.Mat().createAIJ([count, count], nnz=3)
matrix.setUp()
first, end = matrix.getOwnershipRange()
for row in range(first, end):
    matrix[row, row] = 2.0
    if row > 0:
        matrix[row, row - 1] = -1.0
    if row < count - 1:
        matrix[row, row + 1] = -1.0
matrix.assemble()
right = matrix.createVecLeft()
right.set(1.0)
solution = matrix.createVecRight()
solver = PETSc.KSP().create()
solver.setOperators(matrix)
solver.setType("cg")
solver.getPC().setType("jacobi")
solver.setTolerances(rtol=1e-10, max_it=5000)
solver.solve(right, solution)
residual = (matrix * solution - right).norm()
norm = solution.norm()
if PETSc.COMM_WORLD.rank == 0:
    print(f"{solver.getIterationNumber()} iterations, norm {norm:.10g}, right: {residual < 1e-6}")
