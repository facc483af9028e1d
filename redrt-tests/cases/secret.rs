//! Collectives whose buffers other processes cannot read.

use redrt_tests::{Job, breadth, compile_case};

#[test]
fn what_members_cannot_read_comes_as_messages() {
    for (rank_count, secret_count) in [(2, 1), (2, 2), (4, 1), (4, 3), (4, 4)] {
        for degree in [1, 2] {
            // Processes with a core of their own post shorter pieces in place than processes that share one.
            let all = ["core", "none"];
            let in_turn = (rank_count + secret_count) as usize / 2 % 2;
            for binding in breadth(all[in_turn..=in_turn].to_vec(), all.to_vec()) {
                let job = Job::new(rank_count, &compile_case("secret")).degree(degree);
                let job = job.arguments(&[&secret_count.to_string()]).options(&["--bind-to", binding]);
                let ended = job.run().ended_well();
                if ended.out == "no secret memory\n" {
                    println!("skipped: the kernel has no secret memory");
                    return;
                }
                assert_eq!(ended.out, "right\n", "{ended}");
            }
        }
    }
}
