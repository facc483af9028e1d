use super::*;
use proptest::prelude::*;

fn index(number: u16) -> ReplicaIndex {
    ReplicaIndex(number)
}

fn sphere(degree: u16) -> SphereStream {
    SphereStream::new((0..degree).map(ReplicaIndex))
}

/// Runs a script such as `0:ab 1:a -0 1:b .1`: replica 0 prints "ab", …, 0 is lost, …, 1 ends.
fn run(degree: u16, script: &str) -> (String, Vec<Divergence>) {
    let mut stream = sphere(degree);
    let mut out = Vec::new();
    for step in script.split_whitespace() {
        if let Some(lost) = step.strip_prefix('-') {
            stream.lose(index(lost.parse().unwrap()), &mut out);
        } else if let Some(ended) = step.strip_prefix('.') {
            stream.end(index(ended.parse().unwrap()), &mut out);
        } else {
            let (who, what) = step.split_once(':').unwrap();
            stream.push(index(who.parse().unwrap()), what.as_bytes(), &mut out);
        }
    }
    (String::from_utf8(out).unwrap(), std::iter::from_fn(|| stream.poll_divergence()).collect())
}

#[test]
fn table_of_small_streams() {
    let tie = |offset| vec![Divergence { offset, outvoted: vec![] }];
    let outvoted = |offset, who| vec![Divergence { offset, outvoted: vec![index(who)] }];
    for (degree, script, shown, divergences) in [
        (1, "0:ab 0:c", "abc", vec![]),
        (2, "0:ab", "", vec![]),
        (2, "0:ab 1:a", "a", vec![]),
        (2, "0:ab 1:a -0 1:bc", "abc", vec![]),
        (2, "0:ab 1:a -1 0:c", "abc", vec![]),
        (2, "0:ab 1:ax 0:c 1:y .0 .1", "abc", tie(1)),
        (2, "0:ab 1:a .0 .1", "ab", tie(1)),
        (2, "0:a 1:ab .0", "a", tie(1)),
        (2, "0:a .0 1:a .1", "a", vec![]),
        (2, "0:a -0 -1 1:b", "b", vec![]),
        (2, "0:ax 1:ab -0 1:c", "axc", tie(1)),
        (3, "0:ab 1:xb 2:ab 0:c 2:c", "abc", outvoted(0, 1)),
        (3, "0:ab 1:xb 2:ab -0 2:c", "abc", outvoted(0, 1)),
        (3, "0:a 1:b 2:c", "a", tie(0)),
        (3, "0:ab 1:ab 2:a -2", "ab", vec![]),
    ] {
        assert_eq!(run(degree, script), (shown.to_owned(), divergences), "{degree} replicas, {script}");
    }
}

proptest! {
    /// Replicas that agree: whatever the interleaving and whoever dies (but one), the text comes out once and whole.
    #[test]
    fn agreeing_replicas_give_the_text_once(
        text in proptest::collection::vec(any::<u8>(), 0..200),
        steps in proptest::collection::vec((0u16..3, 1usize..20), 0..60),
        deaths in proptest::collection::vec((0usize..60, 0u16..3), 0..2),
    ) {
        let mut stream = sphere(3);
        let mut out = Vec::new();
        let mut printed = [0usize; 3];
        let mut dead = [false; 3];
        for (number, (who, count)) in steps.iter().enumerate() {
            for (_, victim) in deaths.iter().filter(|(when, _)| *when == number) {
                dead[usize::from(*victim)] = true;
                stream.lose(index(*victim), &mut out);
            }
            let who = usize::from(*who);
            if !dead[who] {
                let end = (printed[who] + count).min(text.len());
                stream.push(index(who as u16), &text[printed[who]..end], &mut out);
                printed[who] = end;
            }
            prop_assert!(text.starts_with(&out));
        }
        for who in (0..3).filter(|who| !dead[*who]) {
            stream.push(index(who as u16), &text[printed[who]..], &mut out);
            stream.end(index(who as u16), &mut out);
        }
        prop_assert_eq!(out, text);
        prop_assert_eq!(stream.poll_divergence(), None);
    }
}
