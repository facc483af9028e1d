//! `redrt-calm`: a job over several hosts under load, without deaths, for a given time. No host or process may be taken
//! for dead.
//!
//! Four ranks for each core compute and exchange messages over TCP; further jobs fill the links between the hosts;
//! daemons and processes are stopped for moments shorter than the time in which a death is found.

use clap::Parser;
use redrt_tests::lab::lab;
use redrt_tests::{Job, Lab, Random, compile, compile_source};
use std::process::ExitCode;
use std::thread::{available_parallelism, sleep};
use std::time::{Duration, Instant};

const HOSTS: &str = "h1,h2,h3,h4";
/// Longest stop of a process. With the default `--detect-timeout` of 1 s a host may be silent for 0.85 s.
const STOP_MS_MAX: u64 = 400;

/// Sends large messages round all hosts until the stop file is there.
const FILLING: &str = r#"
#include <mpi.h>
#include <unistd.h>
static char out[4 << 20], in[4 << 20];
int main(int argc, char **argv) {
    int rank, size, stop = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    while (!stop) {
        MPI_Sendrecv(out, sizeof out, MPI_CHAR, (rank + 1) % size, 0, in, sizeof in, MPI_CHAR, (rank + size - 1) % size, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == 0) stop = access(argv[1], F_OK) == 0;
        MPI_Bcast(&stop, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
"#;

/// Loads four hosts and stops daemons and processes for moments until the time is over.
#[derive(Parser)]
struct CalmArguments {
    /// Running time in seconds.
    #[arg(long, default_value_t = 600)]
    seconds: u64,

    /// Seed of everything random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn send(signal: i32, process: i32) {
    // SAFETY: - the call takes any number; the process is one of the lab's.
    unsafe { libc::kill(process, signal) };
}

/// Draws a process on a host, to be stopped for a moment.
fn victim(lab: &Lab, random: &mut Random) -> Option<i32> {
    let host = *random.one_of(&["h2", "h3", "h4"]);
    let program = *random.one_of(&["redrtd", "until"]);
    let processes = lab.processes(host, program);
    // Of a host's `redrtd` processes the newest is the daemon; the others are guards.
    if program == "redrtd" { processes.into_iter().max() } else { processes.into_iter().next() }
}

fn main() -> ExitCode {
    let arguments = CalmArguments::parse();
    let Some(lab) = lab(4) else { return ExitCode::SUCCESS };
    let mut random = Random::new(arguments.seed);
    let cores = available_parallelism().map_or(1, |count| count.get() as u32);
    let stop = lab.path("stop").display().to_string();
    // With two replicas of each, four processes run on a core.
    let job = Job::new(2 * cores, &compile("until")).arguments(&[&stop]).degree(2).on_hosts(&lab, HOSTS);
    let job = job.options(&["--transport", "tcp"]).limit(Duration::from_secs(arguments.seconds + 120)).start();
    let (_directory, filling) = compile_source(FILLING);
    let filler = Job::new(4, &filling).arguments(&[&stop]).on_hosts(&lab, HOSTS);
    let filler = filler.options(&["-ppn", "1"]).limit(Duration::from_secs(arguments.seconds + 120)).start();
    job.wait_until("computing", |job| job.output().contains("computing"));
    let (begin, mut stops) = (Instant::now(), 0);
    while begin.elapsed() < Duration::from_secs(arguments.seconds) {
        if let Some(process) = victim(&lab, &mut random) {
            send(libc::SIGSTOP, process);
            sleep(Duration::from_millis(random.from_one_to(STOP_MS_MAX)));
            send(libc::SIGCONT, process);
            stops += 1;
        }
        sleep(Duration::from_millis(random.from_one_to(1000)));
    }
    std::fs::write(&stop, "").expect("it can be written");
    let ended = job.wait();
    let alarms: usize =
        ["daemon-lost", "replica-lost", "retired"].map(|event| ended.events(event).count()).iter().sum();
    let filled = filler.wait();
    let seconds = begin.elapsed().as_secs();
    println!(
        "{seconds} s, {} processes on {cores} cores, {stops} stops, seed {}: {alarms} false alarms",
        4 * cores,
        arguments.seed
    );
    if alarms == 0 && filled.code == Some(0) && ended.code == Some(0) {
        return ExitCode::SUCCESS;
    }
    println!("{ended}{filled}");
    ExitCode::FAILURE
}
