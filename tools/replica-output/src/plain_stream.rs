//! Standard error of one process: shown as it comes, not compared with that of others.

use super::position::TextPosition;
use super::restored::Saved;
use super::shown::{Departure, ShownText};
use redrt_wire::checkpoint::SavedText;
use serde::{Deserialize, Serialize};

/// Stream of one process: see the module.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct PlainStream {
    place: TextPosition,
    printed_bytes: u64,
    shown: ShownText,
    departure: Option<Departure>,
}

impl PlainStream {
    /// A stream of which `shown` was shown before.
    #[must_use]
    pub fn new(shown: ShownText) -> Self {
        Self { shown, ..Self::default() }
    }

    /// The stream of a process's copy, which goes on where its source is.
    #[must_use]
    pub fn of_copy(source: &Self) -> Self {
        let place = source.place.clone();
        let mut shown = source.shown.empty_from(place.units);
        shown.push(place.begun(), &mut Vec::new());
        Self { place, printed_bytes: source.printed_bytes, shown, departure: None }
    }

    /// Takes output. Text to show is appended to `out`.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.place.pass(bytes);
        self.printed_bytes += bytes.len() as u64;
        self.departure = self.shown.push(bytes, out).or(self.departure);
    }

    /// Continues from an image.
    pub fn go_back(&mut self, saved: &SavedText, out: &mut Vec<u8>) {
        self.place = TextPosition::before(saved);
        self.shown.go_back(saved.units);
        self.push(&saved.text, out);
    }

    /// The state for an image of the stopped process. The job may go back to it.
    pub fn saved(&mut self) -> SavedText {
        let begin_bytes = self.printed_bytes - self.place.begun().len() as u64;
        self.shown.save(Saved { text: self.place.saved([].into_iter()), begin_bytes }, self.printed_bytes)
    }

    /// Marks a boundary, with this many units before it: an image of another replica of the rank has it, and this
    /// process may continue from that.
    pub fn mark(&mut self, units: u64) {
        self.shown.mark(units);
    }

    /// Digests of the shown text, for a job that continues in another process.
    #[must_use]
    pub fn shown(&self) -> &ShownText {
        &self.shown
    }

    /// Ends the stream of a job that does not go back.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        self.departure = self.shown.finish(out).or(self.departure);
    }

    /// The last departure from a text that was shown before, once.
    pub fn poll_departure(&mut self) -> Option<Departure> {
        self.departure.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn print(stream: &mut PlainStream, text: &str) -> String {
        let mut out = Vec::new();
        stream.push(text.as_bytes(), &mut out);
        String::from_utf8(out).unwrap()
    }

    fn go_back(stream: &mut PlainStream, to: &SavedText) {
        let mut out = Vec::new();
        stream.go_back(to, &mut out);
        assert!(out.is_empty(), "it was shown: {out:?}");
    }

    #[test]
    fn a_line_that_an_image_cuts_is_compared_as_a_whole() {
        let mut stream = PlainStream::new(ShownText::kept(1));
        assert_eq!(print(&mut stream, "one\nit took "), "one\nit took ");
        let saved = stream.saved();
        assert_eq!((saved.units, saved.text.as_slice()), (1, &b"it took "[..]));
        assert_eq!(print(&mut stream, "1 s\nthree\n"), "1 s\nthree\n");
        go_back(&mut stream, &saved);
        assert_eq!(print(&mut stream, "1 s\nthree\nfour\n"), "four\n");
        assert_eq!(stream.poll_departure(), None);
        go_back(&mut stream, &saved);
        assert_eq!(print(&mut stream, "2 s\nthree\n"), "it took 2 s\nthree\n");
        assert_eq!(stream.poll_departure(), Some(Departure { units: 1, is_resumed: false }));
    }

    proptest! {
        /// A text that is the same after each return to the newest image is shown once, however few digests are kept,
        /// and even if images are made while it is compared.
        #[test]
        fn an_unchanged_text_is_shown_once_after_any_returns(
            text in proptest::collection::vec(prop_oneof![2 => b'a'..b'c', 1 => Just(b'\n')], 0..400),
            steps in proptest::collection::vec((0usize..400, any::<bool>()), 0..20),
            pieces_max in 16usize..64,
            piece_bytes in 1usize..40,
        ) {
            let mut stream = PlainStream::new(ShownText::kept_by(pieces_max));
            let (mut out, mut at) = (Vec::new(), 0);
            let (mut image, mut image_at) = (stream.saved(), 0);
            for (to, is_return) in steps {
                let to = to.clamp(at, text.len());
                text[at..to].chunks(piece_bytes).for_each(|piece| stream.push(piece, &mut out));
                at = to;
                if is_return {
                    stream.go_back(&image, &mut out);
                    at = image_at;
                } else {
                    (image, image_at) = (stream.saved(), at);
                }
                prop_assert!(text.starts_with(&out));
            }
            text[at..].chunks(piece_bytes).for_each(|piece| stream.push(piece, &mut out));
            prop_assert_eq!(out, text);
            prop_assert_eq!(stream.poll_departure(), None);
        }
    }

    #[test]
    fn a_copy_goes_on_in_the_line_of_its_source() {
        let mut source = PlainStream::new(ShownText::kept(1));
        assert_eq!(print(&mut source, "one\ntw"), "one\ntw");
        let mut copy = PlainStream::of_copy(&source);
        assert_eq!(print(&mut copy, "o\n"), "o\n");
        assert_eq!(print(&mut source, "o\n"), "o\n");
        let saved = source.saved();
        assert_eq!(print(&mut copy, "three\n"), "three\n");
        go_back(&mut copy, &saved);
        assert_eq!(print(&mut copy, "three\nfour\n"), "four\n");
        assert_eq!(copy.poll_departure(), None);
    }
}
