//! Jobs with three coordinators. Any host may lose its power or be cut off, the coordinator's most often; coordinators,
//! their peers and consoles are killed and stopped. Each job gets up to three such blows. The next host is lost only
//! when there are three coordinators again and no rank has lost its last replica.

use super::{HOSTS, HOSTS_AND_SPARE, LONG, Outcome, SHORT, UndisturbedRuns};
use redrt_tests::quorum::{OWN, Quorum, coordinators_on, peers_on};
use redrt_tests::{Job, Lab, Program, Random, Running};
use std::fmt::Write as _;
use std::thread::sleep;
use std::time::Duration;

/// Wait of a host that is cut off for a coordinator; afterwards its processes end.
const LEASE: Duration = Duration::from_secs(20);
/// After this silence its peer kills a coordinator; some time for that is included.
const SILENCE: Duration = Duration::from_secs(7);
const BLOWS_MAX: u64 = 3;

/// The coordinator's host, or another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Whose {
    Coordinator,
    Other,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Blow {
    /// A host loses its power.
    Power(Whose),
    /// A host is cut off for good.
    Cut(Whose),
    KillCoordinator,
    KillPeer(Whose),
    StopCoordinator(Duration),
    StopPeer(Whose, Duration),
    KillConsole,
}

impl Blow {
    fn draw(random: &mut Random, may_lose: bool) -> Self {
        // The coordinator's host is drawn most often.
        let whose = *random.one_of(&[Whose::Coordinator, Whose::Coordinator, Whose::Other]);
        let time = *random.one_of(&[SHORT, LONG, SILENCE]);
        let of_hosts = [Self::Power(whose), Self::Cut(whose)];
        let others = [
            Self::KillCoordinator,
            Self::KillPeer(whose),
            Self::StopCoordinator(time),
            Self::StopPeer(whose, time),
            Self::KillConsole,
        ];
        let is_of_host = random.draw().is_multiple_of(2);
        if is_of_host && may_lose { *random.one_of(&of_hosts) } else { *random.one_of(&others) }
    }

    fn loses_a_host(self) -> bool {
        matches!(self, Self::Power(_) | Self::Cut(_))
    }

    fn takes_a_peer(self) -> bool {
        self.loses_a_host() || matches!(self, Self::KillPeer(_) | Self::StopPeer(..))
    }
}

/// A job with three coordinators and its blows.
pub struct Trial {
    program: Program,
    degree: u16,
    has_spare: bool,
    /// True when the job takes checkpoints to go back to.
    saves: bool,
    fan_out: &'static str,
    /// Length of the journal from which a snapshot replaces it.
    journal: &'static str,
    /// The blows, each with its time after the one before.
    blows: Vec<(Blow, Duration)>,
}

impl Trial {
    /// Draws a job.
    pub fn draw(random: &mut Random, known: &mut UndisturbedRuns) -> Self {
        let saves = random.draw().is_multiple_of(5);
        // After a return programs that read back their files could read later writes; `cg` takes minutes.
        let is_apt = |program: &Program| {
            program.name != "cg" && !(saves && ["posix", "files", "fortran_heat", "heat"].contains(&program.name))
        };
        let programs: Vec<_> = Program::LONG.into_iter().filter(is_apt).collect();
        let program = *random.one_of(&programs);
        let has_spare = !saves && random.draw().is_multiple_of(2);
        let degree = if saves { 1 } else { *random.one_of(&[2, 2, 3]) };
        let losses_max = if has_spare || degree == 3 { 2 } else { 1 };
        let mut blows = Vec::new();
        for _ in 0..random.from_one_to(BLOWS_MAX) {
            let losses = blows.iter().filter(|(blow, _): &&(Blow, Duration)| blow.loses_a_host()).count();
            blows.push((Blow::draw(random, losses < losses_max), Duration::ZERO));
        }
        let fan_out = *random.one_of(&["32", "1", "2"]);
        let journal = *random.one_of(&["32MiB", "8KiB"]);
        let mut trial = Self { program, degree, has_spare, saves, fan_out, journal, blows };
        trial.draw_moments(random, known);
        trial
    }

    /// Draws other moments for the blows.
    pub fn draw_moments(&mut self, random: &mut Random, known: &mut UndisturbedRuns) {
        // The last blow may come after the end of the job.
        let millis = 2 * known.of(&self.program).1.as_millis() as u64;
        self.blows.iter_mut().for_each(|(_, after)| *after = Duration::from_millis(random.from_one_to(millis)));
    }

    /// The job's program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The job and its blows in a line.
    pub fn name(&self) -> String {
        let Self { program, degree, has_spare, saves, fan_out, journal, blows } = self;
        let with = if *has_spare { "a spare, " } else { "" };
        let with = if *saves { "checkpoints, " } else { with };
        let mut text =
            format!("{} at r = {degree}, three coordinators, {with}fan-out {fan_out}, journal {journal}", program.name);
        for (blow, after) in blows {
            let _ = write!(text, ", {blow:?} after {after:?}");
        }
        text
    }

    fn start(&self, lab: &Lab) -> Running {
        let job = Job::of(&self.program).degree(self.degree).options(&["--fan-out", self.fan_out]);
        let lease = format!("{}s", LEASE.as_secs());
        let job = job.options(&[
            "--detachable",
            "--coordinators",
            "3",
            "--coordinator-lease",
            &lease,
            "--coordinator-journal",
            self.journal,
        ]);
        let job = match self.has_spare {
            true => job.options(&["--spares", "1", "--max-degree", "3"]).on_hosts(lab, HOSTS_AND_SPARE),
            false => job.on_hosts(lab, HOSTS),
        };
        let job = match self.saves {
            true => {
                job.options(&["--checkpoint", "400ms", "--checkpoint-dir", &lab.path("store").display().to_string()])
            }
            false => job,
        };
        job.environment(OWN.0, OWN.1).limit(Duration::from_secs(120)).start()
    }

    /// Runs the job with its blows. `expected`: the output of an undisturbed run.
    pub fn run(&self, random: &mut Random, lab: &Lab, expected: &str) -> Outcome {
        let job = self.start(lab);
        let quorum = Quorum::of(lab, &job, if self.has_spare { 5 } else { 4 });
        self.wait_until_whole(&job, &quorum, 0);
        let (mut losses, mut is_peer_taken) = (0, false);
        for (blow, after) in &self.blows {
            sleep(*after);
            if blow.takes_a_peer() && is_peer_taken {
                // Without two of three peers nothing can be decided.
                self.wait_until_whole(&job, &quorum, losses);
            }
            if is_over(&job, &quorum) {
                break;
            }
            losses += usize::from(blow.loses_a_host());
            is_peer_taken |= blow.takes_a_peer();
            strike(*blow, random, lab, &job, &quorum);
        }
        let end = quorum.wait_for_good_end();
        let is_cut = self.blows.iter().any(|(blow, _)| matches!(blow, Blow::Cut(_)));
        let grace = if is_cut { LEASE } else { Duration::ZERO } + Duration::from_secs(5);
        if is_cut && end.is_ok() {
            // A coordinator that is cut off may tell its console of the end; the other hosts keep the end for another
            // console.
            quorum.see_end_elsewhere(grace);
        }
        let left = lab.left_behind(grace);
        let missed = quorum.missed();
        let ended = job.wait();
        let _ = std::fs::remove_dir_all(lab.path("store"));
        let is_right = end.is_ok() && ended.out == expected;
        let is_well = is_right
            && left.is_empty()
            && ended.crashes().is_empty()
            && ended.mismatches().is_empty()
            && ended.retired().is_empty();
        Outcome {
            wrong: (!is_well).then(|| format!("its end: {end:?}, {missed:?}; left: {left:?}\n{ended}")),
            copies: ended.number("recovered") + ended.number("joined"),
            breaks_the_lab: losses > 0 || !left.is_empty(),
        }
    }

    /// Waits until three hosts decide, lost replicas are replaced if the job has a spare, and a checkpoint is there if
    /// the job takes any; or until the job's end.
    fn wait_until_whole(&self, job: &Running, quorum: &Quorum<'_>, losses: usize) {
        let is_whole = || {
            let has_coordinators = quorum.is_complete() || quorum.alive().len() < 3;
            let has_all = !self.has_spare || job.missing_count() == 0 && job.count("daemon-lost") >= losses;
            has_coordinators && has_all && (!self.saves || job.count("checkpoint") > 0)
        };
        while !is_whole() && !is_over(job, quorum) && !job.is_late() {
            sleep(Duration::from_millis(20));
        }
    }
}

fn is_over(job: &Running, quorum: &Quorum<'_>) -> bool {
    job.count("job-end") > 0 || job.code().is_some() && quorum.has_nobody()
}

fn strike(blow: Blow, random: &mut Random, lab: &Lab, job: &Running, quorum: &Quorum<'_>) {
    let coordinator = quorum.find_coordinator();
    let mut host_of = |whose: Whose| {
        let others: Vec<_> = quorum.alive().into_iter().filter(|host| Some(host) != coordinator.as_ref()).collect();
        match whose {
            Whose::Coordinator => coordinator.clone(),
            Whose::Other => (!others.is_empty()).then(|| random.one_of(&others).clone()),
        }
    };
    let send = |processes: &[i32], signal: i32| {
        for process in processes {
            // SAFETY: - the call takes any number; the process is one of the lab's.
            unsafe { libc::kill(*process, signal) };
        }
    };
    let stop = |find: &dyn Fn() -> Vec<i32>, time: Duration| {
        let stopped = find();
        send(&stopped, libc::SIGSTOP);
        sleep(time);
        // Processes that were not ended meanwhile.
        let left: Vec<_> = find().into_iter().filter(|process| stopped.contains(process)).collect();
        send(&left, libc::SIGCONT);
    };
    match blow {
        Blow::Power(whose) => host_of(whose).iter().for_each(|host| quorum.lose(host)),
        Blow::Cut(whose) => {
            if let Some(host) = host_of(whose) {
                lab.cut_link(&host);
                quorum.forget(&host);
            }
        }
        Blow::KillCoordinator => {
            host_of(Whose::Coordinator).iter().for_each(|host| send(&coordinators_on(lab, host), libc::SIGKILL))
        }
        Blow::KillPeer(whose) => host_of(whose).iter().for_each(|host| quorum.kill_peer(host)),
        Blow::StopCoordinator(time) => {
            host_of(Whose::Coordinator).iter().for_each(|host| stop(&|| coordinators_on(lab, host), time))
        }
        Blow::StopPeer(whose, time) => host_of(whose).iter().for_each(|host| stop(&|| peers_on(lab, host), time)),
        Blow::KillConsole if !job.has_ended() => job.signal(libc::SIGKILL),
        Blow::KillConsole => {}
    }
}
