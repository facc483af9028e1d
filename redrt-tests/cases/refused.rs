//! Calls that replicas are refused, by the list from which `docs/mpi-coverage.md` is made.

use mpi_table::REFUSED;
use redrt_tests::{Job, compile_case};

#[test]
fn replicas_and_copyable_processes_are_refused_the_listed_calls() {
    let expected: String = REFUSED.iter().map(|(name, class)| format!("{name} {class}\n")).collect();
    for options in [["-r", "2"], ["--spares", "1"]] {
        let ended = Job::new(2, &compile_case("refused")).options(&options).run().ended_well();
        assert_eq!(ended.out, expected, "{ended}");
        // The program hides the errors: the user is told of each once, with the remedy.
        for (name, _) in REFUSED {
            let told: Vec<_> =
                ended.err.lines().filter(|line| line.contains(&format!("{name} was refused: "))).collect();
            assert!(told.len() == 1 && told[0].contains("with redrun -r 1 without --spares"), "{name}: {ended}");
        }
    }
}
