//! Compression of pages, for slow links.

use super::frame::Encoding;
use std::io;

/// Compresses `bytes` into `place`. Returns the length, or `None` if the result is not shorter.
pub fn pack(encoding: Encoding, bytes: &[u8], place: &mut Vec<u8>) -> Option<usize> {
    place.resize(bytes.len(), 0);
    let count = match encoding {
        Encoding::Plain => return None,
        Encoding::Zstd => zstd::bulk::compress_to_buffer(bytes, &mut place[..], 1).ok()?,
        Encoding::Lz4 => {
            place.resize(lz4_flex::block::get_maximum_output_size(bytes.len()), 0);
            lz4_flex::block::compress_into(bytes, place).ok()?
        }
    };
    (count < bytes.len()).then_some(count)
}

/// Decompresses zstd. Returns the length, which never exceeds that of `place`.
pub fn unpack_zstd(bytes: &[u8], place: &mut [u8]) -> io::Result<usize> {
    zstd::bulk::decompress_to_buffer(bytes, place)
}

/// Decompresses LZ4. Returns the length, which never exceeds that of `place`.
pub fn unpack_lz4(bytes: &[u8], place: &mut [u8]) -> io::Result<usize> {
    lz4_flex::block::decompress_into(bytes, place)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn fuzz_what_is_packed_unpacks_and_noise_is_an_error(
            runs in prop::collection::vec((any::<u8>(), 1_usize..500), 1..20), noise in prop::collection::vec(any::<u8>(), 0..300)
        ) {
            let bytes: Vec<u8> = runs.into_iter().flat_map(|(byte, len)| vec![byte; len]).collect();
            type Unpack = fn(&[u8], &mut [u8]) -> io::Result<usize>;
            for (encoding, unpack) in [(Encoding::Zstd, unpack_zstd as Unpack), (Encoding::Lz4, unpack_lz4 as Unpack)] {
                let (mut packed, mut place) = (Vec::new(), vec![0; bytes.len()]);
                if let Some(count) = pack(encoding, &bytes, &mut packed) {
                    prop_assert_eq!(unpack(&packed[..count], &mut place).unwrap(), bytes.len());
                    prop_assert_eq!(&place, &bytes);
                }
                let _ = unpack(&noise, &mut place);
            }
        }
    }
}
