use super::*;
use proptest::prelude::*;
use redrt_wire::checkpoint::Generation;
use std::io::{self, Cursor, Read};
use std::time::Instant;

/// Pieces in memory, some of which are missing.
struct InMemory<'a>(&'a [Option<Vec<u8>>]);

impl PieceSource for InMemory<'_> {
    fn open(&mut self, index: u8, offset: u64) -> io::Result<Box<dyn Read>> {
        let piece = self.0[usize::from(index)].clone().ok_or_else(|| io::Error::other("its host is lost"))?;
        let mut piece = Cursor::new(piece);
        piece.set_position(offset);
        Ok(Box::new(piece))
    }
}

fn header(code: Code, contents: &[Vec<u8>]) -> Header {
    let file = |(number, content): (usize, &Vec<u8>)| PartFile {
        name: format!("{number}.image"),
        bytes: content.len() as u64,
    };
    let files = contents.iter().enumerate().map(file).collect();
    Header { code, index: 0, host: 7, generation: Generation(3), stamp: 0x5eed, block_bytes: 1 << 12, files }
}

fn encoded(header: &Header, contents: &[Vec<u8>]) -> Vec<Option<Vec<u8>>> {
    let mut pieces = vec![Vec::new(); header.code.piece_count().into()];
    encode(header, &mut &contents.concat()[..], &mut |index, bytes| {
        pieces[usize::from(index)].extend(bytes);
        Ok(())
    })
    .unwrap();
    pieces.into_iter().map(Some).collect()
}

fn decoded(
    header: &Header,
    pieces: &[Option<Vec<u8>>],
    wanted: &[usize],
) -> Result<(Vec<Vec<u8>>, Decoded), DecodeError> {
    let names: Vec<_> = wanted.iter().map(|number| format!("{number}.image")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let mut files = vec![Vec::new(); wanted.len()];
    let indices: Vec<_> = (0..header.code.piece_count()).collect();
    let of = (header.code, header.host, header.generation);
    let told = decode(of, &indices, &mut InMemory(pieces), &names, &mut |number, at, bytes| {
        assert_eq!(files[number].len() as u64, at);
        files[number].extend(bytes);
        Ok(())
    })?;
    Ok((files, told))
}

fn rubbish(count: usize, seed: u64) -> Vec<u8> {
    let word = |at: usize| (at as u64 + 1).wrapping_mul(seed | 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    (0..count.div_ceil(8)).flat_map(word).take(count).collect()
}

/// A way of losing a piece.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Missing,
    /// A bit is flipped, at this share of its length.
    Flipped(f64),
    /// It ends at this share of its length.
    Cut(f64),
}

fn any_damage() -> impl Strategy<Value = Damage> {
    prop_oneof![Just(Damage::Missing), (0.0..1.0).prop_map(Damage::Flipped), (0.0..1.0).prop_map(Damage::Cut)]
}

fn damage(piece: &mut Option<Vec<u8>>, damage: Damage) {
    let Some(bytes) = piece else { return };
    let at = |share: f64| (bytes.len() as f64 * share) as usize;
    match damage {
        Damage::Missing => *piece = None,
        Damage::Flipped(share) => {
            let at = at(share);
            bytes[at] ^= 16;
        }
        Damage::Cut(share) => {
            let at = at(share);
            bytes.truncate(at);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Any M pieces missing or torn, and the part is the same; one more, and that is said.
    #[test]
    fn any_k_sound_pieces_give_the_part_back(
        (data, parity) in (1..6_u8, 1..5_u8),
        lengths in prop::collection::vec(prop_oneof![0..3_usize, 60..70_usize, 0..40_000_usize], 0..4),
        order in Just((0..11_usize).collect::<Vec<_>>()).prop_shuffle(),
        damages in prop::collection::vec(any_damage(), 12),
        seed: u64,
    ) {
        let code = Code::new(data, parity).unwrap();
        let contents: Vec<_> = lengths.iter().map(|length| rubbish(*length, seed)).collect();
        let header = header(code, &contents);
        let mut pieces = encoded(&header, &contents);
        for piece in pieces.iter().flatten() {
            prop_assert_eq!(piece.len() as u64, header.piece_bytes());
            prop_assert!(check_piece(&mut &piece[..]).is_ok());
        }
        let wanted: Vec<_> = (0..contents.len()).collect();
        // One more than may be lost.
        let missing: Vec<_> = order.into_iter().filter(|index| *index < pieces.len()).take(parity as usize + 1).collect();
        missing[1..].iter().for_each(|index| damage(&mut pieces[*index], damages[*index]));
        for piece in missing[1..].iter().filter_map(|index| pieces[*index].as_ref()) {
            prop_assert!(check_piece(&mut &piece[..]).is_err());
        }
        let (files, told) = decoded(&header, &pieces, &wanted).unwrap();
        prop_assert!(files == contents && told.lost.len() <= parity.into());
        prop_assert_eq!(told.bytes, header.part_bytes());
        // Some of the files alone.
        let some: Vec<_> = wanted.iter().copied().filter(|number| number % 2 == 1).collect();
        let (files, _) = decoded(&header, &pieces, &some).unwrap();
        prop_assert!(files.iter().eq(some.iter().map(|number| &contents[*number])));
        let few = pieces.iter_mut().enumerate().filter(|(index, _)| missing.contains(index));
        few.for_each(|(_, piece)| *piece = None);
        match decoded(&header, &pieces, &wanted) {
            Err(DecodeError::TooFew { host: 7, left, needed, .. }) => prop_assert!(left < needed.into()),
            other => prop_assert!(false, "{:?}", other.map(|(_, told)| told)),
        }
    }

    /// Whatever bytes a file has, reading them as a piece ends with a header or an error.
    #[test]
    fn fuzz_headers_survive_and_rubbish_does_not(
        rubbish in prop::collection::vec(any::<u8>(), 0..200),
        at: prop::sample::Index,
        bit in 0..8_u8,
        is_real: bool,
    ) {
        let real = header(Code::new(4, 2).unwrap(), &[vec![1; 100], vec![2; 7]]);
        let mut bytes = if is_real { real.encode() } else { [b"redrtpc1", &rubbish[..]].concat() };
        prop_assert_eq!(real.encode().len() as u64, real.encoded_bytes());
        prop_assert_eq!(Header::read(&mut &real.encode()[..]).unwrap(), real.clone());
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        if let Ok(read) = Header::read(&mut &bytes[..]) {
            prop_assert!(!is_real, "a flipped bit at {} gave {:?}", at, read);
        }
    }
}

#[test]
fn pieces_of_two_encodings_are_not_mixed() {
    let contents = [rubbish(30_000, 1)];
    let code = Code::new(3, 2).unwrap();
    let (old, new) = (header(code, &contents), Header { stamp: 1, ..header(code, &contents) });
    let mut pieces = encoded(&new, &contents);
    let of_old = encoded(&old, &contents);
    pieces[0].clone_from(&of_old[0]);
    let (files, told) = decoded(&new, &pieces, &[0]).unwrap();
    assert_eq!(files, contents);
    assert_eq!(told.lost, [Lost { index: 0, why: "it belongs to another encoding".into() }]);
}

#[test]
fn only_k_plus_m_in_bounds_is_a_code() {
    assert_eq!(Code::parse("4+2"), Code::new(4, 2));
    assert_eq!(Code::parse("4+2").unwrap().to_string(), "4+2");
    for text in ["", "4", "4+", "+2", "0+1", "1+0", "31+2", "-1+2", "4+2+1", "4 + 2", "300+1", "++"] {
        assert_eq!(Code::parse(text), None, "{text}");
    }
    assert!(Code::parse("30+2").is_some());
}

#[test]
fn names_of_pieces_are_read_and_no_others() {
    assert_eq!(piece_path(Path::new("/j"), 3, 10), Path::new("/j/host-3.piece-10"));
    assert_eq!(parse_piece("host-3.piece-10"), Some((3, 10)));
    for name in ["host-3.memory", "host-3.piece-", "host-03.piece-1", "host-3.piece-256", "3.image"] {
        assert_eq!(parse_piece(name), None, "{name}");
    }
}

/// Prints the speed, with `--nocapture`.
#[test]
fn a_large_part_is_encoded_and_decoded_without_its_data_pieces() {
    let contents = [rubbish(32 << 20, 3)];
    for (data, parity) in [(2, 1), (4, 2), (8, 3)] {
        let code = Code::new(data, parity).unwrap();
        let header = Header { block_bytes: BLOCK_BYTES, ..header(code, &contents) };
        let begun = Instant::now();
        let mut count = 0;
        encode(&header, &mut &contents[0][..], &mut |_, bytes| {
            count += bytes.len();
            Ok(())
        })
        .unwrap();
        let encoding = begun.elapsed();
        assert_eq!(count as u64, header.piece_bytes() * u64::from(code.piece_count()));
        let mut pieces = encoded(&header, &contents);
        pieces[..parity.into()].fill(None);
        let begun = Instant::now();
        let (files, _) = decoded(&header, &pieces, &[0]).unwrap();
        let decoding = begun.elapsed();
        assert!(files == contents);
        let rate = |elapsed: std::time::Duration| header.part_bytes() as f64 / 1e9 / elapsed.as_secs_f64();
        println!("{code}: encoded at {:.2} GB/s, decoded at {:.2} GB/s", rate(encoding), rate(decoding));
    }
}
