//! The seed → trials.

use super::{ARBITRATE, Campaign, FlipSite, Trial};
use crate::Random;
use crate::alone::Alone;
use crate::programs::Program;

impl Campaign {
    /// The campaign's number of trials. Any first part of them has all programs, degrees and places.
    pub(super) fn draw(&self) -> Vec<Trial> {
        let mut random = Random::new(self.seed);
        let cells = || {
            let degrees = self.degrees.iter().copied();
            let both = degrees.flat_map(|degree| self.places.iter().map(move |place| (degree, *place)));
            both.flat_map(|(degree, place)| self.programs.iter().map(move |program| (degree, place, *program)))
        };
        let mut order: Vec<_> = cells().collect();
        for at in (1..order.len()).rev() {
            order.swap(at, (random.draw() % (at as u64 + 1)) as usize);
        }
        let endless = order.iter().cycle().take(if order.is_empty() { 0 } else { self.fault_count });
        endless
            .map(|(degree, place, program)| {
                let drawn = trial(*degree, *place, *program, &self.alone(program), &mut random);
                if self.arbitrates && *degree == 2 { arbitrated(drawn) } else { drawn }
            })
            .collect()
    }
}

/// The same trial with copies that stand ready to judge. They deliver nothing before its verdict.
fn arbitrated(trial: Trial) -> Trial {
    let options = trial.options.into_iter().map(|option| if option == "deferred" { "strict" } else { option });
    Trial { options: options.chain([ARBITRATE]).collect(), ..trial }
}

fn trial(degree: u16, place: FlipSite, program: Program, known: &Alone, random: &mut Random) -> Trial {
    // Only rank 0 prints.
    let is_output = place == FlipSite::Output;
    let rank = if is_output { 0 } else { random.draw() % u64::from(program.rank_count) };
    let replica = (random.draw() % u64::from(degree)) as u16;
    // A replica receives about as many messages as it sends.
    let count = if is_output { known.out.lines().count() as u64 } else { known.sends[rank as usize] };
    let number = random.from_one_to(count);
    let target = format!("{rank}.{replica}@#{number}");
    let fault = match place {
        FlipSite::Payload => format!("flip:{target}"),
        FlipSite::Heap => format!("heap:{target}"),
        FlipSite::Thread => format!("thread:{target}"),
        FlipSite::Flight => format!("wire:{target}"),
        FlipSite::Received => format!("recv:{target}"),
        FlipSite::Output => format!("stdout:{target}"),
        FlipSite::Path => format!("path:{target}"),
        FlipSite::Log => {
            // The injected replica resends in place of the sibling before it, whose message is flipped in flight or
            // which dies before the send.
            let before = (replica + degree - 1) % degree;
            let trigger = random.one_of(&["wire", "kill"]);
            format!("log:{target},{trigger}:{rank}.{before}@#{number}")
        }
    };
    let mut options = vec!["--transport", *random.one_of(&["shm", "tcp"])];
    let others =
        [["--verify", "deferred"], ["--protocol", "all-to-all"], ["--verify", "strict"], ["--verify", "strict"]];
    let drawn = random.one_of(&others);
    if drawn[1] != "deferred" || program.can_be_deferred() {
        options.extend(drawn);
    }
    if degree > 2 && random.draw().is_multiple_of(2) {
        options.extend(["--spares", "1"]);
    }
    Trial { program, degree, place, target: (rank, replica), fault, options }
}
