//! A small simulator, for tests of the kit.

use super::*;

named! {
    /// Kinds of faults.
    pub enum Fault {
        Slow,
    }
}

named! {
    /// Planted mistakes.
    pub enum Mistake {
        OneTooFew,
        Panics,
    }
}

/// Counts to a number above the seed. Mistakes show where that is 5 and every 4 seeds.
pub struct Counter;

impl Simulator for Counter {
    const NAME: &'static str = "counter";
    const ABOUT: &'static str = "Counts";
    type Faults = Fault;
    type Mistake = Mistake;
    type Shape = Option<u64>;
    type Summary = String;

    fn run(seed: u64, setup: &Setup<Self>) -> Result<String, Violation> {
        let end = seed + setup.shape.unwrap_or(2) + 1;
        (1..=end).for_each(|number| setup.trace.say(|| number.to_string()));
        let shows = seed >= 2 && end % 4 == if setup.shape.is_some() { 3 } else { 1 };
        assert!(!shows || !setup.has(Mistake::Panics), "a planted panic");
        let counted = end - u64::from(shows && setup.has(Mistake::OneTooFew));
        let words = format!("{counted} of {end}");
        if counted == end { Ok(words) } else { Err(words.into()) }
    }

    fn fix(shape: &mut Self::Shape, option: &str, value: &str) -> Result<(), Refusal> {
        match option {
            "from" => *shape = Some(parsed(option, value)?),
            _ => return Err(Refusal::NoOption { simulator: Self::NAME, option: option.to_owned() }),
        }
        Ok(())
    }

    fn options(shape: &Self::Shape) -> String {
        shape.map(|from| format!(" --from {from}")).unwrap_or_default()
    }
}
