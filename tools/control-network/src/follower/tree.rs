//! Simulation of daemons below each other. A daemon must hear only the coordinator that it follows, although messages
//! come through the daemon above, which may follow another coordinator already or pass on words of an older one.
//!
//! ```text
//!   coordinators, the newest of which has the journal
//!     ║   ╲          a daemon connects to a coordinator itself when it was called, or when its way is lost,
//!   above  ╲         and never to another daemon again
//!     │     ╲
//!   middle   ╲
//!     │
//!   below
//! ```
//! Messages go to one daemon or to all. A coordinator that takes over repeats the same messages in the same order,
//! which follow from the journal. So the test is that each daemon hears exactly those. Views therefore need only a
//! number for processes, which hear of views from their daemon.

use super::simulation::Mistake as OfFollower;
use super::{Follower, Request};
use crate::session::Session;
use redrt_wire::tree::Term;
use simulation_kit::{Nothing, Random, Setup, Simulator, Trace, Violation};
use std::collections::VecDeque;
use std::rc::Rc;

const HOSTS: usize = 3;

simulation_kit::named! {
    /// A planted mistake, for the simulation to find.
    pub enum Mistake {
        /// Every coordinator that calls is followed, whatever its term.
        FollowsOlder,
        /// Messages of a coordinator count before it has answered.
        HandlesUnsettled,
        /// A daemon with a new connection does not inform the daemons below.
        SaysNothing,
        /// The daemon informs them only after the first message that it passes on.
        SaysLate,
        /// A coordinator does not call daemons that attached to it through others.
        CallsTooFew,
    }
}

#[derive(Clone, Debug)]
enum Up {
    Attach(usize, Request),
    Message(usize, u64, u64),
    Taken(usize, u64),
}

#[derive(Clone, Debug)]
enum Down {
    Attached {
        host: usize,
        attachment: u32,
        term: Term,
        received: u64,
    },
    /// With the sender's term, which real messages lack.
    Message(Option<usize>, u64, Term),
    Taken(usize, u64),
    Resync,
}

/// A connection. Upward frames may arrive after its lower end has given it up.
#[derive(Default)]
struct Link {
    /// Coordinator at its upper end. `None` if that is a daemon.
    coordinator: Option<usize>,
    up: VecDeque<Up>,
    down: VecDeque<Down>,
    is_closed: bool,
    /// Host that attached first over it, if its upper end is a coordinator.
    owner: Option<usize>,
}

struct TreeDaemon {
    follower: Follower,
    /// Connection of this daemon upwards.
    way: Option<usize>,
    /// Connection of the daemon below it.
    child: Option<usize>,
    /// Coordinator that it would connect to.
    coordinator: usize,
    said: u64,
    told: Vec<u64>,
    /// Highest term that has called it.
    called: Term,
    is_late: bool,
}

/// A coordinator's state of a host.
struct Member {
    session: Session,
    attachment: Option<u32>,
    link: Option<usize>,
    /// True while the host looks for the previous coordinator.
    is_to_be_called: bool,
}

struct Coordinator {
    term: Term,
    members: Vec<Member>,
    is_replaced: bool,
}

struct World {
    daemons: Vec<TreeDaemon>,
    coordinators: Vec<Coordinator>,
    links: Vec<Link>,
    /// Handled messages: host, and number among its messages.
    journal: Vec<(usize, u64)>,
    /// True once some daemon heard a coordinator older than the one that has called it.
    is_misled: bool,
    mistake: Option<Mistake>,
    trace: Trace,
}

/// The coordinator's answer to a host's message: receiver (`None`: all) and content.
fn answer(host: usize, said: u64) -> (Option<usize>, u64) {
    ((!said.is_multiple_of(3)).then_some(host), (host as u64) << 32 | said)
}

fn body(said: u64) -> Rc<[u8]> {
    said.to_le_bytes().to_vec().into()
}

fn number(body: &Rc<[u8]>) -> u64 {
    u64::from_le_bytes(body[..].try_into().expect("a number"))
}

impl Coordinator {
    fn of(term: Term, journal: &[(usize, u64)]) -> Self {
        let heard = |host| journal.iter().filter(|(by, _)| *by == host).count() as u64;
        let member = |host| Member {
            session: Session::restored(heard(host), 0, Vec::new()),
            attachment: None,
            link: None,
            is_to_be_called: term > Term(0),
        };
        let mut coordinator = Self { term, members: (0..HOSTS).map(member).collect(), is_replaced: false };
        for (host, said) in journal {
            let (to, said) = answer(*host, *said);
            coordinator.keep(to, said);
        }
        coordinator
    }

    fn keep(&mut self, to: Option<usize>, said: u64) {
        let hosts = to.map_or(0..HOSTS, |host| host..host + 1);
        self.members[hosts].iter_mut().for_each(|member| member.session.keep(body(said)));
    }

    /// The connection that leads to a host.
    fn way(&self, host: usize) -> Option<usize> {
        (0..=host).rev().find_map(|above| self.members[above].link)
    }
}

impl World {
    fn new(setup: &Setup<TreeSimulator>) -> Self {
        let of_follower = match setup.mistake {
            Some(Mistake::FollowsOlder) => Some(OfFollower::FollowsOlder),
            Some(Mistake::HandlesUnsettled) => Some(OfFollower::HandlesUnsettled),
            _ => None,
        };
        let daemon = |_| TreeDaemon {
            follower: Follower { mistake: of_follower, ..Follower::default() },
            way: None,
            child: None,
            coordinator: 0,
            said: 0,
            told: Vec::new(),
            called: Term(0),
            is_late: false,
        };
        let mut world = Self {
            daemons: (0..HOSTS).map(daemon).collect(),
            coordinators: vec![Coordinator::of(Term(0), &[])],
            links: Vec::new(),
            journal: Vec::new(),
            is_misled: false,
            mistake: setup.mistake,
            trace: setup.trace,
        };
        world.connect(0);
        for host in 1..HOSTS {
            world.links.push(Link::default());
            let link = Some(world.links.len() - 1);
            (world.daemons[host].way, world.daemons[host - 1].child) = (link, link);
            world.attach(host);
        }
        world
    }

    fn up(&mut self, host: usize, frame: Up) {
        if let Some(way) = self.daemons[host].way {
            self.links[way].up.push_back(frame);
        }
    }

    fn attach(&mut self, host: usize) {
        let request = self.daemons[host].follower.request();
        self.up(host, Up::Attach(host, request));
    }

    /// Passes a frame to the daemon below, if it is still connected.
    fn pass(&mut self, host: usize, frame: Down) {
        if let Some(link) = self.daemons[host].child.map(|child| &mut self.links[child])
            && !link.is_closed
        {
            link.down.push_back(frame);
        }
    }

    fn connect(&mut self, host: usize) {
        let daemon = &mut self.daemons[host];
        self.links.push(Link { coordinator: Some(daemon.coordinator), ..Link::default() });
        daemon.way = Some(self.links.len() - 1);
        daemon.follower.asks_again();
        self.attach(host);
        match self.mistake {
            Some(Mistake::SaysNothing) => {}
            Some(Mistake::SaysLate) => self.daemons[host].is_late = true,
            _ => self.pass(host, Down::Resync),
        }
    }

    fn lose_way(&mut self, host: usize) {
        self.trace.say(|| format!("daemon {host} loses its connection"));
        if let Some(way) = self.daemons[host].way.take() {
            self.links[way].is_closed = true;
            self.daemons[host].follower.way_lost();
        }
    }

    fn call(&mut self, host: usize, coordinator: usize) {
        self.trace.say(|| format!("coordinator {coordinator} calls daemon {host}"));
        let term = self.coordinators[coordinator].term;
        let daemon = &mut self.daemons[host];
        daemon.called = daemon.called.max(term);
        if daemon.follower.called(term) {
            daemon.coordinator = coordinator;
            if let Some(way) = daemon.way.take() {
                self.links[way].is_closed = true;
            }
        }
    }

    /// Adds a coordinator, which takes the journal over.
    fn replace(&mut self) {
        let newest = self.coordinators.last_mut().expect("there is one");
        newest.is_replaced = true;
        let term = newest.term.next();
        self.coordinators.push(Coordinator::of(term, &self.journal));
    }

    /// Lets the upper end of a connection handle the next frame.
    fn handle_below(&mut self, link: usize) {
        let Some(coordinator) = self.links[link].coordinator else {
            let Some(frame) = self.links[link].up.pop_front() else { return };
            let above = self.daemons.iter().position(|daemon| daemon.child == Some(link));
            return self.up(above.expect("it has one"), frame);
        };
        let Some(frame) = self.links[link].up.pop_front() else {
            if self.links[link].is_closed {
                let members = self.coordinators[coordinator].members.iter_mut();
                members.filter(|member| member.link == Some(link)).for_each(|member| member.link = None);
            }
            return;
        };
        self.trace.say(|| format!("coordinator {coordinator} hears {frame:?}"));
        match frame {
            Up::Attach(host, request) => self.attached(link, coordinator, host, request),
            Up::Taken(host, count) => self.coordinators[coordinator].members[host].session.taken(count),
            // A replaced coordinator cannot write to the journal any more, so it acknowledges nothing.
            Up::Message(..) if self.coordinators[coordinator].is_replaced => {}
            Up::Message(host, position, said) => self.heard(coordinator, host, position, said),
        }
    }

    fn heard(&mut self, coordinator: usize, host: usize, position: u64, said: u64) {
        let member = &mut self.coordinators[coordinator].members[host];
        if position != member.session.received() {
            return;
        }
        member.session.count(8);
        let received = member.session.received();
        self.journal.push((host, said));
        let (to, said) = answer(host, said);
        self.coordinators[coordinator].keep(to, said);
        let coordinator = &self.coordinators[coordinator];
        if let Some(way) = coordinator.way(host) {
            self.links[way].down.push_back(Down::Taken(host, received));
        }
        let ways: Vec<_> = match to {
            Some(host) => coordinator.way(host).into_iter().collect(),
            None => coordinator.members.iter().filter_map(|member| member.link).collect(),
        };
        ways.into_iter().for_each(|way| self.links[way].down.push_back(Down::Message(to, said, coordinator.term)));
    }

    fn attached(&mut self, link: usize, coordinator: usize, host: usize, request: Request) {
        let Coordinator { term, members, .. } = &mut self.coordinators[coordinator];
        // The coordinator learns that it was replaced.
        if request.term > *term {
            return;
        }
        let is_direct = *self.links[link].owner.get_or_insert(host) == host;
        let member = &mut members[host];
        if member.attachment.is_some_and(|before| before >= request.attachment) {
            return;
        }
        member.attachment = Some(request.attachment);
        member.link = is_direct.then_some(link);
        member.is_to_be_called &= !is_direct && self.mistake != Some(Mistake::CallsTooFew);
        let received = member.session.received();
        let missing: Vec<_> = member.session.missing(request.received).collect();
        let term = *term;
        let Some(way) = self.coordinators[coordinator].way(host) else { return };
        let down = &mut self.links[way].down;
        down.push_back(Down::Attached { host, attachment: request.attachment, term, received });
        down.extend(missing.iter().map(|body| Down::Message(Some(host), number(body), term)));
    }

    /// Lets a daemon handle the next frame of its connection.
    fn handle_above(&mut self, host: usize) {
        let Some(way) = self.daemons[host].way else { return };
        let Some(frame) = self.links[way].down.pop_front() else { return };
        self.trace.say(|| format!("daemon {host} hears {frame:?}"));
        match frame {
            Down::Message(to, said, term) => {
                if to != Some(host) {
                    self.pass(host, frame);
                    if std::mem::take(&mut self.daemons[host].is_late) {
                        self.pass(host, Down::Resync);
                    }
                }
                let daemon = &mut self.daemons[host];
                if to.is_none_or(|to| to == host) && daemon.follower.is_heard() {
                    daemon.told.push(said);
                    self.is_misled |= term < daemon.called;
                    if let Some(count) = daemon.follower.count(100 << 10) {
                        self.up(host, Up::Taken(host, count));
                    }
                }
            }
            Down::Attached { host: to, attachment, term, received } if to == host => {
                let daemon = &mut self.daemons[host];
                let Some(missing) = daemon.follower.attached(attachment, term, received) else { return };
                missing.iter().for_each(|(position, body)| self.up(host, Up::Message(host, *position, number(body))));
            }
            Down::Taken(to, count) if to == host => self.daemons[host].follower.taken(count),
            Down::Resync => {
                self.daemons[host].follower.asks_again();
                self.attach(host);
                self.pass(host, Down::Resync);
            }
            Down::Attached { .. } | Down::Taken(..) => self.pass(host, frame),
        }
    }

    /// A connection with frames for its upper end, or that was given up.
    fn busy(&self, which: usize) -> Option<usize> {
        let is_busy = |link: &Link| !link.up.is_empty() || link.is_closed && link.coordinator.is_some();
        let busy: Vec<_> = (0..self.links.len()).filter(|link| is_busy(&self.links[*link])).collect();
        (!busy.is_empty()).then(|| busy[which % busy.len()])
    }

    fn step(&mut self, step: usize, which: usize) {
        let host = which % HOSTS;
        match step {
            0..20 => {
                let daemon = &mut self.daemons[host];
                let said = daemon.said;
                daemon.said += 1;
                let (position, is_sent) = daemon.follower.say(body(said));
                if is_sent {
                    self.up(host, Up::Message(host, position, said));
                }
            }
            20..60 => self.busy(which).into_iter().for_each(|link| self.handle_below(link)),
            60..100 => self.handle_above(host),
            100..102 => self.replace(),
            // A call may come late.
            102 => self.call(host, which / HOSTS % self.coordinators.len()),
            103..105 => self.call(host, self.coordinators.len() - 1),
            105 => self.lose_way(host),
            _ if self.daemons[host].way.is_none() => self.connect(host),
            _ => {}
        }
    }

    /// Runs without further harm, except that each daemon in turn loses its connection once.
    fn settle(&mut self) {
        for lost in 0..=HOSTS {
            let newest = self.coordinators.len() - 1;
            for _ in 0..400 {
                for host in 0..HOSTS {
                    if self.coordinators[newest].members[host].is_to_be_called {
                        self.call(host, newest);
                    }
                    if self.daemons[host].way.is_none() {
                        self.connect(host);
                    }
                    (0..20).for_each(|_| self.handle_above(host));
                }
                (0..self.links.len()).for_each(|link| self.handle_below(link));
            }
            if lost < HOSTS {
                self.lose_way(lost);
                self.step(0, lost);
            }
        }
    }

    fn check(&self) -> Option<String> {
        for (host, daemon) in self.daemons.iter().enumerate() {
            let answers = self.journal.iter().map(|(by, said)| answer(*by, *said));
            let due: Vec<_> = answers.filter(|(to, _)| to.is_none_or(|to| to == host)).map(|(_, said)| said).collect();
            let heard = self.journal.iter().filter(|(by, _)| *by == host).map(|(_, said)| *said);
            if !heard.eq(0..daemon.said) {
                return Some(format!("what daemon {host} has said is lost or comes twice"));
            }
            if daemon.told != due {
                return Some(format!("daemon {host} was told {:?} in place of {due:?}", daemon.told));
            }
        }
        self.is_misled.then(|| "an older coordinator was heeded after a newer one had called".into())
    }
}

/// The simulator of daemons below each other.
pub enum TreeSimulator {}

impl Simulator for TreeSimulator {
    const NAME: &'static str = "follower-tree";
    const ABOUT: &'static str = "Daemons below each other, whose coordinators are killed, or wake up when replaced";
    type Faults = Nothing;
    type Mistake = Mistake;
    type Shape = ();
    type Summary = String;

    fn run(seed: u64, setup: &Setup<Self>) -> Result<String, Violation> {
        let (mut random, mut world) = (Random::new(seed), World::new(setup));
        for _ in 0..random.within(1..600) {
            world.step(random.below(120), random.below(1000));
        }
        world.settle();
        let figures = format!("{} messages, {} coordinators", world.journal.len(), world.coordinators.len());
        world.check().map_or(Ok(figures), |wrong| Err(wrong.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use simulation_kit::{Named, sweep};

    #[test]
    fn messages_from_above_are_those_of_the_followed_coordinator() {
        sweep::right::<TreeSimulator>(0..400, &Setup::default());
    }

    #[test]
    fn planted_mistakes_of_daemons_above_others_are_found() {
        sweep::finds::<TreeSimulator>(Mistake::ALL, 0..400, &Setup::default());
    }
}
