//! Lists by name: kinds of faults, planted mistakes.

use std::fmt::Debug;

/// A choice that a command line can name. [`named!`](crate::named) implements it.
pub trait Named: Copy + PartialEq + Debug + 'static {
    /// All choices.
    const ALL: &'static [Self];

    /// The name in the source: `LeadsAtOnce`.
    fn name(self) -> &'static str;

    /// The name on a command line: `leads-at-once`.
    fn word(self) -> String {
        let parts = self.name().chars().enumerate().map(|(at, letter)| {
            let dash = if at > 0 && letter.is_uppercase() { "-" } else { "" };
            format!("{dash}{}", letter.to_ascii_lowercase())
        });
        parts.collect()
    }

    /// The choice of this name, in either spelling.
    fn of_word(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|choice| choice.name() == word || choice.word() == word).copied()
    }

    /// The words of all choices.
    fn words() -> String {
        Self::ALL.iter().map(|choice| choice.word()).collect::<Vec<_>>().join(", ")
    }
}

/// No choice: a simulator with one kind of faults only, or without planted mistakes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Nothing {}

impl Named for Nothing {
    const ALL: &'static [Self] = &[];

    fn name(self) -> &'static str {
        match self {}
    }
}

/// Defines an enum whose variants have names, or gives names to those of one that is defined already. A variant that
/// the second form leaves out does not compile.
///
/// ```
/// simulation_kit::named! {
///     /// A mistake that tests plant.
///     pub enum Mistake {
///         /// The first message is lost.
///         FirstLost,
///     }
/// }
///
/// enum Fault {
///     Death,
/// }
/// # #[allow(unused)]
/// # impl Fault { fn any() -> Self { Self::Death } }
/// # impl Copy for Fault {}
/// # impl Clone for Fault { fn clone(&self) -> Self { *self } }
/// # impl PartialEq for Fault { fn eq(&self, _: &Self) -> bool { true } }
/// # impl std::fmt::Debug for Fault { fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { Ok(()) } }
/// simulation_kit::named!(Fault: Death);
///
/// use simulation_kit::Named;
/// assert_eq!(Mistake::of_word("first-lost"), Some(Mistake::FirstLost));
/// ```
#[macro_export]
macro_rules! named {
    ($(#[$of:meta])* $see:vis enum $name:ident { $($(#[$doc:meta])* $variant:ident),* $(,)? }) => {
        $(#[$of])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        $see enum $name { $($(#[$doc])* $variant,)* }
        $crate::named!($name: $($variant),*);
    };
    ($name:ty: $($variant:ident),* $(,)?) => {
        impl $crate::Named for $name {
            const ALL: &'static [Self] = &[$(Self::$variant),*];

            fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($variant),)*
                }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    named! {
        enum Choice {
            One,
            OtherOne,
        }
    }

    #[test]
    fn a_choice_is_found_by_its_word_and_by_its_name() {
        assert_eq!(Choice::of_word("other-one"), Some(Choice::OtherOne));
        assert_eq!(Choice::of_word("OtherOne"), Some(Choice::OtherOne));
        assert_eq!((Choice::of_word("third"), Choice::words()), (None, "one, other-one".into()));
        assert_eq!((Nothing::of_word("one"), Nothing::words()), (None, String::new()));
    }
}
