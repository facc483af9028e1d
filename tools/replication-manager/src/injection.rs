//! Faults that kill processes at times the user chose. Pure: the time and the candidates enter, the victims leave.

use super::effect::{Effect, Effects};
use super::facts::Facts;
use redrt_types::{Incarnation, ReplicaId};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A kill at a given time: `kill:V.I@2.5s`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TimedKill {
    /// The replica to kill.
    pub replica: ReplicaId,
    /// Time since the start of the job.
    pub at: Duration,
}

impl std::fmt::Display for TimedKill {
    /// Writes the syntax of `--inject`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "kill:{}@{}s", self.replica, self.at.as_secs_f64())
    }
}

/// Kills at random times: `random:mtbf=5s,seed=7,count=20`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RandomKills {
    /// Mean time between two kills in the job.
    pub mean_time: Duration,
    /// Seed of the times and victims.
    pub seed: u64,
    /// Maximum number of kills. None means unlimited.
    pub count: Option<u32>,
}

/// A small generator (splitmix64): good enough to choose victims, and the same on every platform for one seed.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Random(u64);

impl Random {
    /// Begins the sequence of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits of the sequence.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Draws from the exponential distribution with this mean.
    fn wait(&mut self, mean: Duration) -> Duration {
        let uniform = (self.draw() >> 11) as f64 / (1u64 << 53) as f64;
        mean.mul_f64(-(1.0 - uniform).ln())
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Injector {
    timed: Vec<TimedKill>,
    random: Option<(RandomKills, Random, Duration)>,
}

impl Injector {
    pub(super) fn new(mut timed: Vec<TimedKill>, random: Option<RandomKills>) -> Self {
        timed.sort_by_key(|kill| std::cmp::Reverse(kill.at));
        let random = random.map(|kills| {
            let mut generator = Random::new(kills.seed);
            let first = generator.wait(kills.mean_time);
            (kills, generator, first)
        });
        Self { timed, random }
    }

    pub(super) fn next_deadline(&self) -> Option<Duration> {
        let timed = self.timed.last().map(|kill| kill.at);
        let random = self.random.map(|(_, _, at)| at);
        [timed, random].into_iter().flatten().min()
    }

    /// Kills the victims that are due.
    pub(super) fn pass_time(&mut self, facts: Facts<'_>, out: &mut Effects) {
        for (replica, fault) in self.due(facts.now, &Self::may_die(facts)) {
            out.push(Effect::Doom { replica, fault });
        }
    }

    /// The replicas that a kill may hit at random, since their rank has another.
    fn may_die(facts: Facts<'_>) -> Vec<ReplicaId> {
        let (members, view) = (facts.members, facts.members.view());
        let is_running = |replica: ReplicaId| {
            let process = members.of(replica);
            view.is_live(replica) && process.counts() && !process.is_doomed && !process.joins
        };
        // A replica that is to end itself may do so at any moment, so it does not count as the sibling that survives.
        let stays = |replica: ReplicaId| {
            let is_first = view.member(replica).is_some_and(|member| member.incarnation == Incarnation(0));
            is_running(replica) && !(is_first && facts.settings.send_kills.contains(&replica))
        };
        let spare = |rank| members.world().sphere(rank).filter(|replica| stays(*replica)).count() > 1;
        let may_die = |replica: &ReplicaId| is_running(*replica) && spare(replica.rank);
        members.world().replicas().filter(may_die).collect()
    }

    /// The victims due by `now`, with the text of the fault. Random ones are taken from `may_die`, the replicas whose
    /// sphere has another.
    pub(super) fn due(&mut self, now: Duration, may_die: &[ReplicaId]) -> Vec<(ReplicaId, String)> {
        let mut victims = Vec::new();
        while let Some(kill) = self.timed.pop_if(|kill| kill.at <= now) {
            victims.push((kill.replica, kill.to_string()));
        }
        if let Some((kills, generator, at)) = &mut self.random
            && *at <= now
        {
            *at += generator.wait(kills.mean_time);
            if !may_die.is_empty() {
                kills.count = kills.count.map(|count| count.saturating_sub(1));
                let victim = may_die[(generator.draw() % may_die.len() as u64) as usize];
                victims.push((victim, format!("random:seed={}", kills.seed)));
            }
        }
        self.random.take_if(|(kills, ..)| kills.count == Some(0));
        victims
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_are_killed_at_random_than_were_asked_for() {
        let kills = RandomKills { mean_time: Duration::from_secs(1), seed: 3, count: Some(5) };
        let mut injector = Injector::new(Vec::new(), Some(kills));
        let replica = ReplicaId::new(0, 0);
        assert!(injector.due(injector.next_deadline().unwrap(), &[]).is_empty(), "nobody may die");
        for _ in 0..5 {
            let now = injector.next_deadline().expect("not all were killed");
            assert_eq!(injector.due(now, &[replica]).len(), 1);
        }
        assert_eq!(injector.next_deadline(), None);
        assert!(injector.due(Duration::from_secs(1000), &[replica]).is_empty());
    }
}
