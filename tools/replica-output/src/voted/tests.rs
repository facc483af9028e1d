use super::*;
use proptest::prelude::*;
use redrt_types::CutNumber;

fn index(number: u16) -> ReplicaIndex {
    ReplicaIndex(number)
}

fn voted(degree: u16) -> VotedStream {
    VotedStream::new((0..degree).map(ReplicaIndex), false)
}

fn mismatches(stream: &mut VotedStream) -> Vec<OutputMismatch> {
    let findings = std::iter::from_fn(|| stream.poll_finding());
    let mismatch = |finding| match finding {
        Finding::Mismatch(mismatch) => Some(mismatch),
        Finding::Uncompared { .. } => None,
    };
    findings.filter_map(mismatch).collect()
}

/// Runs a script such as `0:ab/ 1:a -0 1:b .1`: replica 0 prints "ab" and a line end, …, 0 is lost, …, 1 ends; `!1` is
/// its end before that of its siblings. `2<1@3` makes 2 a copy of 1, made when 1 had printed 3 bytes; `2=1` says that 2
/// was copied from 1.
fn run_in(stream: &mut VotedStream, script: &str) -> String {
    let mut out = Vec::new();
    for step in script.split_whitespace() {
        if let Some(lost) = step.strip_prefix('-') {
            stream.lose(index(lost.parse().unwrap()), &mut out);
        } else if let Some(ended) = step.strip_prefix('.') {
            stream.end(index(ended.parse().unwrap()), &mut out);
        } else if let Some(stopped) = step.strip_prefix('!') {
            stream.stop(index(stopped.parse().unwrap()), &mut out);
        } else if let Some((copy, of)) = step.split_once('<') {
            let (source, printed) = of.split_once('@').unwrap();
            stream.join(
                index(copy.parse().unwrap()),
                index(source.parse().unwrap()),
                printed.parse().unwrap(),
                &mut out,
            );
        } else if let Some((copy, source)) = step.split_once('=') {
            let mut kinship = stream.kinship.clone();
            let cut = CutNumber(kinship.image_groups().len() as u64 + 1);
            kinship.join(index(source.parse().unwrap()), index(copy.parse().unwrap()), cut);
            stream.set_kinship(&kinship, &mut out);
        } else {
            let (who, what) = step.split_once(':').unwrap();
            stream.push(index(who.parse().unwrap()), what.replace('/', "\n").as_bytes(), &mut out);
        }
    }
    String::from_utf8(out).unwrap().replace('\n', "/")
}

/// The shown text, and for each difference its line, column and outvoted replicas.
fn run(degree: u16, script: &str) -> (String, Vec<(u64, u64, Vec<u16>)>) {
    let mut stream = voted(degree);
    let shown = run_in(&mut stream, script);
    let brief = |mismatch: OutputMismatch| {
        (mismatch.line, mismatch.column, mismatch.culprit.iter().map(|index| index.0).collect())
    };
    (shown, mismatches(&mut stream).into_iter().map(brief).collect())
}

#[test]
fn table_of_small_streams() {
    let tie = |column| vec![(1, column, vec![])];
    let outvoted = |column, who| vec![(1, column, vec![who])];
    for (degree, script, shown, found) in [
        (1, "0:ab 0:c", "abc", vec![]),
        (2, "0:ab", "", vec![]),
        (2, "0:ab 1:a", "a", vec![]),
        (2, "0:ab 1:a -0 1:bc", "abc", vec![]),
        (2, "0:ab 1:a -1 0:c", "abc", vec![]),
        // No majority: the leader's text goes on, and one difference is reported once.
        (2, "0:ab 1:ax 0:c 1:y .0 .1", "abc", tie(2)),
        (2, "0:ab 1:a .0 .1", "ab", tie(2)),
        (2, "0:a 1:ab .0", "a", tie(2)),
        (2, "0:a .0 1:a .1", "a", vec![]),
        (2, "0:a -0 -1 1:b", "b", vec![]),
        // Output up to the stop is compared, and shown when both have printed it.
        (2, "0:a 1:ab !1", "a", vec![]),
        (2, "0:a 1:ab !1 0:b 0:c .0", "abc", vec![]),
        (2, "0:a 1:ab !1 0:x 0:c .0", "axc", tie(2)),
        (2, "1:ab !1 0:a -0", "ab", vec![]),
        (3, "0:abc 1:abc 2:ab !2 .0 .1", "abc", vec![]),
        (3, "0:ab 1:ax 2:ab !2 0:c 1:d .0 .1", "abc", outvoted(2, 1)),
        (2, "0:ax 1:ab -0 1:c", "axc", tie(2)),
        // Compared again from the next line on, even if the line's length differs.
        (2, "0:ax/cd/ 1:ab/cx/", "ax/cd/", vec![(1, 2, vec![]), (2, 2, vec![])]),
        (2, "0:9.9/b/c 1:10.00/b/c", "9.9/b/c", vec![(1, 1, vec![])]),
        (2, "0:9.9/b/c 1:9.98/b/c", "9.9/b/c", vec![(1, 4, vec![])]),
        (2, "0:9.98/b/c 1:9.9/b/c", "9.98/b/c", vec![(1, 4, vec![])]),
        // A line end that became another byte, and the reverse.
        (2, "0:ab/cd/ef 1:abxcd/ef", "ab/cd/ef", vec![(1, 3, vec![])]),
        (2, "0:abcd/ef/g 1:ab/d/ef/g", "abcd/ef/g", vec![(1, 3, vec![])]),
        // Two of three are enough; the third is compared when it comes.
        (3, "0:ab 2:a", "a", vec![]),
        (3, "0:ab 1:ab", "ab", vec![]),
        (3, "0:ab 1:xb 2:ab 0:c 2:c", "abc", outvoted(1, 1)),
        (3, "0:ab 2:ab 1:xb", "ab", outvoted(1, 1)),
        (3, "1:xb 0:ab 2:ab", "ab", outvoted(1, 1)),
        (3, "0:ab 1:xb 2:ab -0 2:c", "abc", outvoted(1, 1)),
        (3, "0:a 1:b 2:c", "a", tie(1)),
        (3, "0:a 1:b", "", vec![]),
        (3, "0:ab 1:ab 2:a -2", "ab", vec![]),
        (3, "0:ab 1:ab 2:a .2", "ab", outvoted(2, 2)),
        (3, "0:a .0 1:a .1 2:ab", "a", outvoted(2, 2)),
        (4, "0:a 1:b 2:b 3:a", "a", vec![(1, 1, vec![])]),
        (4, "0:a 1:b 2:b 3:b", "b", outvoted(1, 0)),
        // The outvoted replica comes back, and is the last one left.
        (3, "0:ab/ 1:xb/ 2:ab/ -0 -2 1:c/", "ab/c/", outvoted(1, 1)),
        // Copies: output that their source had printed counts as theirs.
        (2, "0:ab 1:ab -1 1<0@2 0:cd 1:cd", "abcd", vec![]),
        (2, "0:abc 1:a -1 1<0@1 0:d 1:bcd", "abcd", vec![]),
        (2, "0:ab 1:a 2<0@1 -1 -0 2:bc", "abc", vec![]),
        (2, "0:ab 1:a 2<0@2 -1 -0 2:c", "abc", vec![]),
        (2, "0:a 1:a -1 0:b 1<0@2 0:c 1:x", "abc", tie(3)),
        // A copy and its source count as one where they agree, and as two beside a replica of another lineage.
        (3, "1=2 1:ab 2:ab", "", vec![]),
        (3, "1=2 1:xb 2:xb 0:ab", "ab", tie(1)),
        (3, "1=2 0:ab 1:ab 2:xb", "ab", outvoted(1, 2)),
        (3, "1=2 0:ab 1:ab 2:ab", "ab", vec![]),
        (4, "1=2 1:xb 2:xb 0:ab 3:ab", "ab", vec![(1, 1, vec![1]), (1, 1, vec![2])]),
        (4, "1=2 3=2 1:xb 2:xb 3:xb 0:ab", "ab", tie(1)),
        (2, "0=1 0:ab 1:ab", "ab", vec![]),
    ] {
        assert_eq!(run(degree, script), (shown.to_owned(), found), "{degree} replicas, {script}");
    }
}

#[test]
fn both_sides_are_told() {
    let mut stream = voted(3);
    let _ = run_in(&mut stream, "0:one/sum:3.14/x 1:one/sum:3.14/x 2:one/sum:7.14/x");
    let side = |replicas: &[u16], text: &str| Side {
        replicas: replicas.iter().copied().map(ReplicaIndex).collect(),
        text: text.into(),
        has_ended: false,
    };
    let expected = OutputMismatch {
        line: 2,
        column: 5,
        culprit: Some(index(2)),
        sides: vec![side(&[0, 1], "sum:3.14"), side(&[2], "sum:7.14")],
        given_up: vec![],
    };
    assert_eq!(mismatches(&mut stream), [expected]);
}

#[test]
fn nothing_undecided_is_shown_where_the_job_ends_of_it() {
    let mut stream = VotedStream::new([index(0), index(1)], true);
    assert_eq!(run_in(&mut stream, "0:ab/cd/ 1:ab/xd/ 0:more/ 1:more/ .0 .1"), "ab/");
    assert_eq!(mismatches(&mut stream).len(), 1);
    let mut stream = VotedStream::new([index(0), index(1), index(2)], true);
    assert_eq!(run_in(&mut stream, "0:ab/ 1:xb/ 2:ab/"), "ab/");
}

#[test]
fn a_text_that_has_stopped_goes_on_after_a_return() {
    let mut stream = VotedStream::new([index(0), index(1)], true);
    assert_eq!(run_in(&mut stream, "0:ab/ 1:ab/"), "ab/");
    let saved = stream.saved(index(0)).expect("it counts");
    assert_eq!(run_in(&mut stream, "0:cd/ 1:xd/ 0:more/ 1:more/"), "");
    let restored = |index| Restored { index, printed_bytes: 3, output: saved.text.clone(), error: saved.text.clone() };
    let mut out = Vec::new();
    stream.go_back(&[restored(index(0)), restored(index(1))], &mut out);
    assert_eq!((out, run_in(&mut stream, "0:cd/ 1:cd/ 0:more/ 1:more/")), (Vec::new(), "cd/more/".into()));
}

#[test]
fn a_text_that_is_another_one_altogether_is_given_up() {
    let mut stream = voted(2);
    let lines = |letter: char| (0..20).map(|number| format!("{letter}{number}/")).collect::<String>();
    let shown = run_in(&mut stream, &format!("0:{} 1:{}", lines('a'), lines('b')));
    assert_eq!(shown, lines('a'));
    let found = mismatches(&mut stream);
    assert_eq!(found.len(), MISSES_MAX as usize);
    assert_eq!(found.last().map(|last| &last.given_up[..]), Some(&[index(1)][..]));
    // An agreeing line in between resets the count.
    let mut stream = voted(2);
    let some = |letter: char| (0..40).map(|n| if n % 3 == 0 { "same/".into() } else { format!("{letter}/") }).collect();
    let (one, other): (String, String) = (some('a'), some('b'));
    let _ = run_in(&mut stream, &format!("0:{one} 1:{other}"));
    let found = mismatches(&mut stream);
    assert!(found.len() > MISSES_MAX as usize && found.iter().all(|one| one.given_up.is_empty()));
}

/// It costs a bounded amount of memory.
#[test]
fn a_stopped_replica_holds_up_no_majority() {
    let mut stream = voted(3);
    let mut out = Vec::new();
    let line = vec![b'x'; 1 << 20];
    for _ in 0..20 {
        for who in [0, 1] {
            stream.push(index(who), &line, &mut out);
        }
        assert!(stream.history.len() <= HISTORY_BYTES_MAX);
    }
    assert_eq!(out.len(), 20 << 20);
    assert_eq!(stream.poll_finding(), Some(Finding::Uncompared { replica: index(2) }));
    assert_eq!(stream.poll_finding(), None, "once");
    // The late replica comes after all: first text that is gone from the history, then text that is there.
    for _ in 0..19 {
        stream.push(index(2), &line, &mut out);
    }
    let mut wrong = line.clone();
    wrong[77] = b'y';
    stream.push(index(2), &wrong, &mut out);
    assert_eq!(mismatches(&mut stream).iter().map(|found| found.culprit).collect::<Vec<_>>(), [Some(index(2))]);
    assert_eq!(out.len(), 20 << 20);
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(prop_oneof![4 => b'a'..b'd', 1 => Just(b'\n')], 0..120)
}

/// Prints in turns as `steps` say (replica, bytes), then the rest of each text, and ends.
fn play(stream: &mut VotedStream, texts: &[Vec<u8>], steps: &[(u16, usize)], out: &mut Vec<u8>) {
    let mut printed = vec![0; texts.len()];
    let rests = (0..texts.len()).map(|who| (who as u16, usize::MAX));
    for (who, count) in steps.iter().copied().chain(rests.clone()) {
        let (at, text) = (usize::from(who) % texts.len(), &texts[usize::from(who) % texts.len()]);
        let end = text.len().min(count.saturating_add(printed[at]));
        stream.push(index(at as u16), &text[printed[at]..end], out);
        printed[at] = end;
    }
    rests.for_each(|(who, _)| stream.end(index(who), out));
}

fn steps() -> impl Strategy<Value = Vec<(u16, usize)>> {
    proptest::collection::vec((0u16..4, 1usize..20), 0..60)
}

proptest! {
    /// Agreeing replicas: whatever the interleaving, and whichever (but one) dies and is replaced by a copy, the text
    /// comes out once and whole.
    #[test]
    fn agreeing_replicas_give_the_text_once(
        text in text(),
        steps in steps(),
        deaths in proptest::collection::vec((0usize..60, 0u16..3, proptest::option::of(0usize..30)), 0..3),
    ) {
        let mut stream = voted(3);
        let mut out = Vec::new();
        let mut printed = [0usize; 3];
        let mut dead = [false; 3];
        // Copies that come later: step, victim, source, and bytes printed by the source.
        let mut copies: Vec<(usize, usize, usize, usize)> = Vec::new();
        for (number, (who, count)) in steps.iter().enumerate() {
            for (at, victim, copied) in deaths.iter().filter(|(when, ..)| *when == number) {
                let victim = usize::from(*victim);
                let others = (0..3).filter(|other| *other != victim && !dead[*other]);
                let Some(source) = others.into_iter().next() else { continue };
                if dead[victim] {
                    continue;
                }
                dead[victim] = true;
                stream.lose(index(victim as u16), &mut out);
                // A copy whose source dies never comes, even if the source is replaced before.
                copies.retain(|(_, _, source, _)| *source != victim);
                if let Some(delay) = copied {
                    copies.push((at + delay, victim, source, printed[source]));
                }
            }
            for (_, place, source, offset) in copies.extract_if(.., |(at, ..)| *at <= number) {
                if !dead[source] {
                    stream.join(index(place as u16), index(source as u16), offset as u64, &mut out);
                    dead[place] = false;
                    printed[place] = offset;
                }
            }
            let who = usize::from(*who) % 3;
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
        prop_assert_eq!(stream.poll_finding(), None);
    }

    /// One flipped bit in one of three or more: the right text comes out, and the culprit is named once.
    #[test]
    fn a_flipped_bit_is_outvoted(
        text in text(), steps in steps(), degree in 3usize..5, who in 0usize..5, at in 0usize..200, bit in 0u32..8,
    ) {
        prop_assume!(!text.is_empty());
        let (who, at) = (who % degree, at % text.len());
        let mut texts = vec![text.clone(); degree];
        texts[who][at] ^= 1 << bit;
        let mut stream = voted(degree as u16);
        let mut out = Vec::new();
        play(&mut stream, &texts, &steps, &mut out);
        prop_assert_eq!(out, text);
        let found = mismatches(&mut stream);
        prop_assert_eq!(found.len(), 1, "{:?}", found);
        prop_assert_eq!(found[0].culprit, Some(index(who as u16)));
    }

    /// One flipped bit in one of two: the leader's text comes out, and the difference is reported once.
    #[test]
    fn a_flipped_bit_of_two_is_told_once(
        text in text(), steps in steps(), who in 0usize..2, at in 0usize..200, bit in 0u32..8,
    ) {
        prop_assume!(!text.is_empty());
        let at = at % text.len();
        let mut texts = vec![text; 2];
        texts[who][at] ^= 1 << bit;
        let mut stream = voted(2);
        let mut out = Vec::new();
        play(&mut stream, &texts, &steps, &mut out);
        prop_assert_eq!(&out, &texts[0]);
        let found = mismatches(&mut stream);
        prop_assert_eq!(found.len(), 1, "{:?}", found);
        prop_assert_eq!(found[0].culprit, None);
        prop_assert_eq!(found[0].sides.iter().flat_map(|side| &side.replicas).count(), 2);
    }

    /// Unrelated texts: of two the leader's comes out whole; of more, some text does. A text that equals the leader's
    /// in the end is not reported.
    #[test]
    fn any_texts_come_to_an_end(texts in proptest::collection::vec(text(), 2..5), steps in steps()) {
        let mut stream = voted(texts.len() as u16);
        let mut out = Vec::new();
        play(&mut stream, &texts, &steps, &mut out);
        if texts.len() == 2 {
            prop_assert_eq!(&out, &texts[0]);
        }
        let agree = texts.iter().all(|text| *text == texts[0]);
        prop_assert_eq!(mismatches(&mut stream).is_empty(), agree);
        let is_done = |source: &Source| source.state != State::Counting || source.printed.pending.is_empty();
        prop_assert!(stream.sources.iter().all(is_done), "{:?}", stream.sources);
    }
}
