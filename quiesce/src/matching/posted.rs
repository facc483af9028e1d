//! Receives that wait for a message, in the order they were posted.

use super::arena::{Arena, List};
use super::unexpected::unbin;
use super::{LINEAR_LIMIT, Pattern};
use redrt_types::Tag;
use rustc_hash::FxHashMap;

const ALL: usize = 0;
const NAMED: usize = 1;
const BIN: usize = 2;

#[derive(Clone, Copy, Debug)]
pub(super) struct Receive<R> {
    pub(super) token: R,
    /// The pattern it accepts now. A decision fills in the source.
    pub(super) pattern: Pattern,
    /// The wildcard index, until a source is decided.
    pub(super) undecided: Option<u64>,
    /// True while replicas agree if it is cancelled. It takes no message then.
    pub(super) frozen: bool,
    posted: u64,
    binned: bool,
}

/// The posted-receive queue. It is scanned while short, and beyond that kept in bins by pattern: a message looks at the
/// heads of at most four bins and takes the receive posted first.
#[derive(Clone, Debug)]
pub(super) struct PostedQueue<R> {
    arena: Arena<Receive<R>, 3>,
    all: List,
    /// Receives with a source, named or decided. Used once a wildcard has been posted, since until then all receives
    /// have one.
    named: List,
    /// True while `named` is maintained, which ends when the queue is empty again.
    sorted_out: bool,
    bins: FxHashMap<Pattern, List>,
    binned: bool,
    /// Undecided wildcards by index, so that a decision finds its receive.
    undecided: FxHashMap<u64, u32>,
    any_tag_count: usize,
    frozen_count: usize,
    posted_count: u64,
}

impl<R: Copy + Eq> PostedQueue<R> {
    pub(super) fn new() -> Self {
        Self {
            arena: Arena::new(),
            all: List::EMPTY,
            named: List::EMPTY,
            sorted_out: false,
            bins: FxHashMap::default(),
            binned: false,
            undecided: FxHashMap::default(),
            any_tag_count: 0,
            frozen_count: 0,
            posted_count: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.arena.len()
    }

    pub(super) fn undecided_count(&self) -> usize {
        self.undecided.len()
    }

    pub(super) fn frozen_count(&self) -> usize {
        self.frozen_count
    }

    /// Sets if the receive takes no message.
    pub(super) fn set_frozen(&mut self, key: u32, frozen: bool) {
        let receive = self.arena.get_mut(key);
        self.frozen_count = self.frozen_count + usize::from(frozen) - usize::from(receive.frozen);
        receive.frozen = frozen;
    }

    pub(super) fn get(&self, key: u32) -> &Receive<R> {
        self.arena.get(key)
    }

    pub(super) fn oldest(&self) -> Option<u32> {
        self.all.first()
    }

    pub(super) fn after(&self, key: u32) -> Option<u32> {
        self.arena.after(ALL, key)
    }

    /// The receive posted first of those that accept this source and tag, undecided wildcards included.
    #[inline(always)]
    pub(super) fn first(&self, source: u32, tag: Tag) -> Option<u32> {
        if self.all.is_empty() {
            return None;
        }
        if !self.binned {
            let mut next = self.all.first();
            while let Some(key) = next {
                if self.arena.get(key).pattern.accepts(source, tag) {
                    return Some(key);
                }
                next = self.after(key);
            }
            return None;
        }
        self.first_binned(source, tag)
    }

    fn first_binned(&self, source: u32, tag: Tag) -> Option<u32> {
        let mut best: Option<(u64, u32)> = None;
        let mut consider = |source: Option<u32>, tag: Option<Tag>| {
            let Some(key) = self.bins.get(&Pattern { source, tag }).and_then(|bin| bin.first()) else { return };
            let candidate = (self.arena.get(key).posted, key);
            best = Some(best.map_or(candidate, |best| best.min(candidate)));
        };
        consider(Some(source), Some(tag));
        if !self.undecided.is_empty() {
            consider(None, Some(tag));
        }
        if self.any_tag_count > 0 {
            consider(Some(source), None);
            consider(None, None);
        }
        best.map(|(_, key)| key)
    }

    /// Appends a receive. `undecided` is its wildcard index when its source is open.
    #[inline]
    pub(super) fn push(&mut self, pattern: Pattern, token: R, undecided: Option<u64>) {
        debug_assert_eq!(pattern.source.is_none(), undecided.is_some());
        let posted = self.posted_count;
        self.posted_count += 1;
        if undecided.is_some() && !self.sorted_out {
            self.sort_out();
        }
        let key = self.arena.insert(Receive { token, pattern, undecided, frozen: false, posted, binned: false });
        self.arena.push_back(ALL, &mut self.all, key);
        match undecided {
            Some(index) => drop(self.undecided.insert(index, key)),
            None if self.sorted_out => self.arena.push_back(NAMED, &mut self.named, key),
            None => {}
        }
        self.any_tag_count += usize::from(pattern.tag.is_none());
        if self.binned {
            self.bin(key);
        } else if self.arena.len() > LINEAR_LIMIT {
            self.binned = true;
            let mut next = self.all.first();
            while let Some(key) = next {
                self.bin(key);
                next = self.after(key);
            }
        }
    }

    #[inline(always)]
    pub(super) fn remove(&mut self, key: u32) -> Receive<R> {
        self.arena.unlink(ALL, &mut self.all, key);
        let Receive { pattern, undecided, binned, frozen, .. } = *self.arena.get(key);
        self.frozen_count -= usize::from(frozen);
        match undecided {
            Some(index) => drop(self.undecided.remove(&index)),
            None if self.sorted_out => self.arena.unlink(NAMED, &mut self.named, key),
            None => {}
        }
        self.sorted_out &= !self.all.is_empty();
        self.any_tag_count -= usize::from(pattern.tag.is_none());
        if binned {
            unbin(&mut self.arena, BIN, &mut self.bins, pattern, key);
            self.binned = !self.all.is_empty();
        }
        self.arena.remove(key)
    }

    /// Finds a receive by its token, by scanning: cancelling is rare.
    pub(super) fn find(&self, token: R) -> Option<u32> {
        let mut next = self.all.first();
        while let Some(key) = next {
            if self.arena.get(key).token == token {
                return Some(key);
            }
            next = self.after(key);
        }
        None
    }

    /// Gives an undecided wildcard its source. It keeps its place. `None` when it is not posted, or no longer.
    pub(super) fn decide(&mut self, index: u64, source: u32) -> Option<u32> {
        let key = self.undecided.remove(&index)?;
        let Receive { pattern: before, posted, binned, .. } = *self.arena.get(key);
        let pattern = Pattern { source: Some(source), ..before };
        let receive = self.arena.get_mut(key);
        receive.pattern = pattern;
        receive.undecided = None;
        if binned {
            unbin(&mut self.arena, BIN, &mut self.bins, before, key);
            // Few receives of one pattern are older than the wildcard being decided, so the search begins at the front.
            let bin = self.bins.entry(pattern).or_insert(List::EMPTY);
            let mut next = bin.first();
            while let Some(other) = next
                && self.arena.get(other).posted < posted
            {
                next = self.arena.after(BIN, other);
            }
            self.arena.insert_before(BIN, bin, next, key);
        }
        let next = self.named_after(posted);
        self.arena.insert_before(NAMED, &mut self.named, next, key);
        Some(key)
    }

    /// The oldest named receive posted at or after a place. `after_named` gives the following ones.
    pub(super) fn named_from(&self, posted: u64) -> Option<u32> {
        posted.checked_sub(1).map_or(self.named().1.first(), |before| self.named_after(before))
    }

    pub(super) fn after_named(&self, key: u32) -> Option<u32> {
        self.arena.after(self.named().0, key)
    }

    /// The list of receives with a source, and its kind.
    fn named(&self) -> (usize, List) {
        if self.sorted_out { (NAMED, self.named) } else { (ALL, self.all) }
    }

    /// Gives receives with a source a list of their own.
    fn sort_out(&mut self) {
        self.sorted_out = true;
        self.named = List::EMPTY;
        let mut next = self.all.first();
        while let Some(key) = next {
            self.arena.push_back(NAMED, &mut self.named, key);
            next = self.after(key);
        }
    }

    pub(super) fn place(&self, key: u32) -> u64 {
        self.arena.get(key).posted
    }

    fn named_after(&self, posted: u64) -> Option<u32> {
        let (kind, named) = self.named();
        let mut next = None;
        let mut last = named.last();
        while let Some(key) = last
            && self.arena.get(key).posted > posted
        {
            next = last;
            last = self.arena.before(kind, key);
        }
        next
    }

    fn bin(&mut self, key: u32) {
        self.arena.get_mut(key).binned = true;
        let pattern = self.arena.get(key).pattern;
        self.arena.push_back(BIN, self.bins.entry(pattern).or_insert(List::EMPTY), key);
    }
}
