//! Calls that fit each other, and calls that do not: each difference is reported by its own class and with the members
//! that differ.

use super::call::{Call, Pieces, Root};
use super::compare::{About, Mismatch, compare};
use crate::datatype;
use proptest::prelude::*;
use redrt_abi::handle::DatatypeHandle;
use redrt_abi::{MPI_ERR_COUNT, MPI_ERR_OP, MPI_ERR_OTHER, MPI_ERR_ROOT, MPI_ERR_TRUNCATE, MPI_ERR_TYPE};
use redrt_datatype::signature::Signature;

fn ints(count: i64) -> Signature {
    datatype::resolve(DatatypeHandle::INT).expect("a predefined type").signature(count)
}

fn floats(count: i64) -> Signature {
    datatype::resolve(DatatypeHandle::FLOAT).expect("a predefined type").signature(count)
}

fn bcast(root: u32, alike: Signature) -> Call {
    Call { function: "MPI_Bcast".into(), root: Some(Root::Rank(root)), alike: Some(alike), ..Call::default() }
}

#[track_caller]
fn differ(calls: Vec<Call>, one: usize, other: usize, about: About, class: i32) {
    let expected = Mismatch { one: (0, one), other: (0, other), about };
    assert_eq!(compare(&[calls]), Some(expected));
    assert_eq!(about.class(), class);
}

#[test]
fn each_difference_has_its_class_and_its_members() {
    let call = || bcast(1, ints(3));
    assert_eq!(compare(&[vec![call(), call(), call()]]), None);
    let barrier = Call { function: "MPI_Barrier".into(), ..Call::default() };
    differ(vec![call(), call(), barrier], 0, 2, About::Function, MPI_ERR_OTHER);
    differ(vec![call(), bcast(0, ints(3)), call()], 0, 1, About::Root, MPI_ERR_ROOT);
    differ(vec![call(), call(), bcast(1, ints(4))], 0, 2, About::Lengths(12, 16), MPI_ERR_TRUNCATE);
    differ(vec![call(), bcast(1, floats(3)), call()], 0, 1, About::Types, MPI_ERR_TYPE);
    let reduce = |code, shares: &[i64]| Call { reduction: Some(code), shares: Some(shares.into()), ..Call::default() };
    differ(vec![reduce(1, &[1, 2]), reduce(2, &[1, 2])], 0, 1, About::Reduction, MPI_ERR_OP);
    differ(vec![reduce(1, &[1, 2]), reduce(1, &[2, 1])], 0, 1, About::Shares, MPI_ERR_COUNT);
}

#[test]
fn packed_bytes_fit_all_elements() {
    let packed = datatype::resolve(DatatypeHandle::PACKED).expect("a predefined type").signature(12);
    assert_eq!(compare(&[vec![bcast(0, packed), bcast(0, ints(3))]]), None);
    differ(vec![bcast(0, packed), bcast(0, ints(4))], 0, 1, About::Lengths(12, 16), MPI_ERR_TRUNCATE);
}

#[test]
fn what_one_sends_the_other_expects() {
    let root = |sizes: [i64; 2]| Call {
        takes: Pieces::Each((0..2).map(|rank| (rank, ints(sizes[rank as usize]))).collect()),
        gives: Pieces::Each(vec![(0, ints(sizes[0]))]),
        ..Call::default()
    };
    let member = |count| Call { gives: Pieces::Each(vec![(0, ints(count))]), ..Call::default() };
    assert_eq!(compare(&[vec![root([1, 5]), member(5)]]), None);
    differ(vec![root([1, 5]), member(4)], 1, 0, About::PieceLength(16, 20), MPI_ERR_TRUNCATE);
    let wrong = Call { gives: Pieces::Each(vec![(0, floats(5))]), ..Call::default() };
    differ(vec![root([1, 5]), wrong], 1, 0, About::PieceTypes, MPI_ERR_TYPE);
}

#[test]
fn of_two_groups_one_has_the_root() {
    let call = |root, alike: Option<Signature>| Call { root: Some(root), alike, ..Call::default() };
    let here = || vec![call(Root::Beside, None), call(Root::Here, Some(ints(2)))];
    let there = |root| vec![call(Root::Rank(root), Some(ints(2))), call(Root::Rank(1), Some(ints(2)))];
    assert_eq!(compare(&[here(), there(1)]), None);
    assert_eq!(compare(&[there(1), here()]), None);
    let wrong = Some(Mismatch { one: (0, 1), other: (1, 0), about: About::Root });
    assert_eq!(compare(&[here(), there(0)]), wrong);
    let nobody = vec![call(Root::Beside, None), call(Root::Beside, None)];
    assert!(compare(&[nobody, there(1)]).is_some());
    assert!(compare(&[here(), here()]).is_some());
    assert!(compare(&[there(1), there(1)]).is_some());
}

#[test]
fn across_groups_pieces_go_to_the_other() {
    let gives = |count| Call { gives: Pieces::All(ints(count)), takes: Pieces::All(ints(1)), ..Call::default() };
    let takes = |count| Call { gives: Pieces::All(ints(1)), takes: Pieces::All(ints(count)), ..Call::default() };
    assert_eq!(compare(&[vec![gives(2), gives(2)], vec![takes(2)]]), None);
    let found = compare(&[vec![gives(2), gives(3)], vec![takes(2)]]);
    assert_eq!(found, Some(Mismatch { one: (0, 1), other: (1, 0), about: About::PieceLength(12, 8) }));
}

proptest! {
    /// An exchange by a table; then one entry is changed for its receiver alone.
    #[test]
    fn one_wrong_entry_is_found_where_it_is(
        counts in prop::collection::vec(prop::collection::vec(0i64..5, 4), 4), from in 0usize..4, to in 0usize..4,
    ) {
        let given = |rank: usize| (0..4).map(|to| (to as u32, ints(counts[rank][to]))).collect();
        let mut calls: Vec<_> = (0..4).map(|rank| {
            let taken = (0..4).map(|from| (from as u32, ints(counts[from][rank]))).collect();
            Call { gives: Pieces::Each(given(rank)), takes: Pieces::Each(taken), ..Call::default() }
        }).collect();
        prop_assert_eq!(compare(std::slice::from_ref(&calls)), None);
        let Pieces::Each(taken) = &mut calls[to].takes else { unreachable!() };
        taken[from].1 = ints(counts[from][to] + 1);
        let bytes = counts[from][to] as u64 * 4;
        let about = About::PieceLength(bytes, bytes + 4);
        prop_assert_eq!(compare(&[calls]), Some(Mismatch { one: (0, from), other: (0, to), about }));
    }
}
