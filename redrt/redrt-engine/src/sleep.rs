//! Sleep of a process until something arrives.
//!
//! With shared memory only, a process sleeps on its futex word, and senders wake it there. Once it has TCP links it
//! sleeps in poll, and senders over shared memory wake it through a socket (`doorbell`). The agent thread can wake it
//! either way.

use super::doorbell::{self, WakeName};
use super::link::{Identity, Links};
use redrt_sync::fence;
use redrt_sync::seen::{self, ASLEEP_FUTEX, ASLEEP_POLL};
use redrt_transport::descriptors;
use redrt_transport::shm::{self, Segment};
use redrt_types::ProcessIndex;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Bound on a sleep. Every wake-up is signalled; the bound only limits the harm of a wake-up that the kernel loses.
const SLEEP_MAX: Duration = Duration::from_secs(60);

/// Polls without success before a process that has a core to itself goes to sleep.
pub const SPIN_POLLS: u32 = 20_000;

/// Polls without success, a multiple of 64, after which a process that has a core to itself yields once. Where others
/// use the machine too, the process that it waits for may have been put on the same core.
pub const POLLS_BEFORE_YIELD: u32 = 512;

/// Polls without success before batched acknowledgements go out.
pub const POLLS_BEFORE_FLUSH: u32 = 4;

/// Bound on the pauses between two polls, which are as many as the operations waited for.
pub const PAUSES_MAX: u64 = 4;

/// Pauses between two polls that look at sockets.
pub const PAUSES_OF_A_SOCKET: u64 = 16;

/// Ring polls of the spin budget that one socket poll costs: it is a system call, and no process should spin longer
/// than a wake-up takes. Other jobs, or other hosts of a test, may want the core.
pub const POLLS_OF_A_SOCKET: u32 = 100;

/// Polls without success before a process that shares its core yields.
pub const SPIN_POLLS_SHARED: u32 = 4;

/// Yields without success before a process that shares its core goes to sleep …
const YIELDS_SHARED: u32 = 24;

/// … but up to this many times half of that, as long as no other process has used the core meanwhile: sleep and wake-up
/// take longer than most waits.
const ALONE_MAX: u32 = 40;

/// Yields of one wait of a process that shares its core.
#[derive(Default)]
pub struct Yielding {
    yields: u32,
    rounds: u32,
    switches: u64,
}

impl Yielding {
    /// Returns true if the process has yielded in this wait.
    pub fn has_begun(&self) -> bool {
        self.yields > 0
    }

    /// Returns true to yield once more, and false to go to sleep. `switches` counts the hand-overs of the core to
    /// others.
    pub fn goes_on(&mut self, switches: impl Fn() -> u64) -> bool {
        self.yields += 1;
        if self.yields == YIELDS_SHARED / 2 {
            self.switches = switches();
        }
        if self.yields < YIELDS_SHARED {
            return true;
        }
        let is_alone = self.rounds < ALONE_MAX && switches() == self.switches;
        (self.yields, self.rounds) = (YIELDS_SHARED / 2, self.rounds + 1);
        is_alone
    }
}

/// Number of times that the calling thread has made room for another on its core; 0 when the kernel does not say.
pub fn switches() -> u64 {
    // SAFETY: - all zeros are a rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: - usage is valid for writes.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    (usage.ru_nvcsw + usage.ru_nivcsw) as u64
}

/// Name of this process's wake-up socket. It cannot be guessed without the secret, even from other names.
fn wake_name(identity: &Identity) -> WakeName {
    let Identity { secret, me, incarnation, .. } = identity;
    let key = secret.derive(&format!("redrt wake socket of {} incarnation {}", me.0, incarnation.0));
    let half = |at: usize| u64::from_le_bytes(key.key()[at..at + 8].try_into().expect("eight bytes"));
    [half(0), half(8)]
}

fn is_alert(shares_core: bool) -> bool {
    !shares_core && fence::is_registered()
}

fn word_of(segment: Option<Segment>, me: ProcessIndex) -> *mut AtomicU32 {
    segment.map_or(std::ptr::null_mut(), |segment| std::ptr::from_ref(segment.sleep_word(me)).cast_mut())
}

/// Sleep and wake-up of this process. Used without the engine's lock.
pub struct Sleeper {
    /// Name of its wake-up socket.
    name: [AtomicU64; 2],
    /// Wakes it when it sleeps in poll; `None` in a simulation, where it does not.
    socket: Option<&'static UnixDatagram>,
    /// Its sleep word in the host's shared memory; null where none exists.
    shared_word: AtomicPtr<AtomicU32>,
    /// Takes the place of that word where none exists.
    own_word: AtomicU32,
    /// True if the process makes a heavy barrier before it sleeps, so that senders need none. False where processes
    /// share cores and sleep often.
    alert: AtomicBool,
}

/// Means to sleep, prepared while the engine is locked and used while it is not.
pub enum Bed {
    /// The futex word of the process.
    Futex(&'static AtomicU32),
    /// The sockets to poll.
    Poll(Vec<libc::pollfd>),
    /// The simulation, which wakes the process.
    #[cfg(any(test, feature = "simulation"))]
    Simulated,
}

impl Sleeper {
    /// Makes the sleeper of this process, which is awake.
    ///
    /// # Errors
    /// When there is no socket to wake it.
    pub fn new(identity: &Identity, shares_core: bool) -> io::Result<Self> {
        let name = wake_name(identity);
        let bound = doorbell::bind(name)?;
        descriptors::record(bound.as_raw_fd());
        let socket = doorbell::install(bound);
        let shared_word = AtomicPtr::new(word_of(identity.segment, identity.me));
        let (own_word, alert) = (AtomicU32::new(seen::AWAKE), AtomicBool::new(is_alert(shares_core)));
        let sleeper = Self { name: name.map(AtomicU64::new), socket: Some(socket), shared_word, own_word, alert };
        doorbell::publish(identity.segment, identity.me, name);
        sleeper.awake();
        Ok(sleeper)
    }

    /// Runs in a copy: from now on it sleeps and is woken as this process.
    ///
    /// # Errors
    /// When there is no socket to wake it.
    pub fn become_process(&self, identity: &Identity, shares_core: bool) -> io::Result<()> {
        if self.is_simulated() {
            return Ok(());
        }
        let name = wake_name(identity);
        if let Some(socket) = self.socket {
            descriptors::replace(socket.as_raw_fd(), &doorbell::bind(name)?)?;
        }
        doorbell::publish(identity.segment, identity.me, name);
        self.name.iter().zip(name).for_each(|(place, half)| place.store(half, Ordering::SeqCst));
        self.alert.store(is_alert(shares_core), Ordering::SeqCst);
        self.shared_word.store(word_of(identity.segment, identity.me), Ordering::SeqCst);
        // A thread may still sleep by means prepared in the source. That word is no longer the one that others look at,
        // and its sockets are not these, though new ones may have their numbers.
        doorbell::poke_by(name);
        Ok(())
    }

    /// Makes the sleeper of a simulated process.
    #[cfg(any(test, feature = "simulation"))]
    pub fn simulated() -> Self {
        let (name, own_word) = (Default::default(), AtomicU32::new(seen::AWAKE));
        Self { name, socket: None, shared_word: AtomicPtr::default(), own_word, alert: AtomicBool::new(false) }
    }

    /// Returns true if its process is simulated: then it never spins.
    #[inline(always)]
    pub fn is_simulated(&self) -> bool {
        cfg!(any(test, feature = "simulation")) && self.socket.is_none()
    }

    fn shared_word(&self) -> Option<&'static AtomicU32> {
        // SAFETY: - null, or a word of a mapping that is never removed.
        unsafe { self.shared_word.load(Ordering::Relaxed).as_ref() }
    }

    fn word(&self) -> &AtomicU32 {
        self.shared_word().unwrap_or(&self.own_word)
    }

    /// Announces that the process goes to sleep. `None` when something has arrived meanwhile: then it must not.
    /// `has_arrived` looks for events that do not come through the links.
    pub fn prepare(&self, links: &mut Links, has_arrived: impl Fn() -> bool) -> Option<Bed> {
        let sockets: Vec<_> = links.descriptors().collect();
        let futex = sockets.is_empty().then(|| self.shared_word()).flatten();
        self.word().store(if futex.is_some() { ASLEEP_FUTEX } else { ASLEEP_POLL }, Ordering::SeqCst);
        seen::before_last_look(self.alert.load(Ordering::Relaxed));
        // Since the last attempt to send, a consumer may have made room, and found this process awake.
        let mut arrived = has_arrived() || (links.is_busy() && links.pump());
        if let Some(inbox) = links.inbox() {
            arrived |= inbox.poll_before_sleep();
            links.wake_relieved();
        }
        if arrived {
            self.awake();
            return None;
        }
        if let Some(word) = futex {
            return Some(Bed::Futex(word));
        }
        let entry = |fd, events| libc::pollfd { fd, events, revents: 0 };
        let Some(socket) = self.socket else {
            #[cfg(any(test, feature = "simulation"))]
            return Some(Bed::Simulated);
            #[cfg(not(any(test, feature = "simulation")))]
            unreachable!("it has a socket");
        };
        let mut entries = vec![entry(socket.as_raw_fd(), libc::POLLIN)];
        entries.extend(sockets.into_iter().map(|(fd, events)| entry(fd, events)));
        Some(Bed::Poll(entries))
    }

    /// Sleeps until something arrives, another thread or process wakes this one, or the time is over. Returns true if
    /// the other end of a socket may have gone.
    pub fn sleep(&self, bed: Bed, limit: Option<Duration>) -> bool {
        let limit = limit.map_or(SLEEP_MAX, |limit| limit.min(SLEEP_MAX));
        match bed {
            Bed::Futex(word) => {
                shm::futex_wait(word, ASLEEP_FUTEX, limit);
                false
            }
            Bed::Poll(mut entries) => {
                // SAFETY: - entries is valid for its length during the call.
                unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as u64, limit.as_millis() as i32 + 1) };
                let mut byte = [0; 8];
                while self.socket.is_some_and(|socket| socket.recv(&mut byte).is_ok()) {}
                let gone = libc::POLLERR | libc::POLLHUP | libc::POLLRDHUP;
                entries.iter().any(|entry| entry.revents & gone != 0)
            }
            #[cfg(any(test, feature = "simulation"))]
            Bed::Simulated => {
                redrt_process::simulation::sleep(Some(limit));
                true
            }
        }
    }

    /// Announces that the process is awake.
    pub fn awake(&self) {
        self.word().store(seen::awake(self.alert.load(Ordering::Relaxed)), Ordering::SeqCst);
    }

    /// Wakes this process; called by its own other threads.
    pub fn wake(&self) {
        if shm::wake(self.word()) {
            doorbell::poke_by(self.name.each_ref().map(|half| half.load(Ordering::Relaxed)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn yields_before_sleep(switches: impl Fn() -> u64) -> u32 {
        let mut yielding = Yielding::default();
        (0..).take_while(|_| yielding.goes_on(&switches)).count() as u32
    }

    /// Public facts about the process do not lead to the name.
    #[test]
    fn names_of_wake_sockets_cannot_be_guessed() {
        use redrt_types::Incarnation;
        let identity = |byte: u8, me, incarnation| Identity {
            job: 1,
            me: ProcessIndex(me),
            incarnation: Incarnation(incarnation),
            host_number: 0,
            secret: redrt_wire::secret::Secret::new([byte; 32]),
            segment: None,
            networks: std::sync::Arc::new([]),
        };
        // The numbers of job and process are known to all, and so are the names of existing sockets.
        let names =
            [identity(1, 0, 0), identity(2, 0, 0), identity(1, 1, 0), identity(1, 0, 1)].map(|one| wake_name(&one));
        for (number, name) in names.iter().enumerate() {
            assert!(names[..number].iter().all(|other| other[0] != name[0] && other[1] != name[1]));
        }
        assert_eq!(names[0], wake_name(&identity(1, 0, 0)));
    }

    #[test]
    fn a_process_alone_on_its_core_yields_longer() {
        let count = Cell::new(0);
        let others_run = || {
            count.set(count.get() + 1);
            count.get()
        };
        assert_eq!(yields_before_sleep(others_run), YIELDS_SHARED - 1);
        assert_eq!(yields_before_sleep(|| 7), YIELDS_SHARED - 1 + ALONE_MAX * YIELDS_SHARED / 2);
    }
}
