//! `redrt-lab-measure`: times of a launch and of the detection of a death, and messages between two hosts beside other
//! libraries, over the hosts of a lab.

mod tcp;

use clap::{Parser, ValueEnum};
use redrt_tests::lab::lab;
use redrt_tests::quorum::{OWN, Quorum};
use redrt_tests::{Job, Lab, Running, compile, compile_source};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Measures on hosts in namespaces of this machine and prints a table.
#[derive(Parser)]
struct MeasureArguments {
    /// The measurement.
    what: What,

    /// Number of repetitions.
    #[arg(long, default_value_t = 50)]
    count: usize,

    /// Launches of this number of processes.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 64, 256])]
    processes: Vec<u32>,
}

#[derive(ValueEnum, Clone, Copy)]
enum What {
    /// From the start of redrun to its end, for a program that only begins and ends; in turn with a coordinator that
    /// can come back, and with three coordinators.
    Launch,
    /// From a death to its record in the audit log of redrun.
    Detect,
    /// From a request to end a replica (`redctl kill`) to the record of its loss, with one decision between; with a
    /// coordinator that can come back, and with three coordinators.
    Decide,
    /// Messages between two hosts, beside Open MPI and MPICH.
    Tcp,
}

const EIGHT: &str = "h1,h2,h3,h4,h5,h6,h7,h8";

/// Microseconds since midnight.
fn now_us() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is set");
    now.as_micros() as u64 % 86_400_000_000
}

/// Microseconds since midnight of a record's time, `2026-01-31T12:34:56.123456Z`.
fn time_us(record: &serde_json::Value) -> Option<u64> {
    let text = record["time"].as_str()?;
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
    Some(((number(11, 13)? * 60 + number(14, 16)?) * 60 + number(17, 19)?) * 1_000_000 + number(20, 26)?)
}

fn summary(name: &str, mut times_ms: Vec<f64>) {
    times_ms.sort_by(f64::total_cmp);
    let at = |part: f64| times_ms[((times_ms.len() - 1) as f64 * part).round() as usize];
    let count = times_ms.len();
    println!("{name:<28} {count:>5} {:>10.2} {:>10.2} {:>10.2} {:>10.2}", at(0.0), at(0.5), at(0.99), at(1.0));
}

fn heading(what: &str) {
    println!("{what:<28} {:>5} {:>10} {:>10} {:>10} {:>10}", "count", "min ms", "median ms", "p99 ms", "max ms");
}

fn start(lab: &Lab, rank_count: u32, options: &[&str]) -> Running {
    let program = compile("until");
    let job = Job::new(rank_count, &program).arguments(&[&lab.path("stop").display().to_string()]).options(options);
    let job = job.degree(2).on_hosts(lab, EIGHT).environment(OWN.0, OWN.1).limit(Duration::from_secs(300)).start();
    job.wait_until("computing", |job| job.output().contains("computing"));
    job
}

/// Time of the `number`-th record of a kind, once it is there.
fn record_time(job: &Running, event: &str, number: usize) -> u64 {
    let found = |job: &Running| {
        let records = job.audit();
        let mut records = records.iter().filter(|record| record["event"] == event);
        records.nth(number).and_then(time_us)
    };
    job.wait_until(event, |job| found(job).is_some());
    found(job).expect("it was there a moment ago")
}

/// Milliseconds from a death to its record. An earlier record would be of another loss.
fn since(death_us: u64, record_us: u64, job: &Running) -> f64 {
    let Some(elapsed_us) = record_us.checked_sub(death_us) else {
        panic!("something was lost before it was killed: {:#?}", job.audit());
    };
    elapsed_us as f64 / 1000.0
}

fn end(lab: &Lab, job: Running) {
    std::fs::write(lab.path("stop"), "").expect("it can be written");
    let _ = job.wait().ended_well();
}

fn process_kills(count: usize) -> Option<Vec<f64>> {
    let mut times = Vec::new();
    while times.len() < count {
        let lab = lab(8)?;
        let job = start(&lab, 8, &[]);
        for (number, host) in ["h5", "h6", "h7", "h8"].into_iter().enumerate() {
            let victim = *lab.processes(host, "until").first().expect("two of each plane's ranks are there");
            let at = now_us();
            // SAFETY: - the call takes any number; the process is one of the lab's.
            unsafe { libc::kill(victim, libc::SIGKILL) };
            times.push(since(at, record_time(&job, "replica-lost", number), &job));
        }
        end(&lab, job);
    }
    Some(times)
}

fn host_losses(count: usize, lose: fn(&Lab, &str)) -> Option<Vec<f64>> {
    let mut times = Vec::new();
    while times.len() < count {
        let lab = lab(8)?;
        let job = start(&lab, 4, &[]);
        for (number, host) in ["h5", "h6", "h7", "h8"].into_iter().enumerate() {
            let at = now_us();
            lose(&lab, host);
            times.push(since(at, record_time(&job, "daemon-lost", number), &job));
        }
        end(&lab, job);
    }
    Some(times)
}

fn detect(count: usize) -> Option<()> {
    heading("known by redrun after");
    summary("death of a process", process_kills(count)?);
    summary("power cut of a host", host_losses(count, |lab, host| lab.cut_power(host))?);
    summary("cut of a host's link", host_losses(count, |lab, host| lab.cut_link(host))?);
    Some(())
}

fn decisions(lab: &Lab, options: &[&str], times: &mut Vec<f64>) {
    const RANK_COUNT: u32 = 8;
    let job = start(lab, RANK_COUNT, options);
    if options.contains(&"--coordinators") {
        Quorum::of(lab, &job, 8).wait_until_complete();
    }
    for number in 0..RANK_COUNT {
        let at = now_us();
        job.redctl(&["kill", &format!("{number}.1")]).expect("it runs");
        times.push(since(at, record_time(&job, "replica-lost", number as usize), &job));
    }
    end(lab, job);
    std::fs::remove_file(lab.path("stop")).expect("it was written");
}

fn decide(count: usize) -> Option<()> {
    let lab = lab(8)?;
    let (mut one, mut three) = (Vec::new(), Vec::new());
    while three.len() < count {
        decisions(&lab, &["--detachable", "--coordinators", "1"], &mut one);
        decisions(&lab, &["--detachable", "--coordinators", "3"], &mut three);
    }
    heading("a replica is ended after");
    summary("--detachable", one);
    summary("--detachable --coordinators 3", three);
    Some(())
}

fn launch(count: usize, processes: &[u32]) -> Option<()> {
    let (_directory, program) = compile_source(
        "#include <mpi.h>\nint main(int argc, char **argv) { MPI_Init(&argc, &argv); MPI_Finalize(); return 0; }",
    );
    let lab = lab(8)?;
    heading("launch and end of");
    for rank_count in processes {
        for (name, hosts) in [("1 host", "h1"), ("8 hosts", EIGHT)] {
            let run = |options: &[&str]| {
                let job = Job::new(*rank_count, &program).on_hosts(&lab, hosts).options(options);
                job.environment(OWN.0, OWN.1).run().ended_well().took.as_secs_f64() * 1000.0
            };
            let kinds: [&[&str]; 3] = [
                &["-q"],
                &["-q", "--detachable", "--coordinators", "1"],
                &["-q", "--detachable", "--coordinators", "3"],
            ];
            let mut times = kinds.map(|_| Vec::new());
            for _ in 0..count {
                kinds.iter().zip(&mut times).for_each(|(options, times)| times.push(run(options)));
            }
            let [plain, detachable, three_coordinators] = times;
            summary(&format!("{rank_count} processes, {name}"), plain);
            summary("  --detachable", detachable);
            summary("  --detachable --coordinators 3", three_coordinators);
        }
    }
    Some(())
}

fn main() -> ExitCode {
    let arguments = MeasureArguments::parse();
    let done = match arguments.what {
        What::Launch => launch(arguments.count, &arguments.processes),
        What::Detect => detect(arguments.count),
        What::Decide => decide(arguments.count),
        What::Tcp => tcp::compare(arguments.count),
    };
    if done.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
