//! `redrt-sustain`: jobs over the hosts of a lab that lose replicas and hosts again and again, and regain their
//! redundancy each time.
//!
//! Every few seconds a replica is killed, and now and then a host loses its power; the next loss waits until every rank
//! has all its replicas again. At its end a job must have printed the output of an undisturbed run on one machine.

use clap::Parser;
use redrt_tests::lab::lab;
use redrt_tests::{Job, Lab, Program, Random, Running};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The second half of the hosts are spares.
const HOSTS: &str = "h1:4,h2:4,h3:4,h4:4,h5:12,h6:12,h7:12,h8:12";
const SPARE_COUNT: usize = 4;
/// One loss in this number is a host's, as long as two spares are left.
const LOSSES_PER_HOST: u32 = 9;
/// Limit on the time until redundancy is back, however slow the machine is.
const RECOVERY_TIME_MAX: Duration = Duration::from_secs(120);

/// Programs, with the place of the argument that sets their running time.
const PROGRAMS: [(&str, usize); 6] =
    [("heat", 1), ("cg", 1), ("master_worker", 0), ("threads", 1), ("alltoall", 0), ("hybrid", 1)];

/// Loses replicas and hosts of each program at two and three replicas, each time after redundancy is back.
#[derive(Parser)]
struct SustainArguments {
    /// Seconds that each job is to run; a trial run finds the number of steps for that.
    #[arg(long, default_value_t = 300)]
    seconds: u64,

    /// Seconds from one loss to the next.
    #[arg(long, default_value_t = 5)]
    interval: u64,

    /// Seed of everything random.
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Only these programs: heat, cg, `master_worker`, threads, alltoall, hybrid, python.
    #[arg(long, value_delimiter = ',')]
    programs: Vec<String>,

    /// Only these numbers of replicas.
    #[arg(long, value_delimiter = ',', default_values_t = [2, 3])]
    degrees: Vec<u16>,

    /// A Python with mpi4py and NumPy (scripts/mpi4py-tests.sh makes one), for the program in Python.
    #[arg(long)]
    python: Option<PathBuf>,
}

/// A program whose running time can be set.
struct Subject {
    name: String,
    rank_count: u32,
    program: PathBuf,
    arguments: Vec<String>,
    /// Place of the argument with the number of steps.
    steps_at: usize,
}

impl Subject {
    fn compiled(name: &str, steps_at: usize) -> Self {
        let program = Program::LONG.into_iter().find(|program| program.name == name).expect("a test program");
        Self {
            name: name.into(),
            rank_count: program.rank_count,
            program: redrt_tests::compile(name),
            arguments: program.arguments.iter().map(|word| (*word).to_owned()).collect(),
            steps_at,
        }
    }

    fn python(python: PathBuf) -> Self {
        let program = redrt_tests::root().join("redrt-tests/mpi4py/diffusion.py").display().to_string();
        let arguments = vec![program, "96".into(), "4000".into()];
        Self { name: "python".into(), rank_count: 3, program: python, arguments, steps_at: 2 }
    }

    fn job(&self, factor: f64) -> Job {
        let mut arguments = self.arguments.clone();
        let steps: f64 = arguments[self.steps_at].parse().expect("a number of steps");
        arguments[self.steps_at] = format!("{:.0}", (steps * factor).max(1.0));
        let words: Vec<_> = arguments.iter().map(String::as_str).collect();
        let job = Job::new(self.rank_count, &self.program).arguments(&words);
        let library = redrt_tests::prefix().join("lib").display().to_string();
        // mpi4py was linked with the prefix of the day of its build. Libraries of threads would only take processors
        // from the ranks.
        job.environment("MPI4PY_LIBMPI", &format!("{library}/libmpi_abi.so.1"))
            .environment("OPENBLAS_NUM_THREADS", "1")
            .environment("OMP_WAIT_POLICY", "passive")
            .limit(Duration::from_secs(3600))
    }

    fn in_lab(&self, lab: &Lab, degree: u16, factor: f64) -> Job {
        let spares = SPARE_COUNT.to_string();
        self.job(factor).degree(degree).options(&["--spares", &spares]).on_hosts(lab, HOSTS)
    }
}

fn is_over(job: &Running) -> bool {
    job.count("job-end") > 0
}

/// Losses of a job.
#[derive(Default)]
struct Losses {
    replicas: u32,
    hosts: u32,
    /// The reason, when the losses ended early.
    problem: Option<String>,
}

/// Causes a loss, waits for redundancy and for the interval, and begins again, until the job is over.
fn strike(job: &Running, lab: &Lab, random: &mut Random, interval: Duration) -> Losses {
    let mut losses = Losses::default();
    let mut alive: Vec<String> = (2..=8).map(|number| format!("h{number}")).collect();
    let mut lost = 0;
    loop {
        let begin = Instant::now();
        let replicas = job.replicas();
        if is_over(job) {
            return losses;
        }
        if replicas.is_empty() {
            losses.problem = Some(format!("no status: {:?}", job.redctl(&["status"])));
            return losses;
        }
        let number = losses.replicas + losses.hosts + 1;
        let hit: Vec<_> =
            alive.iter().filter(|host| replicas.iter().any(|at| at.ends_with(&format!(" on {host}")))).collect();
        if number.is_multiple_of(LOSSES_PER_HOST) && alive.len() > SPARE_COUNT + 1 && !hit.is_empty() {
            let host = random.one_of(&hit).to_string();
            lab.cut_power(&host);
            alive.retain(|other| *other != host);
            losses.hosts += 1;
        } else {
            let replica = random.one_of(&replicas).split(' ').next().expect("its name").to_owned();
            match job.redctl(&["kill", &replica]) {
                Ok(_) => losses.replicas += 1,
                // The replica may have been about to end.
                Err(why) => {
                    eprintln!("{replica} was not killed: {}", why.trim());
                    sleep(interval);
                    continue;
                }
            }
        }
        while job.count("replica-lost") == lost && !is_over(job) {
            sleep(Duration::from_millis(20));
        }
        while job.missing_count() > 0 && !is_over(job) {
            if begin.elapsed() > RECOVERY_TIME_MAX {
                losses.problem = Some(format!("redundancy is not back {RECOVERY_TIME_MAX:?} after loss {number}"));
                return losses;
            }
            sleep(Duration::from_millis(50));
        }
        lost = job.count("replica-lost");
        sleep(interval.saturating_sub(begin.elapsed()));
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

fn main() -> ExitCode {
    let arguments = SustainArguments::parse();
    let is_wanted = |name: &str| arguments.programs.is_empty() || arguments.programs.iter().any(|one| one == name);
    let wanted = PROGRAMS.into_iter().filter(|(name, _)| is_wanted(name));
    let mut subjects: Vec<_> = wanted.map(|(name, steps_at)| Subject::compiled(name, steps_at)).collect();
    match &arguments.python {
        Some(python) => subjects.extend(is_wanted("python").then(|| Subject::python(python.clone()))),
        None => eprintln!("no --python: the program in Python is left out"),
    }
    let interval = Duration::from_secs(arguments.interval);
    let mut failed = 0;
    for (subject, degree) in
        subjects.iter().flat_map(|subject| arguments.degrees.iter().map(move |degree| (subject, *degree)))
    {
        let Some(lab) = lab(8) else { return ExitCode::SUCCESS };
        let mut random = Random::new(arguments.seed.wrapping_mul(1 << 20).wrapping_add(u64::from(degree)));
        let trial = subject.in_lab(&lab, degree, 1.0).run().ended_well();
        let factor = arguments.seconds as f64 / trial.took.as_secs_f64();
        let job = subject.in_lab(&lab, degree, factor).start();
        job.wait_until("start", |job| !job.replicas().is_empty() || is_over(job));
        let mut losses = strike(&job, &lab, &mut random, interval);
        let ended = job.wait();
        if let Some(crash) = ended.crashes().first() {
            losses.problem.get_or_insert(format!("a replica died that nobody killed: {crash}"));
        }
        let left = lab.left_behind(Duration::from_secs(4));
        let alone = subject.job(factor).run().ended_well();
        let is_right = ended.code == Some(0) && ended.out == alone.out && left.is_empty() && losses.problem.is_none();
        let (seconds, recovered) = (ended.took.as_secs(), ended.number("recovered"));
        let windows: Vec<_> = ended.events("recovered").filter_map(|record| record["window_ms"].as_f64()).collect();
        println!(
            "{} at r = {degree}: {}; {seconds} s, {} replicas and {} hosts killed, {recovered} replicas cloned back, \
             the median within {:.0} ms, the slowest within {:.0} ms",
            subject.name,
            if is_right { "right" } else { "WRONG" },
            losses.replicas,
            losses.hosts,
            median(windows.clone()),
            windows.into_iter().fold(0.0, f64::max)
        );
        if !is_right {
            failed += 1;
            println!("{}; left: {left:?}\n{ended}", losses.problem.unwrap_or_default());
        }
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
