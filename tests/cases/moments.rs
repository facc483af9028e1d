//! Jobs that are lost at moments drawn from a seed, by each program and at each degree: all processes, all of one rank,
//! or the whole job with its `redrun`. A few of them here, many by `scripts/line-campaign.sh`.

use crate::checkpoints::{LIMIT, resume, saved, store};
use redrt_tests::{Ended, Job, Program, Random, Running};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Lost {
    /// The program was sooner.
    Nothing,
    Processes,
    Rank,
    Redrun,
}

/// A program, and what it does alone.
struct Alone {
    program: Program,
    ended: Ended,
    took: Duration,
}

fn lines(out: &str) -> BTreeMap<&str, usize> {
    let mut all = BTreeMap::new();
    out.lines().for_each(|line| *all.entry(line).or_default() += 1);
    all
}

/// Each line of `part` is in `whole`, as often at least.
fn is_part(part: &str, whole: &str) -> bool {
    let whole = lines(whole);
    lines(part).into_iter().all(|(line, count)| whole.get(line).is_some_and(|there| *there >= count))
}

fn kill_all(job: &Running, of_rank: Option<u32>) {
    let running = job.replicas();
    let names = running.iter().filter_map(|one| one.split(' ').next());
    let is_its = |name: &&str| of_rank.is_none_or(|rank| name.starts_with(&format!("{rank}.")));
    let ids: Vec<_> = names.filter(is_its).map(|replica| job.pid_of(replica)).collect();
    // SAFETY: a signal to another process touches no memory of this one.
    ids.into_iter().for_each(|id| _ = unsafe { libc::kill(id, libc::SIGKILL) });
}

/// Runs it, and takes something from it at a moment.
fn disturb(alone: &Alone, degree: u16, random: &mut Random) -> Lost {
    let (store, program) = (store(), &alone.program);
    let job = saved(Job::of(program).degree(degree).limit(LIMIT), "50ms", &store).start();
    job.wait_until("a checkpoint, or the end", |job| job.count("checkpoint") > 0 || job.has_ended());
    let lost = *random.one_of(&[Lost::Processes, Lost::Rank, Lost::Redrun]);
    std::thread::sleep(Duration::from_micros(random.from_one_to(alone.took.as_micros() as u64 + 20_000)));
    let rank = random.from_one_to(program.rank_count.into()) as u32 - 1;
    let lost = if job.has_ended() || job.count("checkpoint") == 0 { Lost::Nothing } else { lost };
    let what = format!("{} at r = {degree}, {lost:?} lost", program.name);
    match lost {
        Lost::Nothing => {}
        Lost::Processes => kill_all(&job, None),
        Lost::Rank => kill_all(&job, Some(rank)),
        Lost::Redrun => {
            job.signal(libc::SIGKILL);
            let begun = job.wait();
            if begun.code == Some(0) {
                return Lost::Nothing;
            }
            let ended = resume(store.path()).run().ended_well();
            // What was shown after the checkpoint comes again.
            let both = format!("{}{}", begun.out, ended.out);
            let is_whole = is_part(&alone.ended.out, &both) && is_part(&ended.out, &alone.ended.out);
            assert!(is_whole && is_part(&begun.out, &alone.ended.out), "{what}: before {begun} and then {ended}");
            return lost;
        }
    }
    let ended = job.wait().ended_well();
    assert_eq!(lines(&ended.out), lines(&alone.ended.out), "{what}: {ended}");
    lost
}

#[test]
fn programs_that_are_lost_at_any_moment_print_the_same() {
    let mut random = Random::from_environment();
    let moments: Option<usize> = std::env::var("REDRT_MOMENTS").ok().map(|text| text.parse().expect("a number"));
    let mut counts = BTreeMap::<(u16, Lost), usize>::new();
    // What has ended before its first checkpoint shows nothing.
    let mut programs = if moments.is_some() { Program::lasting() } else { Program::ALL.to_vec() };
    if let Ok(names) = std::env::var("REDRT_PROGRAMS") {
        programs.retain(|program| names.split_ascii_whitespace().any(|name| name == program.name));
    }
    for program in programs {
        let begun = Instant::now();
        let ended = Job::of(&program).run().ended_well();
        let alone = Alone { program, ended, took: begun.elapsed() };
        let degrees = if moments.is_some() { vec![1, 2, 3] } else { vec![*random.one_of(&[1, 2, 3])] };
        let mut of_program = BTreeMap::<(u16, Lost), usize>::new();
        for degree in degrees {
            for _ in 0..moments.unwrap_or(1) {
                *of_program.entry((degree, disturb(&alone, degree, &mut random))).or_default() += 1;
            }
        }
        if moments.is_some() {
            println!("{}, {:.1} s alone: {of_program:?}", alone.program.name, alone.took.as_secs_f64());
        }
        of_program.into_iter().for_each(|(key, count)| *counts.entry(key).or_default() += count);
    }
    println!("{counts:?}");
    assert!(counts.keys().any(|(_, lost)| *lost != Lost::Nothing), "{counts:?}");
}
