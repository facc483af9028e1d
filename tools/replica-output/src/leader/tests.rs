use super::*;
use proptest::prelude::*;

/// As in the tests of [`voted`](super::super::voted).
fn run(degree: u16, script: &str) -> String {
    let mut stream = LeaderStream::new((0..degree).map(ReplicaIndex));
    let index = |text: &str| ReplicaIndex(text.parse().unwrap());
    let mut out = Vec::new();
    for step in script.split_whitespace() {
        if let Some(lost) = step.strip_prefix('-') {
            stream.lose(index(lost), &mut out);
        } else if let Some((copy, of)) = step.split_once('<') {
            let (source, printed) = of.split_once('@').unwrap();
            stream.join(index(copy), index(source), printed.parse().unwrap(), &mut out);
        } else {
            let (who, what) = step.split_once(':').unwrap();
            stream.push(index(who), what.replace('/', "\n").as_bytes(), &mut out);
        }
    }
    String::from_utf8(out).unwrap().replace('\n', "/")
}

#[test]
fn table_of_small_streams() {
    for (degree, script, shown) in [
        (1, "0:ab 0:c", "abc"),
        (2, "0:ab", "ab"),
        (2, "1:ab", ""),
        (2, "0:ab 1:abcd -0", "abcd"),
        (2, "0:ab/c 1:a -0 1:b/cd", "ab/cd"),
        // Another text: whole lines of it.
        (2, "0:took9s/a/ 1:took10s/ -0 1:b/c/", "took9s/a/c/"),
        (2, "0:took9s/took9 1:took10s/ -0 1:took10s/c/", "took9s/took90s/c/"),
        (2, "0:longline 1:a/b/ -0", "longline/b/"),
        (2, "0:a -0 -1 1:b", "a"),
        (3, "0:a -0 1:ab -1 2:abc", "abc"),
        // Copies.
        (2, "0:a/b 1:a/b -1 1<0@3 0:c 1:cd -0", "a/bcd"),
        (2, "0:a/b 0:cd 1<0@3 1:c -0 1:de", "a/bcde"),
        (2, "0:a/ 1:a/b 2<1@3 -1 -0 2:c", "a/bc"),
        // The place of a lost replica is last in the order, though its number is the lowest.
        (2, "0:a 1:a -0 0<1@1 0:x 1:b", "ab"),
    ] {
        assert_eq!(run(degree, script), shown, "{script}");
    }
}

proptest! {
    /// Replicas with equal output: whichever dies, the text comes out once and whole, and at least the leader's output
    /// is shown.
    #[test]
    fn the_text_goes_on_where_the_leader_stopped(
        text in proptest::collection::vec(prop_oneof![4 => b'a'..b'd', 1 => Just(b'\n')], 0..120),
        steps in proptest::collection::vec((0usize..3, 1usize..20), 0..60),
        deaths in proptest::collection::vec((0usize..60, 0usize..3), 0..2),
    ) {
        let mut stream = LeaderStream::new((0..3).map(ReplicaIndex));
        let (mut out, mut printed, mut dead) = (Vec::new(), [0usize; 3], [false; 3]);
        for (number, (who, count)) in steps.iter().enumerate() {
            for (_, victim) in deaths.iter().filter(|(when, _)| *when == number) {
                dead[*victim] = true;
                stream.lose(ReplicaIndex(*victim as u16), &mut out);
            }
            if !dead[*who] {
                let end = (printed[*who] + count).min(text.len());
                stream.push(ReplicaIndex(*who as u16), &text[printed[*who]..end], &mut out);
                printed[*who] = end;
            }
            prop_assert!(text.starts_with(&out));
            let leader = (0..3).find(|who| !dead[*who]).expect("one is left");
            prop_assert!(out.len() >= printed[leader]);
        }
        for who in (0..3).filter(|who| !dead[*who]) {
            stream.push(ReplicaIndex(who as u16), &text[printed[who]..], &mut out);
        }
        prop_assert_eq!(out, text);
    }
}
