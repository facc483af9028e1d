//! Constants: for each kind of integer and handle that differs in the family, a translation in and a translation out.

use super::facts::{Fact, Facts, Family};
use super::line;
use crate::kind::{KINDS, OWN_HANDLES, Shape};
use crate::parse::{Constant, Table};

/// Integers that are one of several constants, or plain numbers: the kind, and the constants by name or by the
/// beginning of their names.
const ENUMERATIONS: &[(&str, &[&str])] = &[
    ("rank", &["MPI_ANY_SOURCE", "MPI_PROC_NULL", "MPI_ROOT", "MPI_UNDEFINED"]),
    ("tag", &["MPI_ANY_TAG"]),
    ("error", &["MPI_SUCCESS", "MPI_ERR_", "MPI_T_ERR_"]),
    (
        "keyval",
        &[
            "MPI_KEYVAL_INVALID",
            "MPI_TAG_UB",
            "MPI_IO",
            "MPI_HOST",
            "MPI_WTIME_IS_GLOBAL",
            "MPI_APPNUM",
            "MPI_LASTUSEDCODE",
            "MPI_UNIVERSE_SIZE",
            "MPI_WIN_BASE",
            "MPI_WIN_DISP_UNIT",
            "MPI_WIN_SIZE",
            "MPI_WIN_CREATE_FLAVOR",
            "MPI_WIN_MODEL",
        ],
    ),
    ("thread", &["MPI_THREAD_"]),
    ("comparison", &["MPI_IDENT", "MPI_CONGRUENT", "MPI_SIMILAR", "MPI_UNEQUAL"]),
    ("topology", &["MPI_CART", "MPI_GRAPH", "MPI_DIST_GRAPH", "MPI_UNDEFINED"]),
    ("split_type", &["MPI_COMM_TYPE_", "MPI_UNDEFINED"]),
    ("order", &["MPI_ORDER_"]),
    ("distribution", &["MPI_DISTRIBUTE_NONE", "MPI_DISTRIBUTE_BLOCK", "MPI_DISTRIBUTE_CYCLIC"]),
    ("darg", &["MPI_DISTRIBUTE_DFLT_DARG"]),
    ("combiner", &["MPI_COMBINER_"]),
    ("typeclass", &["MPI_TYPECLASS_"]),
    ("lock_type", &["MPI_LOCK_"]),
    ("whence", &["MPI_SEEK_"]),
    ("flavor", &["MPI_WIN_FLAVOR_"]),
    ("model", &["MPI_WIN_UNIFIED", "MPI_WIN_SEPARATE"]),
    ("verbosity", &["MPI_T_VERBOSITY_"]),
    ("bind", &["MPI_T_BIND_"]),
    ("scope", &["MPI_T_SCOPE_"]),
    ("pvar_class", &["MPI_T_PVAR_CLASS_"]),
    ("tool_order", &["MPI_T_SOURCE_"]),
    ("tool_safety", &["MPI_T_CB_REQUIRE_"]),
    ("view_disp", &["MPI_DISPLACEMENT_CURRENT"]),
];

/// Integers made of several flags.
const FLAGS: &[(&str, &[&str])] = &[
    ("assert", &["MPI_MODE_NOCHECK", "MPI_MODE_NOPRECEDE", "MPI_MODE_NOPUT", "MPI_MODE_NOSTORE", "MPI_MODE_NOSUCCEED"]),
    (
        "amode",
        &[
            "MPI_MODE_APPEND",
            "MPI_MODE_CREATE",
            "MPI_MODE_DELETE_ON_CLOSE",
            "MPI_MODE_EXCL",
            "MPI_MODE_RDONLY",
            "MPI_MODE_RDWR",
            "MPI_MODE_SEQUENTIAL",
            "MPI_MODE_UNIQUE_OPEN",
            "MPI_MODE_WRONLY",
        ],
    ),
];

/// Addresses with a special meaning, and their values in the standard.
pub(crate) const ADDRESSES: &[(&str, i64)] = &[
    ("MPI_IN_PLACE", 1),
    ("MPI_BUFFER_AUTOMATIC", 2),
    ("MPI_STATUS_IGNORE", 0),
    ("MPI_UNWEIGHTED", 10),
    ("MPI_WEIGHTS_EMPTY", 11),
    ("MPI_T_PVAR_ALL_HANDLES", 1),
];

/// True when values of a kind go through `KIND_in` and `KIND_out`.
pub(super) fn is_translated(kind: &str) -> bool {
    ENUMERATIONS.iter().chain(FLAGS).any(|(name, _)| *name == kind)
}

/// Renders all translations.
pub(super) fn render(out: &mut String, table: &Table, facts: &Facts) {
    for (kind, names) in ENUMERATIONS {
        if *kind == "error" {
            errors(out, table, facts, &pairs(table, facts, names));
        } else {
            enumeration(out, kind, &pairs(table, facts, names));
        }
    }
    for (kind, names) in FLAGS {
        flags(out, kind, &pairs(table, facts, names));
    }
    for kind in KINDS.iter().filter(|kind| kind.shape == Shape::Handle) {
        handle(out, kind.name, table, facts);
    }
    for name in [
        "MPI_MAX_DATAREP_STRING",
        "MPI_MAX_ERROR_STRING",
        "MPI_MAX_INFO_KEY",
        "MPI_MAX_OBJECT_NAME",
        "MPI_MAX_LIBRARY_VERSION_STRING",
        "MPI_MAX_PORT_NAME",
        "MPI_MAX_PROCESSOR_NAME",
    ] {
        let value = facts.value(name).expect("every family has the lengths of strings");
        line(out, format_args!("pub const {name}: usize = {value};"));
    }
    for (_, name, value) in OWN_HANDLES {
        line(out, format_args!("pub const {name}: u64 = {value};"));
    }
    for (name, missing) in ADDRESSES {
        let value = facts.value(name).unwrap_or(*missing);
        line(out, format_args!("const {}: usize = {value}_isize as usize;", name.trim_start_matches("MPI_")));
    }
}

/// For each constant that the family has, the family's value and the standard's.
fn pairs(table: &Table, facts: &Facts, names: &[&str]) -> Vec<(i64, i64)> {
    let wanted = |constant: &&Constant| {
        let named = |name: &&str| constant.name == **name || (name.ends_with('_') && constant.name.starts_with(*name));
        names.iter().any(named) && constant.name != "MPI_ERR_LASTCODE"
    };
    let pair = |constant: &Constant| Some((facts.value(&constant.name)?, constant.value));
    table.constants.iter().filter(wanted).filter_map(pair).collect()
}

fn enumeration(out: &mut String, kind: &str, pairs: &[(i64, i64)]) {
    let integer = if kind == "view_disp" { "i64" } else { "c_int" };
    let same = pairs.iter().all(|(family, standard)| family == standard);
    line(out, format_args!("#[inline]\npub fn {kind}_in(value: {integer}) -> {integer} {{"));
    if same {
        out.push_str("value }\n");
    } else {
        // Most values are plain numbers.
        if matches!(kind, "rank" | "tag") {
            out.push_str("if value >= 0 { return value; }\n");
        }
        out.push_str("match value {\n");
        for (family, standard) in once(pairs.iter().copied()) {
            line(out, format_args!("{family} => {standard},"));
        }
        // A number without a meaning in the family must not get one.
        for (_, standard) in
            once(pairs.iter().map(|(family, standard)| (*standard, *family))).iter().map(|p| (p.1, p.0))
        {
            if pairs.iter().all(|(family, _)| *family != standard) {
                line(out, format_args!("{standard} => {integer}::MIN,"));
            }
        }
        out.push_str("other => other,\n}\n}\n");
    }
    line(out, format_args!("#[inline]\npub fn {kind}_out(value: {integer}) -> {integer} {{"));
    if same {
        out.push_str("value }\n");
        return;
    }
    if matches!(kind, "rank" | "tag") {
        out.push_str("if value >= 0 { return value; }\n");
    }
    out.push_str("match value {\n");
    for (standard, family) in once(pairs.iter().map(|(family, standard)| (*standard, *family))) {
        line(out, format_args!("{standard} => {family},"));
    }
    out.push_str("other => other,\n}\n}\n");
}

/// Error classes. Classes that a program adds come after the last one of the library, whose number differs between
/// families.
fn errors(out: &mut String, table: &Table, facts: &Facts, pairs: &[(i64, i64)]) {
    let value = |name: &str| facts.value(name).expect("every family has it");
    let standard_of = |name: &str| table.constants.iter().find(|c| c.name == name).expect("of the standard").value;
    let (last, standard_last) = (value("MPI_ERR_LASTCODE"), standard_of("MPI_ERR_LASTCODE"));
    line(
        out,
        format_args!("pub fn error_in(code: c_int) -> c_int {{\nmatch code {{\n0 => 0,\n{last} => {standard_last},"),
    );
    for (family, standard) in once(pairs.iter().copied()).iter().filter(|pair| pair.0 != 0) {
        line(out, format_args!("{family} => {standard},"));
    }
    line(out, format_args!("other if other > {last} => other - {last} + {standard_last},\nother => other,\n}}\n}}"));
    line(
        out,
        format_args!("pub fn error_out(code: c_int) -> c_int {{\nmatch code {{\n0 => 0,\n{standard_last} => {last},"),
    );
    for (standard, family) in once(pairs.iter().map(|(family, standard)| (*standard, *family))) {
        if standard != 0 {
            line(out, format_args!("{standard} => {family},"));
        }
    }
    // Classes that the family does not have. A number that is a class in neither stays unchanged.
    let is_class =
        |c: &&Constant| c.kind.name == "int" && (c.name.starts_with("MPI_ERR_") || c.name.starts_with("MPI_T_ERR_"));
    for class in table.constants.iter().filter(is_class).filter(|c| facts.value(&c.name).is_none()) {
        let instead = if class.name == "MPI_ERR_ERRHANDLER" { "MPI_ERR_ARG" } else { "MPI_ERR_OTHER" };
        line(out, format_args!("{} => {},", class.value, value(instead)));
    }
    line(
        out,
        format_args!("other if other > {standard_last} => other - {standard_last} + {last},\nother => other,\n}}\n}}"),
    );
}

/// The pairs whose first value occurs for the first time.
fn once(pairs: impl Iterator<Item = (i64, i64)>) -> Vec<(i64, i64)> {
    let mut kept: Vec<(i64, i64)> = Vec::new();
    for pair in pairs {
        if kept.iter().all(|before| before.0 != pair.0) {
            kept.push(pair);
        }
    }
    kept
}

/// Above this number handles are looked up in a table: a search by comparisons takes two dozen instructions.
const BRANCHES_MAX: usize = 8;

/// Finds a handle by its lowest byte, which differs for nearly all of MPICH's predefined objects. A handle whose byte
/// another has is left to the search that follows.
fn table_of_low_bytes(values: &[(i64, i64)], out: &mut String) {
    let entry = |byte: i64| {
        let found = values.iter().find(|(value, _)| value & 255 == byte);
        // No handle has this byte.
        found.copied().unwrap_or((i64::from(byte == 0), 0))
    };
    out.push_str("static LOW_BYTES: [(c_int, u16); 256] = [");
    for (value, standard) in (0..256).map(entry) {
        out.push_str(&format!("({}, {standard}), ", value as i32));
    }
    out.push_str("];\nlet (value, standard) = LOW_BYTES[(self.0 & 255) as usize];\n");
    out.push_str("if value == self.0 { return standard as usize; }\n");
}

fn flags(out: &mut String, kind: &str, pairs: &[(i64, i64)]) {
    let known: i64 = pairs.iter().map(|pair| pair.0).sum();
    let standard: i64 = pairs.iter().map(|pair| pair.1).sum();
    for (way, known, swap) in [("in", known, false), ("out", standard, true)] {
        line(out, format_args!("pub fn {kind}_{way}(value: c_int) -> c_int {{"));
        // An unknown bit stays unknown.
        line(out, format_args!("let mut other = if value & !{known} != 0 {{ 1 << 30 }} else {{ 0 }};"));
        for (family, standard) in pairs {
            let (from, to) = if swap { (standard, family) } else { (family, standard) };
            line(out, format_args!("if value & {from} != 0 {{ other |= {to}; }}"));
        }
        out.push_str("other\n}\n");
    }
}

fn handle(out: &mut String, kind: &str, table: &Table, facts: &Facts) {
    let name = type_name(kind);
    let constants = || table.constants.iter().filter(|c| c.kind.name == kind);
    let is_pointer = facts.family == Family::OpenMpi || kind == "file";
    let integer = if is_pointer { "usize" } else { "c_int" };
    line(out, format_args!("#[derive(Clone, Copy, PartialEq, Eq, Debug)]\n#[repr(transparent)]"));
    line(out, format_args!("pub struct {name}(pub {integer});\nimpl Handle for {name} {{"));
    line(out, format_args!("const KIND: &'static str = \"{kind}\";"));
    let null =
        if kind == "datatype" { "MPI_DATATYPE_NULL".to_owned() } else { format!("MPI_{}_NULL", kind.to_uppercase()) };
    let facts_of = |c: &Constant| facts.get(&c.name).cloned().map(|fact| (c.value, fact));
    let own = OWN_HANDLES.iter().filter(|(own, _, _)| *own == kind);
    let own = own.filter_map(|(_, name, value)| Some((*value, facts.get(name)?.clone())));
    let known: Vec<_> = constants().filter_map(facts_of).chain(own).collect();
    let expression = |fact: &Fact| match fact {
        Fact::Value(value) => format!("Self({value})"),
        Fact::Data { symbol, .. } => format!("Self((&raw const {symbol}).addr())"),
    };
    let null = facts.get(&null).map_or("Self(0)".to_owned(), expression);
    out.push_str("#[inline]\nfn core(self) -> usize {\n");
    match facts.family {
        Family::OpenMpi => out.push_str("core_of_address(self.0)\n"),
        Family::Mpich => {
            line(out, format_args!("if let Some(value) = given_out_{integer}(self.0) {{ return value; }}"));
            let named = |name: &str| constants().find(|c| c.name == name).map(|c| c.value);
            let aliases = facts.aliases.iter().filter_map(|(name, fact)| Some((named(name)?, fact.clone())));
            let aliases: Vec<_> = aliases.collect();
            let values = known.iter().chain(&aliases).filter_map(|(standard, fact)| match fact {
                Fact::Value(value) => Some((*value, *standard)),
                Fact::Data { .. } => None,
            });
            let values = once(values);
            if values.len() > BRANCHES_MAX {
                table_of_low_bytes(&values, out);
            }
            out.push_str("match self.0 {\n");
            for (value, standard) in values {
                line(out, format_args!("{value} => {standard},"));
            }
            out.push_str("_ => NO_HANDLE,\n}\n");
        }
    }
    out.push_str("}\n#[inline]\nfn of(value: usize) -> Self {\nmatch value {\n");
    let mut done = Vec::new();
    for (standard, fact) in &known {
        if !done.contains(standard) {
            done.push(*standard);
            line(out, format_args!("{standard} => {},", expression(fact)));
        }
    }
    line(out, format_args!("FIRST_HANDLE.. => Self(give_out_{integer}(value)),\n_ => {null},\n}}\n}}"));
    fortran(out, facts.family, &known);
    out.push_str("}\n");
}

/// Conversion between the handle and an integer of Fortran.
fn fortran(out: &mut String, family: Family, known: &[(i64, Fact)]) {
    if family == Family::Mpich {
        // The same number. MPI_File is a pointer there, and its number is no address.
        out.push_str("fn to_fortran(self) -> c_int { self.0 as c_int }\n");
        out.push_str("fn of_fortran(value: c_int) -> Self { Self(value as _) }\n");
        return;
    }
    let numbers: Vec<_> = known
        .iter()
        .filter_map(|(standard, fact)| match fact {
            Fact::Data { fortran: Some(number), .. } => Some((*standard, i64::from(*number))),
            _ => None,
        })
        .collect();
    if numbers.is_empty() {
        out.push_str("fn to_fortran(self) -> c_int { self.core() as c_int }\n");
        out.push_str("fn of_fortran(value: c_int) -> Self { Self::of(value as usize) }\n");
        return;
    }
    out.push_str("fn to_fortran(self) -> c_int {\nmatch self.core() {\n");
    for (standard, number) in once(numbers.iter().copied()) {
        line(out, format_args!("{standard} => {number},"));
    }
    out.push_str("other => other as c_int,\n}\n}\nfn of_fortran(value: c_int) -> Self {\nSelf::of(match value {\n");
    for (number, standard) in once(numbers.iter().map(|(standard, number)| (*number, *standard))) {
        line(out, format_args!("{number} => {standard},"));
    }
    out.push_str("other => other as usize,\n})\n}\n");
}

/// The name of the type: `Comm` for `comm`.
pub(crate) fn type_name(kind: &str) -> String {
    let mut letters = kind.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// Exported data whose addresses are handles. Its first word, also in the program's copies, is the standard's value.
pub(super) fn data(out: &mut String, table: &Table, facts: &Facts) {
    let mut done: Vec<String> = Vec::new();
    for constant in &table.constants {
        let Some(Fact::Data { symbol, bytes, .. }) = facts.get(&constant.name) else { continue };
        if done.contains(symbol) {
            continue;
        }
        done.push(symbol.clone());
        let words = bytes / 8;
        out.push_str("#[unsafe(no_mangle)]\n");
        line(out, format_args!("pub static {symbol}: [usize; {words}] = predefined({});", constant.value));
    }
}
