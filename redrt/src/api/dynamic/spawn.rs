//! `MPI_Comm_spawn` and `MPI_Comm_spawn_multiple` (MPI-5.0 §11.8).

use super::check_plain;
use redrt_abi::error::{Error, Result};
use redrt_abi::fail;
use redrt_abi::handle::{CommHandle, InfoHandle};
use redrt_abi::{Input, MPI_ERR_ARG, MPI_ERR_INFO_VALUE, MPI_ERR_SPAWN, MPI_SUCCESS, Output};
use redrt_comm::comm;
use redrt_comm::objects::errhandler::Errhandler;
use redrt_comm::objects::info;
use redrt_dynamic::port::{self, Terms};
use redrt_dynamic::redrun::Question;
use redrt_dynamic::{self as dynamic, Met};
use redrt_engine as engine;
use redrt_types::World;
use redrt_wire::dynamic::{Answer, Command, Request};
use std::ffi::{CStr, OsStr, OsString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;

/// A C string, which need not be UTF-8.
///
/// # Safety
/// Null, or ends with a NUL.
unsafe fn string(text: *const c_char) -> Result<OsString> {
    if text.is_null() {
        fail!(MPI_ERR_ARG, "a string is a null pointer");
    }
    // SAFETY: - not null: checked; ends with a NUL: this function's contract.
    Ok(OsStr::from_bytes(unsafe { CStr::from_ptr(text) }.to_bytes()).to_owned())
}

/// The strings up to a null pointer; none for `MPI_ARGV_NULL`.
///
/// # Safety
/// Null, or an array of C strings whose last element is null.
unsafe fn arguments(strings: *const *mut c_char) -> Result<Vec<OsString>> {
    let mut all = Vec::new();
    while !strings.is_null() {
        // SAFETY: - not behind the null pointer at the end: the loop ends there.
        let text = unsafe { *strings.add(all.len()) };
        if text.is_null() {
            break;
        }
        // SAFETY: - a C string: every element before the null pointer is one, by this function's contract.
        all.push(unsafe { string(text)? });
    }
    Ok(all)
}

/// The largest number in a `soft` list, such as `2:8:2,16`, that is at most `most` (§11.8.4).
fn soften(list: &str, most: u32) -> Option<u32> {
    let range = |part: &str| -> Option<Vec<i64>> {
        let numbers: Option<Vec<i64>> = part.split(':').map(|number| number.trim().parse().ok()).collect();
        match *numbers? {
            [one] => Some(vec![one]),
            [first, last] => Some(vec![first, last, 1]),
            [first, last, step] if step != 0 => Some(vec![first, last, step]),
            _ => None,
        }
    };
    let mut best = None;
    for part in list.split(',') {
        let candidate = match *range(part)? {
            [one] => Some(one),
            [first, last, step] => {
                let (low, high) = if step > 0 { (first, last) } else { (last, first) };
                let top = high.min(i64::from(most));
                // The numbers are first + k * step.
                let found =
                    if step > 0 { top - (top - first).rem_euclid(step) } else { top - (top - first).rem_euclid(-step) };
                (found >= low).then_some(found)
            }
            _ => None,
        };
        best = best.max(candidate.filter(|count| (0..=i64::from(most)).contains(count)));
    }
    best.map(|count| count as u32)
}

/// One program of a spawn, in the form that `redrun` takes.
fn command(program: OsString, arguments: Vec<OsString>, maxprocs: c_int, hints: InfoHandle) -> Result<Command> {
    let rank_count = match u32::try_from(maxprocs) {
        Ok(count @ 1..=World::RANK_COUNT_MAX) => count,
        _ => fail!(MPI_ERR_ARG, "{maxprocs} processes to be started (1 to {})", World::RANK_COUNT_MAX),
    };
    let hints = info::resolve_hints(hints)?;
    let hint = |key: &str| hints.as_ref().and_then(|hints| hints.get(key));
    let rank_count = match hint("soft") {
        None => rank_count,
        Some(list) => match soften(&list, rank_count) {
            Some(count @ 1..) => count,
            Some(0) | None => fail!(MPI_ERR_INFO_VALUE, "soft={list} allows no number of processes up to {rank_count}"),
        },
    };
    let current = std::env::current_dir().map(std::path::PathBuf::into_os_string);
    let directory = match hint("wdir") {
        Some(directory) => directory.into(),
        None => current.map_err(|error| Error::new(MPI_ERR_SPAWN, format!("no current directory: {error}")))?,
    };
    let initial_errhandler = hint("mpi_initial_errhandler");
    if let Some(name) = initial_errhandler.as_deref().filter(|name| Errhandler::named(name).is_none()) {
        fail!(MPI_ERR_INFO_VALUE, "mpi_initial_errhandler={name} is no predefined error handler");
    }
    let (path, hosts) = (hint("path").map(Into::into), hint("host"));
    Ok(Command { program, arguments, rank_count, directory, path, hosts, initial_errhandler })
}

/// At the root: asks `redrun` to start the job, and connects to it.
fn start(commands: Vec<Command>, own: Terms) -> Result<Met> {
    let total: u32 = commands.iter().map(|command| command.rank_count).sum();
    let port = port::open(dynamic::own_contact()?.address.expect("the own contact has one"))?;
    let context = own.context;
    let meet = || {
        let awaited = port::accept(&port, own)?;
        let question = Question::ask(Request::Spawn { commands, port: port.clone() }, MPI_ERR_SPAWN)?;
        let came = engine::cell().wait_for(|_| match awaited.take() {
            Some(terms) => Some(Ok(terms)),
            None => question.answer().map(Err),
        });
        match came {
            Ok(terms) => {
                question.say(Request::Met, MPI_ERR_SPAWN)?;
                terms
            }
            Err(Answer::NotSpawned(why)) => Err(Error::new(MPI_ERR_SPAWN, why)),
            Err(Answer::Name(_) | Answer::Checkpoint(_)) => {
                fail!(MPI_ERR_SPAWN, "redrun has answered another question: mixed installations?")
            }
        }
    };
    let terms = meet();
    port::close(&port)?;
    Ok(Met { note: total, ..Met::new(context, terms?) })
}

fn spawn(
    commands: impl FnOnce() -> Result<Vec<Command>>,
    root: c_int,
    comm: CommHandle,
    intercomm: Output<CommHandle>,
    errcodes: Output<c_int>,
) -> Result {
    check_plain()?;
    let comm = comm::resolve(comm)?;
    comm.member(root)?;
    let tell = |count: u32, code| (0..count as usize).try_for_each(|index| errcodes.set_at(index, code));
    let meet = |own| {
        let commands = commands()?;
        let total = commands.iter().map(|command| command.rank_count).sum();
        let met = start(commands, own);
        if met.is_err() && !errcodes.is_null() {
            tell(total, MPI_ERR_SPAWN)?;
        }
        met
    };
    intercomm.set(CommHandle::NULL)?;
    let (made, count) = dynamic::bridge(&comm, root as usize, meet)?;
    if !errcodes.is_null() {
        tell(count, MPI_SUCCESS)?;
    }
    intercomm.set(made.handle())
}

/// `MPI_Comm_spawn`. Only `root` and `comm` are significant at members other than the root.
///
/// # Safety
/// At the root `argv` is null or ends with a null pointer.
#[allow(clippy::too_many_arguments)]
pub unsafe fn comm_spawn(
    command: Input<c_char>,
    argv: *mut *mut c_char,
    maxprocs: c_int,
    info: InfoHandle,
    root: c_int,
    comm: CommHandle,
    intercomm: Output<CommHandle>,
    array_of_errcodes: Output<c_int>,
) -> Result {
    let commands = || {
        // SAFETY: - at the root, so the command is a C string and argv ends with a null pointer: this function's
        //           contract.
        let (program, arguments) = unsafe { (string(command.as_ptr())?, arguments(argv)?) };
        Ok(vec![self::command(program, arguments, maxprocs, info)?])
    };
    spawn(commands, root, comm, intercomm, array_of_errcodes)
}

/// `MPI_Comm_spawn_multiple`.
///
/// # Safety
/// At the root `array_of_commands` has `count` elements, and `array_of_argv` is null or has as many, each as `argv` of
/// [`comm_spawn`].
#[allow(clippy::too_many_arguments)]
pub unsafe fn comm_spawn_multiple(
    count: c_int,
    array_of_commands: *mut *mut c_char,
    array_of_argv: *mut *mut *mut c_char,
    array_of_maxprocs: Input<c_int>,
    array_of_info: Input<InfoHandle>,
    root: c_int,
    comm: CommHandle,
    intercomm: Output<CommHandle>,
    array_of_errcodes: Output<c_int>,
) -> Result {
    let commands = || {
        let (maxprocs, hints) = (array_of_maxprocs.slice(count)?, array_of_info.slice(count)?);
        if maxprocs.is_empty() || array_of_commands.is_null() {
            fail!(MPI_ERR_ARG, "no program to be started");
        }
        let of_index = |index: usize| {
            // SAFETY: - in bounds: one of `count` elements; a C string: this function's contract.
            let program = unsafe { string(*array_of_commands.add(index))? };
            let arguments = match array_of_argv.is_null() {
                true => Vec::new(),
                // SAFETY: - in bounds: one of `count` elements; an array of strings that ends with null: this
                //           function's contract.
                false => unsafe { arguments(*array_of_argv.add(index))? },
            };
            command(program, arguments, maxprocs[index], hints[index])
        };
        (0..maxprocs.len()).map(of_index).collect()
    };
    spawn(commands, root, comm, intercomm, array_of_errcodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_soft_number_is_taken() {
        for (list, most, expected) in [
            ("4", 4, Some(4)),
            ("4", 3, None),
            ("0:100", 7, Some(7)),
            ("2:10000:2", 9, Some(8)),
            ("1,3,17", 8, Some(3)),
            ("10:2:-3", 9, Some(7)),
            ("4:2", 8, None),
            ("8:1:0", 8, None),
            ("two", 8, None),
        ] {
            assert_eq!(soften(list, most), expected, "{list} up to {most}");
        }
    }
}
