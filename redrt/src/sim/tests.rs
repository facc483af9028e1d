//! Whole jobs.

use super::{Kind, Options, run};

fn seeds(options: &Options, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let begin = std::time::Instant::now();
        let result = run(seed, options);
        eprintln!("{seed} {:?} {:?} {result:?}", options.kind, begin.elapsed());
        if let Err(failure) = result {
            panic!("seed {seed}: {failure}");
        }
    }
}

#[test]
fn jobs_without_losses_have_the_results_that_mpi_promises() {
    for kind in Kind::ALL {
        seeds(&Options { kind: Some(kind), is_undisturbed: true, ..Options::default() }, 0..20);
    }
}

#[test]
fn jobs_that_lose_processes_have_the_same_results() {
    for kind in Kind::ALL {
        seeds(&Options { kind: Some(kind), ..Options::default() }, 100..140);
    }
}

#[test]
#[ignore = "one seed, by hand"]
fn one() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let kind = number("KIND").map(|kind: u64| Kind::ALL[kind as usize]);
    let options = Options { kind, is_undisturbed: number("CALM") == Some(1), traces: true, ..Options::default() };
    println!("{:?}", run(number("SEED").unwrap_or(0), &options));
}
