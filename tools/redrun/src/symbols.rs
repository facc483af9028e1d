//! Maps places in executable files to functions and lines, as far as the files describe them.

use addr2line::Loader;
use object::{Object, ObjectSegment};
use redrt_wire::trace::Frame;
use std::collections::BTreeMap;
use std::path::Path;

/// A function and a place in it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Location {
    /// Name of the function; empty if unknown.
    pub function: String,
    /// File and line, or object file and offset.
    pub place: String,
    /// Object file with the code.
    pub object: String,
}

struct Binary {
    loader: Loader,
    /// Of each segment: offset in the file, length in the file, address.
    segments: Vec<(u64, u64, u64)>,
}

impl Binary {
    fn open(path: &str) -> Option<Self> {
        let bytes = std::fs::read(path).ok()?;
        let file = object::File::parse(&*bytes).ok()?;
        let segments = file.segments().map(|segment| {
            let (offset, length) = segment.file_range();
            (offset, length, segment.address())
        });
        let segments = segments.collect();
        Some(Self { loader: Loader::new(Path::new(path)).ok()?, segments })
    }

    fn address(&self, offset: u64) -> Option<u64> {
        let holds = |(begin, length, _): &&(u64, u64, u64)| offset.checked_sub(*begin).is_some_and(|at| at < *length);
        self.segments.iter().find(holds).map(|(begin, _, address)| offset - begin + address)
    }
}

/// Symbol tables of all files asked for so far.
#[derive(Default)]
pub struct Symbols(BTreeMap<String, Option<Binary>>);

impl Symbols {
    /// Functions of a frame: several if some are inlined, the innermost first. `is_return`: the frame is a return
    /// address, so the call is before it.
    pub fn locate(&mut self, frame: &Frame, is_return: bool) -> Vec<Location> {
        let plain = || Location {
            function: String::new(),
            place: match frame.file.is_empty() {
                true => format!("{:#x}", frame.offset),
                false => format!("{}+{:#x}", frame.file, frame.offset),
            },
            object: frame.file.clone(),
        };
        let binary = self.0.entry(frame.file.clone()).or_insert_with(|| Binary::open(&frame.file));
        let found = binary.as_ref().and_then(|binary| {
            let address = binary.address(frame.offset)?.checked_sub(u64::from(is_return))?;
            let inlined = inlined(binary, address, &frame.file);
            if !inlined.is_empty() {
                return Some(inlined);
            }
            let function = binary.loader.find_symbol(address)?;
            let function = addr2line::demangle_auto(function.into(), None).into_owned();
            Some(vec![Location { function, ..plain() }])
        });
        found.unwrap_or_else(|| vec![plain()])
    }
}

/// Functions by the file's debugging information.
fn inlined(binary: &Binary, address: u64, object: &str) -> Vec<Location> {
    let mut locations = Vec::new();
    let Ok(mut frames) = binary.loader.find_frames(address) else { return locations };
    while let Ok(Some(frame)) = frames.next() {
        let Some(place) = frame.location else { continue };
        let file = place.file.map(|file| file.rsplit('/').next().unwrap_or(file)).unwrap_or("?");
        let line = place.line.map_or_else(String::new, |line| format!(":{line}"));
        let function = frame.function.as_ref().and_then(|function| function.demangle().ok());
        let function = function.map(|function| function.into_owned());
        // Debugging information may have lines only; the symbol table has the name then.
        let symbol = || addr2line::demangle_auto(binary.loader.find_symbol(address)?.into(), None).into_owned().into();
        let function = function.or_else(symbol).unwrap_or_default();
        locations.push(Location { function, place: format!("{file}{line}"), object: object.to_owned() });
    }
    locations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_of_this_program_is_found_by_its_place_in_the_file() {
        let path = std::env::current_exe().expect("this program is a file").display().to_string();
        let binary = Binary::open(&path).expect("it can be read");
        let bytes = std::fs::read(&path).expect("it can be read");
        let file = object::File::parse(&*bytes).expect("it is an object");
        use object::ObjectSymbol;
        let is_main = |symbol: &object::Symbol<'_, '_>| symbol.name() == Ok("main");
        let main = file.symbols().find(is_main).expect("a program has it").address();
        let holds = |segment: &&(u64, u64, u64)| (segment.2..segment.2 + segment.1).contains(&main);
        let (begin, _, address) = *binary.segments.iter().find(holds).expect("it is in one");
        let frame = Frame { file: path.clone(), offset: main - address + begin };
        let found = Symbols::default().locate(&frame, false);
        assert!(found.last().is_some_and(|last| last.function == "main" && last.object == path), "{found:?}");
    }

    #[test]
    fn what_is_in_no_file_or_no_object_is_told_as_it_is() {
        let mut symbols = Symbols::default();
        for (file, expected) in
            [("", "0x10"), ("/no/such/file", "/no/such/file+0x10"), ("/proc/self/maps", "/proc/self/maps+0x10")]
        {
            let found = symbols.locate(&Frame { file: file.into(), offset: 0x10 }, true);
            assert_eq!(found.iter().map(|one| one.place.as_str()).collect::<Vec<_>>(), [expected]);
        }
    }
}
