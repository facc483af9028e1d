//! `mpif.h`, valid in fixed and free form: statements between columns 7 and 72, comments by `!`.

use super::{Dialect, PREFIXES, SENTINELS, block, fortran_value, functions, is_fortran_constant, line};
use crate::fortran::declare::number;
use crate::kind::Shape;
use crate::parse::Table;

const HEAD: &str = "! mpif.h of redrt, for programs in fixed or free form. Generated.
! New programs had better use the module mpi_f08.
      INTEGER MPI_ADDRESS_KIND, MPI_COUNT_KIND, MPI_OFFSET_KIND
      INTEGER MPI_INTEGER_KIND
      PARAMETER (MPI_ADDRESS_KIND=SELECTED_INT_KIND(18))
      PARAMETER (MPI_COUNT_KIND=SELECTED_INT_KIND(18))
      PARAMETER (MPI_OFFSET_KIND=SELECTED_INT_KIND(18))
      PARAMETER (MPI_INTEGER_KIND=KIND(0))
! A division by zero where an INTEGER is no C int, as with an option
! that makes it larger.
      INTEGER REDRT_INTEGER_IS_INT
      PARAMETER (REDRT_INTEGER_IS_INT=1/(64/BIT_SIZE(0)-1))
      INTEGER MPI_STATUS_SIZE, MPI_SOURCE, MPI_TAG, MPI_ERROR
      PARAMETER (MPI_STATUS_SIZE=8, MPI_SOURCE=1, MPI_TAG=2)
      PARAMETER (MPI_ERROR=3)
      LOGICAL MPI_SUBARRAYS_SUPPORTED
      PARAMETER (MPI_SUBARRAYS_SUPPORTED=.FALSE.)
      LOGICAL MPI_ASYNC_PROTECTS_NONBLOCKING
      PARAMETER (MPI_ASYNC_PROTECTS_NONBLOCKING=.FALSE.)
      INTEGER MPI_STATUS_IGNORE(MPI_STATUS_SIZE)
      COMMON /redrt_mpi_status_ignore/ MPI_STATUS_IGNORE
      INTEGER MPI_STATUSES_IGNORE(MPI_STATUS_SIZE,1)
      COMMON /redrt_mpi_statuses_ignore/ MPI_STATUSES_IGNORE
";

/// The text of `mpif.h`.
#[must_use]
pub fn render_mpif_h(table: &Table) -> String {
    let mut out = HEAD.to_owned();
    for (name, base, shape) in SENTINELS {
        line(&mut out, format_args!("      {base} {name}{shape}"));
        line(&mut out, format_args!("      COMMON /{}/ {name}", block(name)));
    }
    for constant in table.constants.iter().filter(|c| is_fortran_constant(c)) {
        let name = &constant.name;
        let (base, value) = match constant.kind.shape {
            Shape::Scalar => (number(constant.kind.c), fortran_value(constant)),
            Shape::Handle => ("INTEGER", constant.value),
            Shape::Function if name != "MPI_CONVERSION_FN_NULL_C" => {
                line(&mut out, format_args!("      EXTERNAL {name}"));
                continue;
            }
            _ => continue,
        };
        line(&mut out, format_args!("      {base} {name}\n      PARAMETER ({name}={value})"));
    }
    for prefix in PREFIXES {
        for function in functions(table, Dialect::Old) {
            if let Some(kind) = function.returns {
                let name = function.name.replacen("MPI_", prefix, 1);
                line(&mut out, format_args!("      {} {name}\n      EXTERNAL {name}", number(kind.c)));
            }
        }
    }
    out
}
