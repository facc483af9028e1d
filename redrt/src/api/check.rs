//! Checks of arguments that several modules make.

use crate::abi::MPI_ERR_COUNT;
use crate::error::Result;
use crate::fail;

/// A count of elements.
pub(crate) fn check_count(count: i64) -> Result<i64> {
    if count < 0 {
        fail!(MPI_ERR_COUNT, "the count is {count}");
    }
    Ok(count)
}
