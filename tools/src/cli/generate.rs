//! The manual page and shell completions, made from the same description as `--help`.

use super::arguments::{Generate, command};
use clap_complete::Shell;

/// Makes one of them.
#[must_use]
pub fn generate(what: Generate) -> Vec<u8> {
    let mut out = Vec::new();
    let mut command = command();
    let shell = match what {
        Generate::Man => {
            clap_mangen::Man::new(command).render(&mut out).expect("writing to memory does not fail");
            return out;
        }
        Generate::Bash => Shell::Bash,
        Generate::Zsh => Shell::Zsh,
        Generate::Fish => Shell::Fish,
    };
    clap_complete::generate(shell, &mut command, "redrun", &mut out);
    out
}
