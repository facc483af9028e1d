//! A job's end of its connection to a `redspared`.
//!
//! The pool may be away for a while: it is dialled again, requests are repeated, and ends of leases are repeated until
//! they are acknowledged. A lease lasts for its time from the *sending* of the last answered renewal, so it ends here
//! no later than at the pool.

use super::identity::{self, Pass, Proof};
use super::wire::{End, FromPool, ToPool};
use anyhow::{Context, Result, bail};
use control_network::door;
use control_network::hub::{Event, Hub, LinkId};
use control_network::munge::Munge;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use redrt_wire::secret::Secret;
use spare_pool::{JobId, Lease, LeaseId, News, Request, Spares};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// Time for the pool to answer at the start and at the end of a job.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);
const FAREWELL_TIME_MAX: Duration = Duration::from_secs(2);
const DIAL_TIME_MAX: Duration = Duration::from_secs(3);
/// Pause between attempts to reach a pool that is away.
const DIAL_PAUSE: Duration = Duration::from_millis(500);
/// Number of renewals within the time of a lease.
const RENEWALS: u32 = 4;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Connection {
    /// The pool is dialled again at this time.
    Away {
        dial_at: Duration,
    },
    Dialling,
    /// `Hello` was sent; usable once the pool has answered with `Welcome`.
    Up {
        link: LinkId,
        is_welcome: bool,
    },
    /// The pool has refused this job for good.
    Refused,
}

/// Connection to a pool: see the module.
pub struct Client {
    hub: Hub,
    secret: Secret,
    address: SocketAddr,
    job: JobId,
    connection: Connection,
    /// Requests without an answer.
    requests: BTreeMap<u64, Request>,
    leases: BTreeMap<LeaseId, Lease>,
    told_to_leave: BTreeSet<LeaseId>,
    /// Ends of leases that the pool has not acknowledged.
    ends: BTreeMap<LeaseId, End>,
    /// Proof of the job's user, if the pool distinguishes users.
    pass: Option<Pass>,
    /// True until the job has begun: blocking is permitted.
    is_starting: bool,
    /// True if the pool has asked for the job's user.
    is_asked_for_user: bool,
    lease_time: Duration,
    /// Time of sending of the last answered renewal.
    renewed_at: Duration,
    renew_at: Duration,
    round: u64,
    /// Renewals without an answer, with their times of sending.
    unanswered: VecDeque<(u64, Duration)>,
    is_leaving: bool,
    has_left: bool,
    is_missed: bool,
    /// Time of the last call of `work`.
    now: Duration,
    news: VecDeque<News>,
}

impl Client {
    /// Connects to a pool and introduces the job. Blocks.
    pub fn connect(address: SocketAddr, secret: &Secret, job: JobId, now: Duration) -> Result<Self> {
        Self::connect_by(&Munge::default(), address, secret, job, now)
    }

    /// Like [`Client::connect`], with other commands for MUNGE.
    pub fn connect_by(munge: &Munge, address: SocketAddr, secret: &Secret, job: JobId, now: Duration) -> Result<Self> {
        let mut client = Self::of_past(address, secret, job, now)?;
        client.introduce(munge, now)?;
        match client.news.pop_front() {
            None => Ok(client),
            Some(News::Note(line)) => bail!("{line}"),
            Some(_) => bail!("the pool of spares at {address} does not answer"),
        }
    }

    /// Client of a job whose coordinator was killed. It connects in [`Client::go_on`]; calls before that replay earlier
    /// orders.
    pub fn of_past(address: SocketAddr, secret: &Secret, job: JobId, now: Duration) -> Result<Self> {
        Ok(Self {
            hub: Hub::without_door(secret.clone())?,
            secret: secret.clone(),
            address,
            job,
            connection: Connection::Dialling,
            requests: BTreeMap::new(),
            leases: BTreeMap::new(),
            told_to_leave: BTreeSet::new(),
            ends: BTreeMap::new(),
            pass: None,
            is_starting: true,
            is_asked_for_user: false,
            lease_time: ANSWER_TIME_MAX,
            renewed_at: now,
            renew_at: now + ANSWER_TIME_MAX,
            round: 0,
            unanswered: VecDeque::new(),
            is_leaving: false,
            has_left: false,
            is_missed: false,
            now,
            news: VecDeque::new(),
        })
    }

    /// Replays a message of the pool.
    pub fn heard_before(&mut self, news: &News) {
        match news {
            News::Granted { number, lease } => {
                self.requests.remove(number);
                self.leases.insert(lease.id, lease.clone());
            }
            News::Lost { lease, .. } => drop(self.leases.remove(&lease.id)),
            News::Leave(lease) => drop(self.told_to_leave.insert(lease.id)),
            News::Note(_) => {}
        }
    }

    /// Connects, and repeats everything outstanding. Blocks. A pool that is away is dialled again.
    pub fn go_on(&mut self, now: Duration) {
        (self.renewed_at, self.renew_at) = (now, now + ANSWER_TIME_MAX);
        if let Err(error) = self.introduce(&Munge::default(), now)
            && self.connection != Connection::Refused
        {
            self.is_starting = false;
            self.part(&format!("{error:#}"), now);
        }
    }

    /// Connects, introduces the job, and proves its user if the pool asks. Blocks.
    fn introduce(&mut self, munge: &Munge, now: Duration) -> Result<()> {
        let address = self.address;
        let opened = door::dial(address, &self.secret, ANSWER_TIME_MAX)
            .with_context(|| format!("Failed to reach the pool of spares at {address}"))?;
        let link = self.hub.adopt(opened)?;
        self.present(link, None, now);
        let is_answered = |client: &Self| {
            client.is_asked_for_user || !matches!(client.connection, Connection::Up { is_welcome: false, .. })
        };
        self.wait_for(is_answered, ANSWER_TIME_MAX, now)?;
        if std::mem::take(&mut self.is_asked_for_user) {
            let sealed = munge.seal(&identity::words(self.job), None).with_context(|| {
                format!("the pool of spares at {address} tells users apart by MUNGE, which does not work here")
            })?;
            self.present(link, Some(Proof::Munge(sealed)), now);
            self.wait_for(is_answered, ANSWER_TIME_MAX, now)?;
        }
        self.is_starting = false;
        match (self.connection, self.news.front()) {
            (Connection::Up { is_welcome: true, .. }, _) | (_, Some(News::Note(_))) => Ok(()),
            _ => bail!("the pool of spares at {address} does not answer"),
        }
    }

    fn wait_for(&mut self, is_done: impl Fn(&Self) -> bool, time_max: Duration, now: Duration) -> Result<()> {
        let begin = Instant::now();
        while !is_done(self) {
            let left = time_max.saturating_sub(begin.elapsed());
            if left.is_zero() {
                break;
            }
            let passed = now + begin.elapsed();
            let until_next = self.next_event(passed).map_or(left, |at| at.saturating_sub(passed));
            // Rounded up: waking too early would find nothing due, again and again.
            let pause = left.min(until_next + Duration::from_millis(1));
            let mut fds = [PollFd::new(self.hub.fd(), PollFlags::POLLIN)];
            match poll(&mut fds, PollTimeout::try_from(pause).unwrap_or(PollTimeout::MAX)) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
            self.work(now + begin.elapsed());
        }
        Ok(())
    }

    /// Readable when [`Spares::work`] has work.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.hub.fd()
    }

    /// Sends `Hello`; everything else follows the pool's answer.
    fn present(&mut self, link: LinkId, proof: Option<Proof>, now: Duration) {
        self.connection = Connection::Up { link, is_welcome: false };
        let leases = self.leases.keys().chain(self.ends.keys()).copied().collect();
        let version = env!("CARGO_PKG_VERSION").into();
        self.hub.send(link, &ToPool::Hello { version, job: self.job, leases, proof });
        self.unanswered.clear();
        self.renew(now);
    }

    /// Sends everything that the pool has not had, or not on this connection.
    fn say_all(&mut self, now: Duration) {
        for (lease, end) in self.ends.clone() {
            self.say(&ToPool::End { lease, end });
        }
        if self.is_leaving {
            return self.say(&ToPool::Leave);
        }
        for (number, request) in self.requests.clone() {
            self.say(&ToPool::Request { number, request });
        }
        self.unanswered.clear();
        self.renew(now);
    }

    /// Sends a message if the pool has welcomed the job.
    fn say(&mut self, message: &ToPool) {
        if let Connection::Up { link, is_welcome: true } = self.connection {
            self.hub.send(link, message);
        }
    }

    fn renew(&mut self, now: Duration) {
        self.round += 1;
        self.unanswered.push_back((self.round, now));
        self.renew_at = now + self.lease_time / RENEWALS;
        self.say(&ToPool::Renew { round: self.round });
    }

    fn part(&mut self, why: &str, now: Duration) {
        if let Connection::Up { link, .. } = self.connection {
            self.hub.close(link);
        }
        self.connection = Connection::Away { dial_at: now + DIAL_PAUSE };
        if !self.is_missed {
            self.is_missed = true;
            self.news.push_back(News::Note(format!("the pool of spares at {} cannot be reached: {why}", self.address)));
        }
    }

    fn refuse(&mut self, why: &str, now: Duration) {
        self.part(why, now);
        self.connection = Connection::Refused;
        let line = format!("the pool of spares at {} refuses this job: {why}", self.address);
        self.news.push_back(News::Note(line));
    }

    fn read(&mut self, link: LinkId, now: Duration) {
        loop {
            match self.hub.next_message::<FromPool>(link) {
                Ok(Some(message)) => self.handle(message, now),
                Ok(None) => return,
                Err(error) => return self.part(&format!("{error:#}"), now),
            }
        }
    }

    fn handle(&mut self, message: FromPool, now: Duration) {
        match message {
            FromPool::Prove if self.is_starting => self.is_asked_for_user = true,
            // The administrator has a new key, or has restarted the pool with `--munge`.
            FromPool::Prove => {
                self.refuse("it asks anew whose job this is, and a running job cannot wait for MUNGE", now)
            }
            FromPool::Welcome { lease_time_ms, leases, pass } => {
                self.pass = pass.or(self.pass.take());
                self.lease_time = Duration::from_millis(lease_time_ms.max(1));
                self.renew_at = self.renew_at.min(now + self.lease_time / RENEWALS);
                if let Connection::Up { is_welcome, .. } = &mut self.connection {
                    *is_welcome = true;
                }
                self.keep_only(&leases, "the pool does not know of it any more");
                if self.is_missed {
                    self.is_missed = false;
                    self.news.push_back(News::Note(format!("the pool of spares at {} is back", self.address)));
                }
                self.say_all(now);
            }
            FromPool::Refused(why) => self.refuse(&why.to_string(), now),
            FromPool::Granted { number, lease } if self.requests.remove(&number).is_some() => {
                self.leases.insert(lease.id, lease.clone());
                self.news.push_back(News::Granted { number, lease });
            }
            // The request was withdrawn meanwhile.
            FromPool::Granted { lease, .. } => self.end(lease.id, End::Released),
            FromPool::Ended { lease, why } => self.lose(lease, &why),
            FromPool::EndTaken(lease) => drop(self.ends.remove(&lease)),
            FromPool::Renewed { round, leases, leaving } => self.renewed(round, &leases, &leaving),
            FromPool::Left => self.has_left = true,
            FromPool::Answer(_) => {}
        }
    }

    fn renewed(&mut self, round: u64, leases: &[LeaseId], leaving: &[LeaseId]) {
        while let Some((_, sent_at)) = self.unanswered.pop_front_if(|(sent, _)| *sent <= round) {
            self.renewed_at = sent_at;
        }
        self.keep_only(leases, "the pool does not know of it any more");
        for id in leaving {
            if self.told_to_leave.insert(*id) {
                self.news.extend(self.leases.get(id).cloned().map(News::Leave));
            }
        }
        self.told_to_leave.retain(|id| leaving.contains(id));
    }

    fn keep_only(&mut self, known: &[LeaseId], why: &str) {
        let lost: Vec<_> = self.leases.keys().filter(|id| !known.contains(id)).copied().collect();
        lost.into_iter().for_each(|id| self.lose(id, why));
    }

    fn lose(&mut self, id: LeaseId, why: &str) {
        if let Some(lease) = self.leases.remove(&id) {
            self.news.push_back(News::Lost { lease, why: why.to_owned() });
        }
    }

    fn end(&mut self, id: LeaseId, end: End) {
        self.leases.remove(&id);
        self.ends.insert(id, end.clone());
        self.say(&ToPool::End { lease: id, end });
    }

    fn keep_time(&mut self, now: Duration) {
        if now >= self.renewed_at + self.lease_time {
            self.keep_only(&[], "the pool has not answered for too long");
        }
        match self.connection {
            Connection::Away { dial_at } if now >= dial_at => {
                self.connection = Connection::Dialling;
                self.hub.dial(0, self.address, DIAL_TIME_MAX);
            }
            Connection::Up { .. } if now >= self.renew_at => {
                // Two renewals without an answer: the connection may be dead unnoticed.
                match self.unanswered.len() {
                    0 | 1 => self.renew(now),
                    _ => self.part("it does not answer", now),
                }
            }
            _ => {}
        }
    }

    /// Gives everything back at the job's end. Waits briefly for the pool's acknowledgement.
    pub fn leave(&mut self) {
        self.is_leaving = true;
        self.say(&ToPool::Leave);
        // A pool that cannot be reached takes the leases back when they expire. One that has just come back has not
        // sent `Welcome` yet, and hears of the end then.
        if !self.is_missed || matches!(self.connection, Connection::Up { .. }) {
            let is_done = |client: &Self| client.has_left || client.connection == Connection::Refused;
            let _ = self.wait_for(is_done, FAREWELL_TIME_MAX, self.now);
        }
    }
}

impl Spares for Client {
    fn request(&mut self, number: u64, request: Request, _now: Duration) {
        self.say(&ToPool::Request { number, request: request.clone() });
        self.requests.insert(number, request);
    }

    fn withdraw(&mut self, number: u64, now: Duration) {
        if self.requests.remove(&number).is_some() {
            self.say(&ToPool::Withdraw { number });
        }
        let granted = |news: &News| matches!(news, News::Granted { number: other, .. } if *other == number);
        if let Some(place) = self.news.iter().position(granted)
            && let Some(News::Granted { lease, .. }) = self.news.remove(place)
        {
            self.release(lease.id, now);
        }
    }

    fn succeeded(&mut self, lease: LeaseId, _: Duration) {
        self.say(&ToPool::Succeeded(lease));
    }

    fn release(&mut self, lease: LeaseId, _now: Duration) {
        self.end(lease, End::Released);
    }

    fn failed(&mut self, lease: LeaseId, why: &str, _now: Duration) {
        self.end(lease, End::Failed(why.to_owned()));
    }

    fn work(&mut self, now: Duration) {
        self.now = now;
        for event in self.hub.events() {
            match event {
                Event::Dialled { result: Ok(link), .. } => {
                    self.present(link, self.pass.clone().map(Proof::Pass), now);
                }
                Event::Dialled { result: Err(error), .. } => self.part(&error.to_string(), now),
                Event::Readable(link) => self.read(link, now),
                Event::Closed(link) => {
                    self.read(link, now);
                    if matches!(self.connection, Connection::Up { link: own, .. } if own == link) {
                        self.part("it closed the connection", now);
                    }
                }
                Event::Accepted(..) | Event::Refused(_) => unreachable!("it listens nowhere"),
            }
        }
        self.keep_time(now);
    }

    fn poll_news(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    fn next_event(&self, now: Duration) -> Option<Duration> {
        let expiry = (!self.leases.is_empty()).then_some(self.renewed_at + self.lease_time);
        let other = match self.connection {
            Connection::Away { dial_at } => Some(dial_at),
            Connection::Up { .. } => Some(self.renew_at),
            Connection::Dialling | Connection::Refused => None,
        };
        expiry.into_iter().chain(other).min().map(|at| at.max(now))
    }

    fn why_none(&self, _request: &Request, _now: Duration) -> Vec<String> {
        Vec::new()
    }
}
