//! A function that is replaced is replaced under all names by which programs reach it.

mod replica;

use object::LittleEndian;
use object::read::elf::ElfFile64;
use replica::library;
use std::collections::{BTreeMap, BTreeSet};

/// Functions that an object exports to programs, by name: addresses of all versions of it. Names of version
/// `GLIBC_PRIVATE` are for the C library's own parts.
fn exported(path: &std::path::Path) -> BTreeMap<String, BTreeSet<u64>> {
    let bytes = std::fs::read(path).unwrap();
    let file: ElfFile64<'_, LittleEndian> = ElfFile64::parse(&*bytes).unwrap();
    let (endian, sections) = (file.endian(), file.elf_section_table());
    let versions = sections.versions(endian, &*bytes).unwrap();
    let symbols = sections.symbols(endian, &*bytes, object::elf::SHT_DYNSYM).unwrap();
    let mut functions = BTreeMap::<String, BTreeSet<u64>>::new();
    for (index, symbol) in symbols.enumerate() {
        let is_function = matches!(symbol.st_type(), object::elf::STT_FUNC | object::elf::STT_GNU_IFUNC);
        let address = symbol.st_value.get(endian);
        let version = versions.as_ref().map(|all| all.version(all.version_index(endian, index).into()));
        let version = version.and_then(|version| version.ok().flatten());
        let is_private = version.is_some_and(|version| version.name() == b"GLIBC_PRIVATE");
        if is_function && address != 0 && !is_private {
            let name = symbols.symbol_name(endian, symbol).unwrap();
            functions.entry(String::from_utf8_lossy(name).into_owned()).or_default().insert(address);
        }
    }
    functions
}

/// The file of the C library that this process uses.
fn c_library() -> std::path::PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let of_line = |line: &str| Some(line[line.find('/')?..].to_owned());
    maps.lines().filter_map(of_line).find(|path| path.contains("/libc.so") || path.contains("/libc-2")).unwrap().into()
}

#[test]
fn every_other_name_of_a_replaced_function_is_replaced() {
    let replaced = exported(&library());
    let of_libc = exported(&c_library());
    let mut names_at = BTreeMap::<u64, Vec<&str>>::new();
    for (name, addresses) in &of_libc {
        addresses.iter().for_each(|address| names_at.entry(*address).or_default().push(name));
    }
    let mut missing = BTreeSet::new();
    let mut seen = 0;
    for name in replaced.keys() {
        let Some(addresses) = of_libc.get(name) else { continue };
        seen += 1;
        let same = addresses.iter().flat_map(|address| &names_at[address]).map(|name| (*name).to_owned());
        let checked = Some(format!("__{name}_chk")).filter(|checked| of_libc.contains_key(checked));
        missing.extend(same.chain(checked).filter(|other| !replaced.contains_key(other)));
    }
    assert!(seen > 200, "only {seen} functions are replaced");
    assert!(missing.is_empty(), "not replaced: {missing:?}");
}
