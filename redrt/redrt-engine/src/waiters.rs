//! The threads of this process that wait. One of them polls the transports or sleeps on them; the others wait for it.

use super::link::Links;
use super::request::Requests;

/// State whose change must wake a sleeping thread, when another thread of the process causes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Happened {
    /// Number of completions.
    completions: u64,
    /// Number of processes to which something waits to go.
    busy_links: usize,
}

impl Happened {
    /// The present state.
    #[inline]
    pub fn now(requests: &Requests, links: &Links) -> Self {
        Self { completions: requests.completions, busy_links: links.busy_count() }
    }
}

/// The waiting threads.
#[derive(Default)]
pub(super) struct Waiters {
    /// True while a thread polls or sleeps on the transports.
    is_polled: bool,
    /// Threads that wait for the polling thread.
    waiting: u32,
    /// Threads that were woken and have not looked yet.
    stirred: u32,
    generation: u64,
    /// Set while the polling thread is asleep: the state when it fell asleep.
    asleep: Option<Happened>,
    /// Completions at the last time that the waiting threads were stirred.
    told_completions: u64,
    /// Time at which a waiting thread must look again though nothing has come, by this machine's monotonic clock.
    alarm_ns: Option<u64>,
}

impl Waiters {
    /// Begins a thread's wait for the polling thread. Its end is [`Waiters::end`], with the number returned.
    pub fn begin(&mut self) -> u64 {
        self.waiting += 1;
        self.generation
    }

    /// Ends a wait: the thread has woken, and looks.
    pub fn end(&mut self, begun: u64) {
        self.waiting -= 1;
        if begun != self.generation {
            self.stirred -= 1;
        }
    }

    /// Counts all waiting threads as woken.
    pub fn stir(&mut self) {
        self.generation += 1;
        self.stirred = self.waiting;
    }

    /// Returns true if any thread waits for the polling thread.
    #[inline]
    pub fn any(&self) -> bool {
        self.waiting > 0
    }

    /// Returns true if waiting threads must be stirred: operations have completed since they last were.
    pub fn must_stir(&mut self, completions: u64) -> bool {
        std::mem::replace(&mut self.told_completions, completions) != completions
    }

    /// Returns true while a thread polls or sleeps on the transports.
    #[inline]
    pub fn are_served(&self) -> bool {
        self.is_polled
    }

    /// The calling thread polls from now on, or no longer.
    #[inline]
    pub fn poll(&mut self, begins: bool) {
        self.is_polled = begins;
    }

    /// The polling thread falls asleep, in this state.
    pub fn fall_asleep(&mut self, happened: Happened) {
        self.asleep = Some(happened);
    }

    /// The polling thread has woken.
    pub fn wake_up(&mut self) {
        self.asleep = None;
    }

    /// The state in which the polling thread fell asleep; `None` while it is awake.
    #[inline]
    pub fn asleep_since(&self) -> Option<Happened> {
        self.asleep
    }

    /// Has a waiting thread look again at this time at the latest. Returns false if one would anyway.
    pub fn set_alarm(&mut self, alarm_ns: u64) -> bool {
        let is_news = self.alarm_ns.is_none_or(|before| before > alarm_ns);
        if is_news {
            self.alarm_ns = Some(alarm_ns);
        }
        is_news
    }

    /// Time at which a waiting thread must look again.
    pub fn alarm_ns(&self) -> Option<u64> {
        self.alarm_ns
    }

    /// Forgets the alarm, and returns true, if its time has come.
    pub fn take_alarm(&mut self, now_ns: u64) -> bool {
        self.alarm_ns.take_if(|alarm| *alarm <= now_ns).is_some()
    }

    /// Runs in a process that goes on from an image: clocks are another machine's.
    pub fn forget_alarm(&mut self) {
        self.alarm_ns = None;
    }

    /// Returns true if as many threads wait, the polling one included. A thread that polls in its call waits as well:
    /// its program does not go on.
    pub fn are_all_waiting(&self, thread_count: u32) -> bool {
        self.is_polled && self.waiting + 1 >= thread_count
    }

    /// Returns true if as many threads wait, none will look by itself, and none was told to look.
    pub fn are_all_asleep(&self, thread_count: u32) -> bool {
        let all_wait = self.asleep.is_some() && self.stirred == 0 && self.waiting + 1 >= thread_count;
        all_wait && self.alarm_ns.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_counts_as_stirred_until_it_has_looked() {
        let mut waiters = Waiters::default();
        let first = waiters.begin();
        waiters.stir();
        // The second thread begins after the call that woke the first.
        let second = waiters.begin();
        assert_eq!(waiters.stirred, 1);
        // It woke for no reason: it was not among the stirred threads.
        waiters.end(second);
        assert_eq!(waiters.stirred, 1);
        waiters.stir();
        waiters.end(first);
        assert_eq!(waiters.stirred, 0);
        assert!(!waiters.any());
    }

    #[test]
    fn threads_with_an_alarm_look_again_by_themselves() {
        let mut waiters = Waiters::default();
        waiters.poll(true);
        waiters.fall_asleep(Happened { completions: 1, busy_links: 0 });
        assert!(waiters.are_all_waiting(1) && waiters.are_all_asleep(1));
        assert!(!waiters.are_all_waiting(2) && !waiters.are_all_asleep(2));
        assert!(waiters.set_alarm(7) && !waiters.set_alarm(8) && waiters.set_alarm(6));
        assert!(!waiters.are_all_asleep(1));
        assert!(!waiters.take_alarm(5) && waiters.take_alarm(6));
        assert!(waiters.are_all_asleep(1));
    }
}
