//! Any simulator by its name, with words in place of types: the command line `redrt sim NAME SEED`.

use crate::sweep::attempt;
use crate::{Named, Refusal, Setup, Simulator, Trace, Violation};

/// A run of a seed: the figures in words, or what is wrong.
pub type Run = Box<dyn Fn(u64) -> Result<String, Violation>>;

/// The words of a command line that say what is fixed about runs.
#[derive(Clone, Debug, Default)]
pub struct Words {
    /// `--faults`.
    pub faults: Option<String>,
    /// `--plant`.
    pub mistake: Option<String>,
    /// Names and values of further options.
    pub shape: Vec<(&'static str, String)>,
    /// The reader of the run's lines.
    pub trace: Trace,
}

/// A simulator that a command line can name.
#[derive(Clone, Copy)]
pub struct NamedSimulator {
    /// The name.
    pub name: &'static str,
    /// A line of help.
    pub about: &'static str,
    setup: fn(&Words) -> Result<(Run, Commands), Refusal>,
}

/// The command that shows a seed.
pub type Commands = Box<dyn Fn(u64) -> String>;

impl NamedSimulator {
    /// The entry of a simulator.
    #[must_use]
    pub const fn of<S: Simulator>() -> Self {
        Self { name: S::NAME, about: S::ABOUT, setup: prepare::<S> }
    }

    /// Makes what runs seeds, and what names the command that shows one.
    ///
    /// # Errors
    /// When a word means nothing to this simulator.
    pub fn prepare(&self, words: &Words) -> Result<(Run, Commands), Refusal> {
        (self.setup)(words)
    }
}

fn prepare<S: Simulator>(words: &Words) -> Result<(Run, Commands), Refusal> {
    let mut setup = Setup::<S> { trace: words.trace, ..Setup::default() };
    setup.faults = words.faults.as_deref().map(|word| chosen("faults", word)).transpose()?;
    setup.mistake = words.mistake.as_deref().map(|word| chosen("plant", word)).transpose()?;
    words.shape.iter().try_for_each(|(name, value)| S::fix(&mut setup.shape, name, value))?;
    let run = Box::new(move |seed| attempt(seed, &setup).map(|summary| summary.to_string()));
    Ok((run, Box::new(move |seed| setup.command(seed))))
}

/// The choice that a word names.
///
/// # Errors
/// When it names none.
pub fn chosen<T: Named>(option: &str, word: &str) -> Result<T, Refusal> {
    let refusal = || Refusal::Value { option: option.to_owned(), value: word.to_owned(), of: T::words() };
    T::of_word(word).ok_or_else(refusal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Counter;

    fn words(faults: &str, mistake: &str) -> Words {
        let word = |word: &str| (!word.is_empty()).then(|| word.to_owned());
        Words { faults: word(faults), mistake: word(mistake), ..Words::default() }
    }

    fn refusal(words: &Words) -> String {
        NamedSimulator::of::<Counter>().prepare(words).err().expect("it is refused").to_string()
    }

    #[test]
    fn words_and_a_seed_make_a_run() {
        let words = Words { shape: vec![("from", "2".into())], ..words("slow", "OneTooFew") };
        let (run, command) = NamedSimulator::of::<Counter>().prepare(&words).expect("they mean something");
        assert_eq!((run(3), run(4)), (Ok("6 of 6".into()), Err(Violation::of("6 of 7"))));
        assert_eq!(command(4), "redrt sim counter 4 --faults slow --plant one-too-few --from 2 --trace");
    }

    #[test]
    fn words_that_mean_nothing_are_refused_with_the_choice() {
        assert_eq!(refusal(&words("quick", "")), "--faults cannot be quick: one of slow");
        assert_eq!(refusal(&words("", "none")), "--plant cannot be none: one of one-too-few, panics");
        let words = Words { shape: vec![("degree", "2".into())], ..Words::default() };
        assert_eq!(refusal(&words), "counter has no --degree");
    }
}
