//! Jobs that processes spawn, over the hosts of the spawning job or others.

use crate::nothing_left;
use redrt_tests::lab::lab;
use redrt_tests::{Job, compile_case};

fn dynamic(rank_count: u32, arguments: &[&str]) -> Job {
    Job::new(rank_count, &compile_case("dynamic")).arguments(arguments).environment("PARENTS", &rank_count.to_string())
}

#[test]
fn jobs_are_spawned_over_hosts() {
    let Some(lab) = lab(2) else { return };
    for way in ["all", "multiple", "generations", "names", "mixed"] {
        let ended = dynamic(2, &[way]).on_hosts(&lab, "h1:1,h2:1").run().ended_well();
        nothing_left(&lab, &ended.printed(&format!("{way}: right\n")));
    }
}

#[test]
fn the_info_key_host_says_where() {
    let Some(lab) = lab(2) else { return };
    let ended = dynamic(1, &["host", "h2"]).on_hosts(&lab, "h1,h2").run().ended_well();
    nothing_left(&lab, &ended.printed("host: right\n"));
}

#[test]
fn jobs_over_hosts_end_together() {
    let Some(lab) = lab(2) else { return };
    let ended = dynamic(2, &["ends", "aborting"]).on_hosts(&lab, "h1:1,h2:1").run().ended_with(7);
    nothing_left(&lab, &ended);
    let ended = dynamic(2, &["abandon"]).on_hosts(&lab, "h1:1,h2:1").run().ended_with(6);
    nothing_left(&lab, &ended);
}
