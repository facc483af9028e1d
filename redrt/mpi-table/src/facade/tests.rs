use super::*;
use crate::parse::Table;

fn both() -> [Facts; 2] {
    [Facts::of(Family::Mpich), Facts::of(Family::OpenMpi)]
}

#[test]
fn facts_name_constants_of_the_standard() {
    for facts in both() {
        assert_eq!(facts.unknown(&Table::standard()), Vec::<&str>::new(), "{:?}", facts.family);
    }
}

#[test]
fn a_fact_that_is_none_is_an_error_with_its_line() {
    for line in ["MPI_INT", "MPI_INT x", "MPI_INT 1 2", "MPI_INT &ompi_mpi_int", "MPI_INT &a 8 1 2", "MPI_INT 0xzz"] {
        let error = Facts::parse(Family::OpenMpi, &format!("# a comment\n\n{line}\n")).expect_err(line);
        assert!(error.to_string().starts_with("line 3: "), "{error}");
    }
    let twice = Facts::parse(Family::Mpich, "MPI_INT 1\nMPI_INT 1\n").expect_err("it is there twice");
    assert_eq!(twice.to_string(), "line 2: MPI_INT is there twice");
}

#[test]
fn no_two_error_classes_of_a_family_have_one_value() {
    let table = Table::standard();
    for facts in both() {
        let classes = table.constants.iter().filter(|c| c.kind.name == "int" && c.name.starts_with("MPI_ERR_"));
        let mut seen = std::collections::HashMap::new();
        for class in classes.filter(|c| c.name != "MPI_ERR_LASTCODE") {
            let Some(value) = facts.value(&class.name) else { continue };
            assert_eq!(
                seen.insert(value, &class.name),
                None,
                "{:?}: {} has the value of another",
                facts.family,
                class.name
            );
        }
        assert!(seen.len() > 50, "{:?}", facts.family);
    }
}

#[test]
fn predefined_handles_differ_unless_the_standards_are_equal() {
    let table = Table::standard();
    for facts in both() {
        for kind in ["comm", "datatype", "op", "errhandler", "group", "info", "request", "win", "message"] {
            let constants: Vec<_> = table.constants.iter().filter(|c| c.kind.name == kind).collect();
            for (index, one) in constants.iter().enumerate() {
                for other in &constants[..index] {
                    let (Some(first), Some(second)) = (facts.get(&one.name), facts.get(&other.name)) else { continue };
                    let same_kind_of_complex = one.name.contains("COMPLEX") || one.name.contains("CXX");
                    assert!(
                        one.value == other.value || first != second || same_kind_of_complex,
                        "{:?}: {} and {}",
                        facts.family,
                        one.name,
                        other.name
                    );
                }
            }
        }
    }
}

/// A handle of MPICH that redrt gave out has its highest bit set; constants with that bit have small lower bits.
#[test]
fn no_constant_of_mpich_is_taken_for_a_given_handle() {
    let facts = Facts::of(Family::Mpich);
    for constant in Table::standard().constants.iter().filter(|c| c.kind.shape == crate::Shape::Handle) {
        let Some(value) = facts.value(&constant.name) else { continue };
        assert!(value >= 0 || value & ((1 << 22) - 1) < 0x1000, "{}: {value:#x}", constant.name);
    }
}

#[test]
fn the_two_libraries_agree_on_the_layout_of_the_table() {
    let table = Table::standard();
    let (core, facade) = (render_core_table(&table), render_core_type(&table));
    let layout = core.split("layout: ").nth(1).and_then(|rest| rest.split(',').next()).expect("a layout");
    assert!(facade.contains(&format!("LAYOUT: u64 = {layout};")), "{layout}");
    let fields = facade.lines().filter(|line| line.contains("unsafe extern")).count();
    assert_eq!(core.lines().filter(|line| line.ends_with("as *const (),")).count(), fields + self::core::OWN.len());
}

#[test]
fn what_a_facade_does_with_an_argument_is_what_its_kind_says() {
    let text = render_facade(&Table::standard(), Family::Mpich);
    let body = |name: &str| {
        let begin = text.find(&format!("fn inner_{name}(")).expect("the function is there");
        text[begin..].split("\n}\n").next().expect("it ends").to_owned()
    };
    assert!(
        body("send").contains("(core().send)(buffer_in::<Own>(buf.cast_mut()), count, datatype.core(), rank_in(dest)")
    );
    assert!(body("win_lock").contains("lock_type_in(lock_type), rank_in(rank), assert_in(assert), win.core()"));
    // A reduction has no state of its own, so a function of the façade calls it.
    assert!(body("op_create").contains("(core().own.create_op)(user_fn, 0, call_operation::<Own, Datatype, false>"));
    // An exit code is not translated: it is no error code.
    assert!(body("abort").contains("(core().abort)(comm.core(), errorcode)"));
    assert!(body("get_processor_name").contains("name_core.give(name, MPI_MAX_PROCESSOR_NAME, resultlen)"));
    for old in ["MPI_Address", "PMPI_Type_struct", "MPI_Errhandler_set"] {
        assert!(text.contains(&format!("extern \"C\" fn {old}(")), "{old}");
    }
}
