//! Simulation of a daemon and its coordinators. Each may be killed, or be stopped and go on after it was replaced, at
//! any moment.

use super::{Follower, Request};
use crate::session::Session;
use redrt_wire::tree::Term;
use simulation_kit::{Nothing, Random, Setup, Simulator, Trace, Violation};
use std::collections::VecDeque;
use std::rc::Rc;

simulation_kit::named! {
    /// A planted mistake, for the simulation to find.
    pub enum Mistake {
        /// Daemon: every coordinator that calls is followed, whatever its term.
        FollowsOlder,
        /// Daemon: messages of a coordinator count before it has answered.
        HandlesUnsettled,
        /// Coordinator: a message is acknowledged before it is in the journal.
        AcknowledgesFirst,
    }
}

#[derive(Debug)]
enum Up {
    Attach(Request),
    Message(u64, u64),
    Taken(u64),
}

#[derive(Debug)]
enum Down {
    Attached { attachment: u32, term: Term, received: u64 },
    Message(u64),
    Taken(u64),
}

/// A connection between daemon and coordinator. Frames may arrive after either end has given it up.
struct Link {
    coordinator: usize,
    up: VecDeque<Up>,
    down: VecDeque<Down>,
}

/// A coordinator. It answers each message of the daemon with one of its own, with the same content.
struct Coordinator {
    term: Term,
    session: Session,
    /// Newest request that it has answered, and the link of that.
    way: Option<(u32, usize)>,
    /// True once it was killed, or another coordinator has the journal: it may repeat what it has sent.
    is_replaced: bool,
    /// Messages that it has handled, in order.
    heard: Vec<u64>,
}

struct World {
    daemon: Follower,
    said: u64,
    /// Messages that the daemon has handled.
    told: Vec<u64>,
    /// Highest term that has called the daemon.
    called: Term,
    /// True once a coordinator with a lower term was heard after that.
    is_misled: bool,
    journal: Vec<u64>,
    coordinators: Vec<Coordinator>,
    links: Vec<Link>,
    /// The daemon's connection: index into `links`.
    way: Option<usize>,
    /// Coordinator that the daemon would connect to.
    followed: usize,
    mistake: Option<Mistake>,
    trace: Trace,
}

fn number(body: &Rc<[u8]>) -> u64 {
    u64::from_le_bytes(body[..].try_into().expect("a number"))
}

impl World {
    fn new(setup: &Setup<FollowerSimulator>) -> Self {
        let mistake = setup.mistake;
        let coordinator = Coordinator {
            term: Term(0),
            session: Session::default(),
            way: None,
            is_replaced: false,
            heard: Vec::new(),
        };
        let mut world = Self {
            daemon: Follower { mistake, ..Follower::default() },
            said: 0,
            told: Vec::new(),
            called: Term(0),
            is_misled: false,
            journal: Vec::new(),
            coordinators: vec![coordinator],
            links: Vec::new(),
            way: None,
            followed: 0,
            mistake,
            trace: setup.trace,
        };
        world.connect();
        world
    }

    fn connect(&mut self) {
        let coordinator = self.followed;
        self.links.push(Link { coordinator, up: VecDeque::new(), down: VecDeque::new() });
        self.way = Some(self.links.len() - 1);
        self.daemon.asks_again();
        let request = self.daemon.request();
        self.send_up(Up::Attach(request));
    }

    fn send_up(&mut self, frame: Up) {
        if let Some(way) = self.way {
            self.links[way].up.push_back(frame);
        }
    }

    /// Adds a coordinator in place of the newest one, which was killed or stopped, with the journal's contents.
    fn replace(&mut self) {
        self.trace.say(|| format!("coordinator {} is replaced", self.coordinators.len() - 1));
        let newest = self.coordinators.last_mut().expect("there is one");
        newest.is_replaced = true;
        let term = newest.term.next();
        let mut session = Session::restored(self.journal.len() as u64, 0, Vec::new());
        self.journal.iter().for_each(|said| session.keep(said.to_le_bytes().to_vec().into()));
        self.coordinators.push(Coordinator {
            term,
            session,
            way: None,
            is_replaced: false,
            heard: self.journal.clone(),
        });
    }

    /// Lets a coordinator call the daemon, perhaps long after it was replaced.
    fn call(&mut self, coordinator: usize) {
        self.trace.say(|| format!("coordinator {coordinator} calls the daemon"));
        self.called = self.called.max(self.coordinators[coordinator].term);
        if self.daemon.called(self.coordinators[coordinator].term) {
            (self.way, self.followed) = (None, coordinator);
        }
    }

    /// Lets a coordinator handle its next frame of a link.
    fn coordinator_works(&mut self, link: usize) {
        let Some(frame) = self.links[link].up.pop_front() else { return };
        self.trace.say(|| format!("coordinator {} hears {frame:?}", self.links[link].coordinator));
        let coordinator = &mut self.coordinators[self.links[link].coordinator];
        let down = &mut self.links[link].down;
        match frame {
            // The coordinator learns that it was replaced.
            Up::Attach(request) if request.term > coordinator.term => {}
            // The daemon has a newer connection.
            Up::Attach(request) if coordinator.way.is_some_and(|(newest, _)| newest >= request.attachment) => {}
            Up::Message(..) | Up::Taken(_) if coordinator.way.is_none_or(|(_, way)| way != link) => {}
            Up::Attach(Request { attachment, received, .. }) => {
                coordinator.way = Some((attachment, link));
                let missing: Vec<_> = coordinator.session.missing(received).collect();
                down.push_back(Down::Attached {
                    attachment,
                    term: coordinator.term,
                    received: coordinator.session.received(),
                });
                down.extend(missing.iter().map(|body| Down::Message(number(body))));
            }
            Up::Taken(count) => coordinator.session.taken(count),
            // A replaced coordinator cannot write to the journal any more, so it acknowledges nothing.
            Up::Message(..) if coordinator.is_replaced => {}
            Up::Message(position, said) if position == coordinator.session.received() => {
                coordinator.session.count(8);
                coordinator.heard.push(said);
                if self.mistake != Some(Mistake::AcknowledgesFirst) || said % 3 > 0 {
                    self.journal.push(said);
                }
                coordinator.session.keep(said.to_le_bytes().to_vec().into());
                down.extend([Down::Taken(coordinator.session.received()), Down::Message(said)]);
            }
            Up::Message(..) => {}
        }
    }

    /// Lets the daemon handle the next frame of its connection.
    fn daemon_works(&mut self) {
        let Some(way) = self.way else { return };
        let Some(frame) = self.links[way].down.pop_front() else { return };
        self.trace.say(|| format!("the daemon hears {frame:?} of coordinator {}", self.links[way].coordinator));
        let term = self.coordinators[self.links[way].coordinator].term;
        match frame {
            Down::Attached { attachment, term, received } => {
                let missing: Vec<_> = self.daemon.attached(attachment, term, received).into_iter().flatten().collect();
                missing.iter().for_each(|(position, body)| self.send_up(Up::Message(*position, number(body))));
            }
            Down::Message(said) if self.daemon.is_heard() => {
                self.told.push(said);
                self.is_misled |= term < self.called;
                if let Some(count) = self.daemon.count(100 << 10) {
                    self.send_up(Up::Taken(count));
                }
            }
            Down::Message(_) => {}
            Down::Taken(count) => self.daemon.taken(count),
        }
    }

    fn step(&mut self, step: usize, which: usize) {
        match step {
            0..4 => {
                let said = self.said;
                self.said += 1;
                let (position, is_sent) = self.daemon.say(said.to_le_bytes().to_vec().into());
                if is_sent {
                    self.send_up(Up::Message(position, said));
                }
            }
            4..9 => self.coordinator_works(which % self.links.len()),
            9..14 => self.daemon_works(),
            14 => self.replace(),
            15 => self.call(which % self.coordinators.len()),
            16 => self.call(self.coordinators.len() - 1),
            17 => {
                self.way = None;
                self.daemon.way_lost();
            }
            18 if self.way.is_some() => {
                self.daemon.asks_again();
                let request = self.daemon.request();
                self.send_up(Up::Attach(request));
            }
            _ if self.way.is_none() => self.connect(),
            _ => {}
        }
    }

    /// Runs without further harm: the newest coordinator has the daemon, and both have sent everything.
    fn settle(&mut self) {
        self.call(self.coordinators.len() - 1);
        if self.way.is_none() {
            self.connect();
        }
        for _ in 0..10_000 {
            (0..self.links.len()).for_each(|link| self.coordinator_works(link));
            self.daemon_works();
        }
    }

    /// The broken invariant, if any.
    fn check(&self) -> Option<String> {
        let all: Vec<_> = (0..self.said).collect();
        if self.coordinators.last().is_some_and(|coordinator| coordinator.heard != all) {
            return Some("what a daemon has said is lost or comes twice".into());
        }
        if self.told != all {
            return Some(format!("a daemon was told {:?} for {} messages", self.told, self.said));
        }
        self.is_misled.then(|| "an older coordinator was heeded after a newer one had called".into())
    }
}

/// The simulator of a daemon and its coordinators.
pub enum FollowerSimulator {}

impl Simulator for FollowerSimulator {
    const NAME: &'static str = "follower";
    const ABOUT: &'static str = "A daemon and its coordinators, which are killed, or stop and wake up when replaced";
    type Faults = Nothing;
    type Mistake = Mistake;
    type Shape = ();
    type Summary = String;

    fn run(seed: u64, setup: &Setup<Self>) -> Result<String, Violation> {
        let (mut random, mut world) = (Random::new(seed), World::new(setup));
        for _ in 0..random.within(1..300) {
            world.step(random.below(20), random.below(1000));
        }
        world.settle();
        match world.check() {
            Some(wrong) => Err(wrong.into()),
            None => Ok(format!("{} messages, {} coordinators", world.said, world.coordinators.len())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use simulation_kit::{Named, sweep};

    #[test]
    fn coordinators_that_are_killed_or_wake_up_do_no_harm() {
        sweep::right::<FollowerSimulator>(0..400, &Setup::default());
    }

    #[test]
    fn planted_mistakes_are_found() {
        sweep::finds::<FollowerSimulator>(Mistake::ALL, 0..400, &Setup::default());
    }
}
