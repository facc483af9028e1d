//! Arithmetic of topologies (MPI-5.0 chapter 8) that needs no communicator.

use redrt_abi::error::{Error, Result};
use redrt_abi::fail;
use redrt_abi::{MPI_ERR_ARG, MPI_ERR_DIMS, Output};
use std::ffi::c_int;

/// `MPI_Dims_create`.
pub fn dims_create(nnodes: c_int, ndims: c_int, dims: Output<c_int>) -> Result {
    if nnodes < 1 || ndims < 0 {
        fail!(MPI_ERR_ARG, "{nnodes} processes in {ndims} dimensions");
    }
    let balanced = balance(nnodes, dims.slice(ndims)?)?;
    for (index, dimension) in balanced.into_iter().enumerate() {
        dims.set_at(index, dimension)?;
    }
    Ok(())
}

/// Fills the dimensions that are 0. The product of all is `nnodes`; the new ones are as close to each other as possible
/// and not increasing (section 8.5.2).
///
/// # Errors
/// `MPI_ERR_DIMS` when the given dimensions are negative or do not divide `nnodes`.
pub fn balance(nnodes: c_int, dims: &[c_int]) -> Result<Vec<c_int>> {
    let given = dims.iter().filter(|dimension| **dimension != 0);
    let wrong = || Error::new(MPI_ERR_DIMS, format!("{nnodes} processes do not fill dimensions {dims:?}"));
    let product = given.clone().try_fold(1, |product: c_int, dimension| product.checked_mul(*dimension));
    let product = product.filter(|product| *product > 0 && nnodes % product == 0).ok_or_else(wrong)?;
    let free_count = dims.len() - given.clone().count();
    if given.clone().any(|dimension| *dimension < 0) || (free_count == 0 && product != nnodes) {
        return Err(wrong());
    }
    let mut best = Vec::new();
    let rest = nnodes / product;
    search(rest, free_count, &divisors(rest), &mut Vec::new(), &mut best);
    let mut best = best.into_iter();
    let fill = |dimension: &c_int| if *dimension == 0 { best.next().unwrap_or(1) } else { *dimension };
    Ok(dims.iter().map(fill).collect())
}

/// All divisors, the largest first.
fn divisors(number: c_int) -> Vec<c_int> {
    let small = (1..).take_while(|divisor| i64::from(*divisor).pow(2) <= i64::from(number));
    let mut all: Vec<c_int> = small.filter(|divisor| number % divisor == 0).collect();
    all.extend(all.clone().into_iter().map(|divisor| number / divisor));
    all.sort_unstable_by(|a, b| b.cmp(a));
    all.dedup();
    all
}

/// Finds `count` factors of `rest` among `divisors`, not increasing, with the smallest spread, then the smallest
/// largest factor.
fn search(rest: c_int, count: usize, divisors: &[c_int], chosen: &mut Vec<c_int>, best: &mut Vec<c_int>) {
    let spread = |factors: &[c_int]| (factors[0] - factors[factors.len() - 1], factors[0]);
    if count == 0 {
        if rest == 1 && !chosen.is_empty() && (best.is_empty() || spread(chosen) < spread(best)) {
            best.clone_from(chosen);
        }
        return;
    }
    let largest = chosen.last().copied().unwrap_or(rest).min(rest);
    for &factor in divisors.iter().filter(|factor| **factor <= largest && rest % **factor == 0) {
        // `count` factors of this size or smaller cannot reach the rest.
        if i64::from(factor).checked_pow(count as u32).is_some_and(|reach| reach < i64::from(rest)) {
            break;
        }
        chosen.push(factor);
        search(rest / factor, count - 1, divisors, chosen, best);
        chosen.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_are_balanced_and_not_increasing() {
        let cases: &[(c_int, &[c_int], &[c_int])] = &[
            (6, &[0, 0], &[3, 2]),
            (7, &[0, 0], &[7, 1]),
            (6, &[0, 3, 0], &[2, 3, 1]),
            (24, &[0, 0, 0], &[4, 3, 2]),
            (64, &[0, 0, 0], &[4, 4, 4]),
            (1, &[0, 0], &[1, 1]),
            (36, &[0, 0, 0], &[4, 3, 3]),
            (12, &[4, 3], &[4, 3]),
            (1_048_576, &[0, 0], &[1024, 1024]),
            (2_147_483_647, &[0], &[2_147_483_647]),
        ];
        for (nnodes, dims, expected) in cases {
            assert_eq!(balance(*nnodes, dims).unwrap(), *expected, "{nnodes} {dims:?}");
        }
        for (nnodes, dims) in [(7, [0, 3]), (6, [-1, 0]), (12, [4, 4]), (12, [2, 3])] {
            assert_eq!(balance(nnodes, &dims).unwrap_err().code(), MPI_ERR_DIMS);
        }
    }
}
