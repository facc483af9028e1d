//! A few whole jobs. Thousands of jobs, and planted bugs, are run where the library is built with optimizations
//! (`tools/redrt-sim`).

use super::{LibrarySimulator, ProgramKind, Shape};
use simulation_kit::sweep::right;
use simulation_kit::{Named, Setup};

fn shaped(shape: Shape) -> Setup<LibrarySimulator> {
    Setup::default().shaped(shape)
}

#[test]
fn jobs_with_and_without_losses_have_the_promised_results() {
    for kind in ProgramKind::ALL.iter().copied() {
        let shape = Shape { kind: Some(kind), ..Shape::default() };
        right(1..2, &shaped(Shape { is_undisturbed: true, ..shape }));
        right(2..5, &shaped(shape));
    }
}

#[test]
fn a_process_that_waits_for_its_last_fragment_goes_to_sleep() {
    // Synchronous sends of several fragments, at r = 1, over links with little room.
    let kind = Some(ProgramKind::Messages);
    right(0..30, &shaped(Shape { kind, degree: Some(1), is_undisturbed: true, ..Shape::default() }));
}
