use super::*;
use crate::memory::Scratch;
use proptest::collection::vec;
use proptest::prelude::*;

/// The boards of both members, both of which are in this process.
fn boards(segment: Segment, place: u32, direct: bool) -> [Board; 2] {
    let member = |number| Member { process: ProcessIndex(number), pid: std::process::id() as i32 };
    [0, 1].map(|rank| Board::new(segment, place, Box::new([member(0), member(1)]), rank, direct, 0))
}

fn filled(length: usize, with: u8) -> Scratch {
    let mut scratch = Scratch::new(length);
    scratch.region().with_bytes_mut(|bytes| bytes.fill(with));
    scratch
}

fn bytes_of(mut scratch: Scratch) -> Vec<u8> {
    scratch.region().with_bytes(<[u8]>::to_vec)
}

#[test]
fn a_piece_is_read_from_the_cell_or_from_where_it_is() {
    for direct in [true, false] {
        let [one, other] = boards(Segment::fresh(2), 3, direct);
        let lengths = [0, 1, INLINE_BYTES_MAX, INLINE_BYTES_MAX + 1, ANNEX_BYTES_MAX, ANNEX_BYTES_MAX + 1, 200_000];
        for (round, length) in lengths.into_iter().cycle().take(3 * DEPTH as usize).enumerate() {
            let mut piece = filled(length, round as u8);
            let (number, before) = one.next();
            assert_eq!(other.next().0, number);
            assert_eq!(before.is_some(), number >= DEPTH, "somebody may still read what is written over");
            let before_annex = one.before_annex(number).map(|before| before.number);
            assert_eq!(before_annex, number.checked_sub(ANNEX_COUNT - 1).filter(|earlier| *earlier > 0));
            assert_eq!(one.needs_annex(piece.region()), length > INLINE_BYTES_MAX);
            one.write(number, piece.region(), Long::TO_ANNEX);
            assert!(!other.has_come(Board::one(0, number), &mut 0));
            one.post(number, |_| ());
            other.post(number, |_| ());
            assert!(other.has_come(Board::all(number), &mut 0));
            let posted = other.posted(0, number);
            let is_long = length > ANNEX_BYTES_MAX;
            assert_eq!(posted.length(), length as u64);
            assert_eq!((posted.is_elsewhere(), posted.is_message()), (is_long && direct, is_long && !direct));
            let mut into = Scratch::new(length);
            assert_eq!(other.read(&posted, 0, into.region()).is_err(), posted.is_message());
            assert!(posted.is_message() || bytes_of(into) == bytes_of(piece));
        }
    }
}

#[test]
fn each_member_reads_its_own_piece() {
    let [one, other] = boards(Segment::fresh(2), 31, true);
    let (number, _) = one.next();
    other.next();
    let (mut short, mut long) = (filled(10, 1), filled(100_000, 2));
    let (short, long) = (short.region(), long.region());
    one.write_each(number, |member| [Region::empty(), short][member], Long::TO_ANNEX);
    other.write_each(number, |member| [long, Region::empty()][member], Long::TO_ANNEX);
    one.post(number, |_| ());
    other.post(number, |_| ());
    for (board, from, length, value) in [(&one, 1, 100_000, 2), (&other, 0, 10, 1)] {
        let posted = board.posted_for(from, number, board.rank());
        assert_eq!((posted.length(), posted.is_elsewhere()), (length, length > 10));
        assert_eq!(board.posted(from, number).is_elsewhere(), length > 10);
        let mut into = Scratch::new(length as usize);
        board.read(&posted, 0, into.region()).unwrap();
        assert!(bytes_of(into).iter().all(|byte| *byte == value));
    }
}

#[test]
fn of_many_members_each_reads_its_own_piece() {
    let count = ENTRIES_INLINE_MAX + 1;
    let segment = Segment::fresh(count as u32);
    let member = |number| Member { process: ProcessIndex(number), pid: std::process::id() as i32 };
    let board = |rank| Board::new(segment, 5, (0..count as u32).map(member).collect(), rank, true, 0);
    let length = |to: usize| if to == 3 { 100_000 } else { 2000 + to };
    let mut pieces: Vec<_> = (0..count).map(|to| filled(length(to), to as u8)).collect();
    let regions: Vec<_> = pieces.iter_mut().map(Scratch::region).collect();
    let one = board(0);
    let (number, _) = one.next();
    one.write_each(number, |member| regions[member], Long::TO_ANNEX);
    one.post(number, |_| ());
    for to in 1..count {
        let posted = board(to).posted_for(0, number, to);
        assert_eq!((posted.length(), posted.is_elsewhere()), (length(to) as u64, to == 3));
        let mut into = Scratch::new(length(to));
        board(to).read(&posted, 0, into.region()).unwrap();
        assert!(bytes_of(into).iter().all(|byte| *byte == to as u8), "piece for {to}");
    }
}

#[test]
fn others_bring_what_a_member_wants_or_say_that_they_cannot() {
    const PART: usize = 20_000;
    let [one, other] = boards(Segment::fresh(2), 7, true);
    for can_be_written in [true, false] {
        let (mut whole, mut into) = (filled(5 * PART, 3), Scratch::new(5 * PART));
        // SAFETY: - an address that is not mapped, and is only passed to the kernel.
        let nowhere = unsafe { Region::new(std::ptr::without_provenance_mut(8192), 5 * PART) };
        let (number, _) = other.next();
        one.next();
        assert!(!one.wants(1, number, 5 * PART), "it has not come");
        other.write_place(number, if can_be_written { into.region() } else { nowhere }, Long::TO_ANNEX);
        other.post(number, |_| ());
        assert!(one.wants(1, number, 5 * PART) && !one.wants(1, number, 4 * PART));
        let piece = |part: u64| whole.region().part(part as usize * PART, PART);
        let pieces: Vec<_> = (0..5).map(piece).collect();
        let bring = |part: u64| one.bring(1, number, part as usize * PART, pieces[part as usize]);
        one.help(1, number, 5, |_| (), bring);
        assert!(other.has_come(Board::parts(number, 5), &mut 0));
        assert_eq!(other.has_failed(number), !can_be_written);
        assert!(!can_be_written || bytes_of(into) == bytes_of(whole));
    }
}

#[test]
fn a_place_that_all_have_left_serves_again() {
    let segment = Segment::fresh(2);
    let [one, other] = boards(segment, 0, true);
    one.next();
    let left = one.leave();
    assert!(!one.is_left(left), "the other has not left");
    other.next();
    assert_eq!(other.leave(), left);
    assert!(one.is_left(left));
    let member = |number| Member { process: ProcessIndex(number), pid: std::process::id() as i32 };
    let next = Board::new(segment, 0, Box::new([member(0), member(1)]), 0, true, left);
    let (number, before) = next.next();
    assert!(number > left && before.is_none() && !next.has_come(Board::one(1, number), &mut 0));
}

proptest! {
    /// With any words on a board, no more than its cells is read, and only the requested bytes are written.
    #[test]
    fn a_board_that_is_written_over_is_read_within_its_bounds(
        words in vec((0usize..512, any::<u64>()), 0..40),
        length in 0usize..80_000,
        offset in 0usize..80_000,
    ) {
        let segment = Segment::fresh(2);
        let [one, other] = boards(segment, 0, true);
        let (number, _) = one.next();
        one.write_each(number, |_| Region::empty(), Long::TO_ANNEX);
        one.post(number, |_| ());
        for (at, value) in words {
            // SAFETY: - a word of the first place of the first process, which is a page.
            unsafe { segment.board(ProcessIndex(0)).cast_mut().cast::<u64>().add(at).write(value) };
        }
        for posted in [other.posted(0, number), other.posted_for(0, number, 1)] {
            let mut into = filled(length + 16, 0xaa);
            let region = into.region();
            // The kernel reads addresses, and refuses those that are not mapped; mapped ones may be read.
            let _ = other.read(&posted, offset, region.part(0, length));
            prop_assert!(region.part(length, 16).with_bytes(|bytes| bytes.iter().all(|byte| *byte == 0xaa)));
        }
    }
}
