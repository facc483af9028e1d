use super::*;
use proptest::prelude::*;

fn text() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(prop_oneof![3 => b'a'..b'c', 1 => Just(b'\n')], 0..80)
}

/// Beginning of the line with this byte.
fn line_begin(text: &[u8], at: usize) -> usize {
    text[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1)
}

fn units(text: &[u8]) -> u64 {
    text.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// Pushes `text` in pieces of this size. Returns the shown text, and the units of departures.
fn push(shown: &mut ShownText, text: &[u8], piece_bytes: usize) -> (Vec<u8>, Vec<u64>) {
    let (mut out, mut departures) = (Vec::new(), Vec::new());
    for piece in text.chunks(piece_bytes) {
        departures.extend(shown.push(piece, &mut out).map(|departure| departure.units));
    }
    (out, departures)
}

/// Oracle: the part of `again` to show after `shown`, and true if it departs. That is everything from its first
/// differing line on, or the part behind all that was shown.
fn right<'a>(shown: &[u8], again: &'a [u8]) -> (&'a [u8], bool) {
    let common = shown.iter().zip(again).take_while(|(one, other)| one == other).count();
    if common == shown.len() {
        return (&again[common..], false);
    }
    let begin = line_begin(again, common);
    // A text that ends while it is equal: its last line is shown, unless that line is whole or was the last shown.
    let is_prefix = common == again.len();
    let rest_is_unfinished = line_begin(shown, shown.len()) <= begin;
    if is_prefix && (begin == again.len() || rest_is_unfinished) { (&[], false) } else { (&again[begin..], true) }
}

proptest! {
    /// Random texts, cut at a random place, gone back from, and repeated with other lines from some place on.
    #[test]
    fn output_after_a_return_is_shown_from_its_first_new_line(
        old in text(), rest in text(), image_at in 0usize..80, same in 0usize..80, piece_bytes in 1usize..20,
    ) {
        let image_at = line_begin(&old, image_at.min(old.len()));
        let same = same.clamp(image_at, old.len().max(image_at));
        let new = [&old[..same], &rest[..]].concat();
        let mut shown = ShownText::kept(1);
        prop_assert_eq!(push(&mut shown, &old[..image_at], piece_bytes), (old[..image_at].to_vec(), vec![]));
        shown.mark(units(&old[..image_at]));
        prop_assert_eq!(push(&mut shown, &old[image_at..], piece_bytes), (old[image_at..].to_vec(), vec![]));
        shown.go_back(units(&old[..image_at]));
        let (mut out, departures) = push(&mut shown, &new[image_at..], piece_bytes);
        let last = shown.finish(&mut out);
        let (right, departs) = right(&old, &new);
        prop_assert_eq!(&out, right);
        prop_assert_eq!(departures.len() + usize::from(last.is_some()), usize::from(departs));
        if departs {
            let departure = departures.first().copied().or(last.map(|last| last.units));
            prop_assert_eq!(departure, Some(units(&new[..new.len() - right.len()])));
        }
    }

    /// With digests of several lines a difference is found later; still no line is torn or lost.
    #[test]
    fn with_few_digests_lines_come_again_rather_than_get_lost(
        old in proptest::collection::vec(prop_oneof![1 => b'a'..b'c', 1 => Just(b'\n')], 0..300),
        rest in text(), same in 0usize..300, piece_bytes in 1usize..40,
    ) {
        let same = same.min(old.len());
        let new = [&old[..same], &rest[..]].concat();
        let mut shown = ShownText::kept_by(16);
        shown.mark(0);
        let _ = push(&mut shown, &old, piece_bytes);
        shown.go_back(0);
        let (mut out, _) = push(&mut shown, &new, piece_bytes);
        let _ = shown.finish(&mut out);
        let (right, departs) = right(&old, &new);
        prop_assert!(new.ends_with(&out) && out.ends_with(right), "{:?} {:?}", out, right);
        let begin = new.len() - out.len();
        prop_assert!(out.is_empty() || !departs && out == right || line_begin(&new, begin) == begin);
    }
}

#[test]
fn a_line_shown_in_part_goes_on_if_it_is_the_same() {
    for (again, shown_then, departs) in
        [("one\ntwo and\n", " and\n", false), ("one\ntwine\n", "twine\n", true), ("one\nt", "", false)]
    {
        let mut shown = ShownText::kept(1);
        let mut out = Vec::new();
        assert_eq!(shown.push(b"one\ntwo", &mut out), None);
        shown.go_back(0);
        out.clear();
        let departure = shown.push(again.as_bytes(), &mut out).or_else(|| shown.finish(&mut out));
        assert_eq!((String::from_utf8_lossy(&out).as_ref(), departure.is_some()), (shown_then, departs), "{again}");
    }
}

#[test]
fn a_boundary_that_is_not_known_makes_all_that_follows_be_shown() {
    let mut shown = ShownText::kept(1);
    let mut out = Vec::new();
    assert_eq!(shown.push(b"one\ntwo\n", &mut out), None);
    shown.go_back(7);
    out.clear();
    assert_eq!(shown.push(b"eight\n", &mut out), Some(Departure { units: 7, is_resumed: false }));
    assert_eq!(shown.push(b"nine\n", &mut out), None);
    assert_eq!(out, b"eight\nnine\n");
    shown.go_back(7);
    out.clear();
    assert_eq!(shown.push(b"eight\nnine\nten\n", &mut out), None);
    assert_eq!(out, b"ten\n");
}

#[test]
fn very_long_lines_are_compared_in_parts() {
    let mut line = vec![b'x'; 3 * UNIT_BYTES_MAX];
    line.push(b'\n');
    let mut shown = ShownText::kept(1);
    let mut out = Vec::new();
    assert_eq!(shown.push(&line, &mut out), None);
    shown.go_back(0);
    out.clear();
    line[2 * UNIT_BYTES_MAX + 7] = b'y';
    let departures: Vec<_> = line.chunks(10_000).filter_map(|piece| shown.push(piece, &mut out)).collect();
    assert_eq!(departures, [Departure { units: 2, is_resumed: false }]);
    assert_eq!(out, line[2 * UNIT_BYTES_MAX..]);
}

#[test]
fn nothing_is_kept_of_a_job_that_cannot_go_back() {
    let mut shown = ShownText::default();
    let mut out = Vec::new();
    assert_eq!(shown.push(b"one\n", &mut out), None);
    shown.mark(1);
    shown.go_back(0);
    assert_eq!(shown.push(b"one\n", &mut out), None);
    assert_eq!(out, b"one\none\n");
}

/// It prints no message about that.
#[test]
fn a_resumed_job_without_a_record_begins_with_a_new_line() {
    let mut shown = ShownText::kept(1).lacking_past();
    let mut out = Vec::new();
    shown.go_back(3);
    assert_eq!(shown.push(b"four\n", &mut out), Some(Departure { units: 3, is_resumed: true }));
    assert_eq!(shown.push(b"five\n", &mut out), None);
    assert_eq!(out, b"four\nfive\n");
}
