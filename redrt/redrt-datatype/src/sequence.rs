//! The basic elements of one element of a datatype, in packing order and without their displacements.
//! `MPI_Get_elements` counts them and external32 converts them.

use crate::basic::Basic;
use crate::signature::Word;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Basic elements in order. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Sequence {
    runs: Arc<[Run]>,
    /// Number of basic elements.
    pub element_count: u64,
    /// Size of all elements in memory.
    pub size: u64,
}

#[derive(Clone, Debug)]
enum Run {
    Basic(Basic, u64),
    Repeat(Sequence, u64),
}

impl Run {
    fn element_count(&self) -> u64 {
        match self {
            Self::Basic(_, count) => *count,
            Self::Repeat(body, count) => body.element_count * count,
        }
    }

    fn size(&self) -> u64 {
        match self {
            Self::Basic(basic, count) => basic.size() * count,
            Self::Repeat(body, count) => body.size * count,
        }
    }
}

impl Sequence {
    /// One element of a basic type.
    #[must_use]
    pub fn basic(basic: Basic) -> Self {
        Self::of(vec![Run::Basic(basic, 1)])
    }

    fn of(runs: Vec<Run>) -> Self {
        let element_count = runs.iter().map(Run::element_count).sum();
        let size = runs.iter().map(Run::size).sum();
        Self { runs: runs.into(), element_count, size }
    }

    /// The parts one after another, each repeated as many times as its number.
    #[must_use]
    pub fn concatenated<'a>(parts: impl IntoIterator<Item = (&'a Self, u64)>) -> Self {
        let mut runs: Vec<Run> = Vec::new();
        for (part, count) in parts {
            let repeated = match &*part.runs {
                _ if count == 0 || part.element_count == 0 => continue,
                [Run::Basic(basic, own)] => Run::Basic(*basic, own * count),
                [Run::Repeat(body, own)] => Run::Repeat(body.clone(), own * count),
                _ => Run::Repeat(part.clone(), count),
            };
            match (runs.last_mut(), &repeated) {
                (Some(Run::Basic(last, length)), Run::Basic(basic, more)) if last == basic => *length += more,
                (Some(Run::Repeat(last, length)), Run::Repeat(body, more)) if Arc::ptr_eq(&last.runs, &body.runs) => {
                    *length += more;
                }
                _ => runs.push(repeated),
            }
        }
        Self::of(runs)
    }

    /// Number of elements of each basic type.
    #[must_use]
    pub fn totals(&self) -> BTreeMap<Basic, u64> {
        let mut totals = BTreeMap::new();
        for run in &*self.runs {
            match run {
                Run::Basic(basic, count) => *totals.entry(*basic).or_insert(0) += count,
                Run::Repeat(body, count) => {
                    for (basic, each) in body.totals() {
                        *totals.entry(basic).or_insert(0) += each * count;
                    }
                }
            }
        }
        totals
    }

    /// The sequence as a word, for comparison with others.
    #[must_use]
    pub(crate) fn word(&self) -> Word {
        let words = self.runs.iter().map(|run| match run {
            Run::Basic(basic, count) => Word::of(*basic).repeated(*count),
            Run::Repeat(body, count) => body.word().repeated(*count),
        });
        words.fold(Word::EMPTY, Word::then)
    }

    /// The basic type, if there is exactly one element.
    #[must_use]
    #[inline]
    pub fn single(&self) -> Option<Basic> {
        match &*self.runs {
            [Run::Basic(basic, 1)] => Some(*basic),
            _ => None,
        }
    }

    /// The basic type of all elements, if they are stored as repetitions of one. `None` for mixed sequences.
    #[must_use]
    pub fn uniform(&self) -> Option<Basic> {
        match &*self.runs {
            [Run::Basic(basic, _)] => Some(*basic),
            [Run::Repeat(body, _)] => body.uniform(),
            _ => None,
        }
    }

    /// Number of whole basic elements in the first `size` bytes, and the bytes they take.
    #[must_use]
    pub fn elements_in(&self, size: u64) -> (u64, u64) {
        let (mut elements, mut bytes) = (0, 0);
        for run in &*self.runs {
            let rest = size - bytes;
            if run.size() <= rest {
                elements += run.element_count();
                bytes += run.size();
                continue;
            }
            let (more_elements, more_bytes) = match run {
                Run::Basic(basic, _) => (rest / basic.size(), rest / basic.size() * basic.size()),
                Run::Repeat(body, _) => {
                    let whole = rest / body.size;
                    let (elements, bytes) = body.elements_in(rest % body.size);
                    (whole * body.element_count + elements, whole * body.size + bytes)
                }
            };
            return (elements + more_elements, bytes + more_bytes);
        }
        (elements, bytes)
    }

    /// Bytes of the first `element_count` basic elements.
    #[must_use]
    pub fn size_of_elements(&self, element_count: u64) -> u64 {
        let (mut rest, mut bytes) = (element_count, 0);
        for run in &*self.runs {
            if run.element_count() <= rest {
                rest -= run.element_count();
                bytes += run.size();
                continue;
            }
            return bytes
                + match run {
                    Run::Basic(basic, _) => rest * basic.size(),
                    Run::Repeat(body, _) => {
                        let whole = rest / body.element_count;
                        whole * body.size + body.size_of_elements(rest % body.element_count)
                    }
                };
        }
        bytes
    }

    /// Calls `visit` for each run of equal basic elements, in order, until it fails.
    ///
    /// # Errors
    /// The error of `visit`.
    pub fn try_for_each<E>(&self, visit: &mut impl FnMut(Basic, u64) -> Result<(), E>) -> Result<(), E> {
        for run in &*self.runs {
            match run {
                Run::Basic(basic, count) => visit(*basic, *count)?,
                Run::Repeat(body, count) => (0..*count).try_for_each(|_| body.try_for_each(visit))?,
            }
        }
        Ok(())
    }
}
