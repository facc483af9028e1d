//! A simulator, and what is fixed about a run of it.

use crate::{Named, Refusal, Trace, Violation};
use std::fmt::Display;

/// A simulator. Everything that its setup leaves open is drawn from the seed.
pub trait Simulator: Sized + 'static {
    /// The word after `redrt sim`.
    const NAME: &'static str;
    /// One line of help: what is simulated.
    const ABOUT: &'static str;
    /// Kinds of faults, or of scenarios.
    type Faults: Named;
    /// Mistakes that tests plant.
    type Mistake: Named;
    /// Further properties of a run, such as a number of ranks.
    type Shape: Copy + Default;
    /// The figures of a run that was right, in words.
    type Summary: Display;

    /// Runs a seed to its end.
    ///
    /// # Errors
    /// When an invariant does not hold: which, and what a reader needs to understand it. A panic counts as one, too.
    fn run(seed: u64, setup: &Setup<Self>) -> Result<Self::Summary, Violation>;

    /// Fixes a property of a run, as an option of a command line does.
    ///
    /// # Errors
    /// When the simulator has no such property, or not with this value.
    fn fix(_shape: &mut Self::Shape, option: &str, _value: &str) -> Result<(), Refusal> {
        Err(Refusal::NoOption { simulator: Self::NAME, option: option.to_owned() })
    }

    /// The options that fix these properties.
    fn options(_shape: &Self::Shape) -> String {
        String::new()
    }
}

/// The parts of a run that are fixed, besides its seed.
pub struct Setup<S: Simulator> {
    /// The kind of faults.
    pub faults: Option<S::Faults>,
    /// A planted mistake.
    pub mistake: Option<S::Mistake>,
    /// Further properties.
    pub shape: S::Shape,
    /// The reader of the run's lines.
    pub trace: Trace,
}

impl<S: Simulator> Clone for Setup<S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: Simulator> Copy for Setup<S> {}

impl<S: Simulator> Default for Setup<S> {
    fn default() -> Self {
        Self { faults: None, mistake: None, shape: S::Shape::default(), trace: Trace::Off }
    }
}

impl<S: Simulator> Setup<S> {
    /// Fixes the kind of faults.
    #[must_use]
    pub fn with(faults: S::Faults) -> Self {
        Self { faults: Some(faults), ..Self::default() }
    }

    /// The same runs, with a planted mistake.
    #[must_use]
    pub fn planting(self, mistake: S::Mistake) -> Self {
        Self { mistake: Some(mistake), ..self }
    }

    /// The same runs, with other properties.
    #[must_use]
    pub fn shaped(self, shape: S::Shape) -> Self {
        Self { shape, ..self }
    }

    /// True if this mistake is planted.
    #[must_use]
    pub fn has(&self, mistake: S::Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    /// The command that shows a run of this setup.
    #[must_use]
    pub fn command(&self, seed: u64) -> String {
        let faults = self.faults.map(|faults| format!(" --faults {}", faults.word())).unwrap_or_default();
        let mistake = self.mistake.map(|mistake| format!(" --plant {}", mistake.word())).unwrap_or_default();
        format!("redrt sim {} {seed}{faults}{mistake}{} --trace", S::NAME, S::options(&self.shape))
    }
}
