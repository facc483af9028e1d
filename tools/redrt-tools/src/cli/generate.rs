//! The manual page and shell completions, made from the same description as `--help`.

use super::arguments::{Generate, command};
use clap_complete::Shell;

/// Makes one of them for `redrun`.
#[must_use]
pub fn generate(what: Generate) -> Vec<u8> {
    generate_for(command(), "redrun", what)
}

/// Makes one of them for a program.
#[must_use]
pub fn generate_for(mut command: clap::Command, name: &str, what: Generate) -> Vec<u8> {
    let mut out = Vec::new();
    let shell = match what {
        Generate::Man => {
            clap_mangen::Man::new(command).render(&mut out).expect("writing to memory does not fail");
            return out;
        }
        Generate::Bash => Shell::Bash,
        Generate::Zsh => Shell::Zsh,
        Generate::Fish => Shell::Fish,
    };
    clap_complete::generate(shell, &mut command, name, &mut out);
    out
}
