//! What replicas are refused, by the list that `docs/mpi-coverage.md` is made from.

use mpi_table::REFUSED;
use redrt_tests::{Job, compile_case};

#[test]
fn replicas_and_processes_that_can_be_copied_are_refused_what_the_table_says() {
    let expected: String = REFUSED.iter().map(|(name, class)| format!("{name} {class}\n")).collect();
    for options in [["-r", "2"], ["--spares", "1"]] {
        let ended = Job::new(2, &compile_case("refused")).options(&options).run().ended_well();
        assert_eq!(ended.out, expected, "{ended}");
        // The program has hidden the errors: the user is told once of each, and what to do.
        for (name, _) in REFUSED {
            let told: Vec<_> =
                ended.err.lines().filter(|line| line.contains(&format!("{name} was refused: "))).collect();
            assert!(told.len() == 1 && told[0].contains("with redrun -r 1 without --spares"), "{name}: {ended}");
        }
    }
}
