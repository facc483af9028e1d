//! Datatypes (MPI-5.0 chapter 5): constructors, queries, names and contents. Packing is in `pack.rs`.

use super::check::check_count;
use super::env::set_string;
use redrt_abi::error::{Error, Result};
use redrt_abi::fail;
use redrt_abi::handle::DatatypeHandle;
use redrt_abi::*;
use redrt_comm::datatype::{self, Datatype, Envelope, register, resolve};
use redrt_comm::objects::attributes::ObjectKind;
use redrt_datatype::{self as map, Block, DistributedArray, Distribution, Order, TypeMap};
use redrt_runtime as runtime;
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

pub use super::pack::{pack, pack_external, pack_external_size, pack_size, unpack, unpack_external};

/// Registers a new type.
fn finish(map: TypeMap, envelope: Envelope, newtype: Output<DatatypeHandle>) -> Result {
    newtype.set(register(Arc::new(Datatype::new(map, envelope))))
}

fn block_lengths(lengths: Counts, count: i64) -> Result<Vec<i64>> {
    let lengths = lengths.to_vec(count)?;
    match lengths.iter().find(|length| **length < 0) {
        Some(length) => Err(Error::new(MPI_ERR_ARG, format!("a block length is {length}"))),
        None => Ok(lengths),
    }
}

fn zip(displacements: &[i64], lengths: &[i64]) -> Vec<(i64, i64)> {
    displacements.iter().copied().zip(lengths.iter().copied()).collect()
}

/// `MPI_Type_contiguous`.
pub fn type_contiguous(count: i64, oldtype: DatatypeHandle, newtype: Output<DatatypeHandle>, wide: bool) -> Result {
    let old = resolve(oldtype)?;
    let envelope = Envelope::new(MPI_COMBINER_CONTIGUOUS, wide).count(&[check_count(count)?]).datatype(&old);
    finish(map::contiguous(count, &old)?, envelope, newtype)
}

/// `MPI_Type_vector`.
pub fn type_vector(
    count: i64,
    blocklength: i64,
    stride: i64,
    oldtype: DatatypeHandle,
    newtype: Output<DatatypeHandle>,
    wide: bool,
) -> Result {
    let old = resolve(oldtype)?;
    let arguments = [check_count(count)?, check_count(blocklength)?, stride];
    let envelope = Envelope::new(MPI_COMBINER_VECTOR, wide).count(&arguments).datatype(&old);
    let Some(stride) = stride.checked_mul(old.extent()) else { fail!(MPI_ERR_ARG, "the stride is {stride}") };
    finish(map::hvector(count, blocklength, stride, &old)?, envelope, newtype)
}

/// `MPI_Type_create_hvector`.
pub fn type_create_hvector(
    count: i64,
    blocklength: i64,
    stride: i64,
    oldtype: DatatypeHandle,
    newtype: Output<DatatypeHandle>,
    wide: bool,
) -> Result {
    let old = resolve(oldtype)?;
    let counts = [check_count(count)?, check_count(blocklength)?];
    let envelope = Envelope::new(MPI_COMBINER_HVECTOR, wide).count(&counts).address(&[stride]).datatype(&old);
    finish(map::hvector(count, blocklength, stride, &old)?, envelope, newtype)
}

/// `MPI_Type_indexed`.
pub fn type_indexed(
    count: i64,
    blocklengths: Counts,
    displacements: Counts,
    oldtype: DatatypeHandle,
    newtype: Output<DatatypeHandle>,
    wide: bool,
) -> Result {
    let old = resolve(oldtype)?;
    let lengths = block_lengths(blocklengths, check_count(count)?)?;
    let displacements = displacements.to_vec(count)?;
    let envelope = Envelope::new(MPI_COMBINER_INDEXED, wide).count(&[count]).count(&lengths).count(&displacements);
    finish(map::indexed(&zip(&displacements, &lengths), &old)?, envelope.datatype(&old), newtype)
}

/// `MPI_Type_create_hindexed`.
pub fn type_create_hindexed(
    count: i64,
    blocklengths: Counts,
    displacements: Counts,
    oldtype: DatatypeHandle,
    newtype: Output<DatatypeHandle>,
    wide: bool,
) -> Result {
    let old = resolve(oldtype)?;
    let lengths = block_lengths(blocklengths, check_count(count)?)?;
    let displacements = displacements.to_vec(count)?;
    let envelope = Envelope::new(MPI_COMBINER_HINDEXED, wide).count(&[count]).count(&lengths).address(&displacements);
    finish(map::hindexed(&zip(&displacements, &lengths), &old)?, envelope.datatype(&old), newtype)
}

/// `MPI_Type_create_indexed_block`.
pub fn type_create_indexed_block(
    count: i64,
    blocklength: i64,
    displacements: Counts,
    oldtype: DatatypeHandle,
    newtype: Output<DatatypeHandle>,
    wide: bool,
) -> Result {
    let old = resolve(oldtype)?;
    let displacements = displacements.to_vec(check_count(count)?)?;
    let counts = [count, check_count(blocklength)?];
    let envelope = Envelope::new(MPI_COMBINER_INDEXED_BLOCK, wide).count(&counts).count(&displacements);
    let blocks: Vec<_> = displacements.iter().map(|displacement| (*displacement, blocklength)).collect();
    finish(map::indexed(&blocks, &old)?, envelope.datatype(&old), newtype)
}

/// `MPI_Type_create_hindexed_block`.
pub fn type_create_hindexed_block(
    count: i64,
    blocklength: i64,
    displacements: Counts,
    oldtype: DatatypeHandle,
    newtype: Output<DatatypeHandle>,
    wide: bool,
) -> Result {
    let old = resolve(oldtype)?;
    let displacements = displacements.to_vec(check_count(count)?)?;
    let counts = [count, check_count(blocklength)?];
    let envelope = Envelope::new(MPI_COMBINER_HINDEXED_BLOCK, wide).count(&counts).address(&displacements);
    let blocks: Vec<_> = displacements.iter().map(|displacement| (*displacement, blocklength)).collect();
    finish(map::hindexed(&blocks, &old)?, envelope.datatype(&old), newtype)
}

/// `MPI_Type_create_struct`.
pub fn type_create_struct(
    count: i64,
    blocklengths: Counts,
    displacements: Counts,
    types: Input<DatatypeHandle>,
    newtype: Output<DatatypeHandle>,
    wide: bool,
) -> Result {
    let lengths = block_lengths(blocklengths, check_count(count)?)?;
    let displacements = displacements.to_vec(count)?;
    let types: Vec<_> = types.slice(count)?.iter().map(|handle| resolve(*handle)).collect::<Result<_>>()?;
    let mut envelope = Envelope::new(MPI_COMBINER_STRUCT, wide).count(&[count]).count(&lengths).address(&displacements);
    let mut blocks = Vec::with_capacity(types.len());
    for (index, datatype) in types.iter().enumerate() {
        envelope = envelope.datatype(datatype);
        blocks.push(Block { displacement: displacements[index], length: lengths[index], datatype });
    }
    finish(map::struct_of(&blocks)?, envelope, newtype)
}

fn order_of(order: c_int) -> Result<Order> {
    match order {
        MPI_ORDER_C => Ok(Order::C),
        MPI_ORDER_FORTRAN => Ok(Order::Fortran),
        _ => fail!(MPI_ERR_ARG, "the order is neither MPI_ORDER_C nor MPI_ORDER_FORTRAN"),
    }
}

fn distribution_of(distribution: c_int, argument: c_int) -> Result<Distribution> {
    let argument = (argument != MPI_DISTRIBUTE_DFLT_DARG).then_some(i64::from(argument));
    match distribution {
        MPI_DISTRIBUTE_NONE => Ok(Distribution::None),
        MPI_DISTRIBUTE_BLOCK => Ok(Distribution::Block(argument)),
        MPI_DISTRIBUTE_CYCLIC => Ok(Distribution::Cyclic(argument)),
        other => fail!(MPI_ERR_ARG, "{other} is not a distribution"),
    }
}

fn check_dimensions(ndims: c_int) -> Result {
    if ndims < 1 {
        fail!(MPI_ERR_ARG, "the number of dimensions is {ndims}");
    }
    Ok(())
}

/// `MPI_Type_create_subarray`.
pub fn type_create_subarray(
    ndims: c_int,
    sizes: Counts,
    subsizes: Counts,
    starts: Counts,
    order: c_int,
    oldtype: DatatypeHandle,
    newtype: Output<DatatypeHandle>,
    wide: bool,
) -> Result {
    let old = resolve(oldtype)?;
    // MPICH and Open MPI accept an array without dimensions: it has no elements.
    let is_empty = ndims == 0 && !runtime::is_pedantic();
    if !is_empty {
        check_dimensions(ndims)?;
    }
    let (sizes, subsizes, starts) = (sizes.to_vec(ndims)?, subsizes.to_vec(ndims)?, starts.to_vec(ndims)?);
    let envelope = Envelope::new(MPI_COMBINER_SUBARRAY, wide).integer(ndims);
    let envelope = envelope.count(&sizes).count(&subsizes).count(&starts).integer(order).datatype(&old);
    let order = order_of(order)?;
    let map =
        if is_empty { map::contiguous(0, &old)? } else { map::subarray(&sizes, &subsizes, &starts, order, &old)? };
    finish(map, envelope, newtype)
}

/// `MPI_Type_create_darray`.
pub fn type_create_darray(
    size: c_int,
    rank: c_int,
    ndims: c_int,
    gsizes: Counts,
    distribs: Input<c_int>,
    dargs: Input<c_int>,
    psizes: Input<c_int>,
    order: c_int,
    oldtype: DatatypeHandle,
    newtype: Output<DatatypeHandle>,
    wide: bool,
) -> Result {
    let old = resolve(oldtype)?;
    check_dimensions(ndims)?;
    let lengths = gsizes.to_vec(ndims)?;
    let (distributions, arguments) = (distribs.slice(ndims)?, dargs.slice(ndims)?);
    let process_counts = psizes.slice(ndims)?;
    let mut envelope = Envelope::new(MPI_COMBINER_DARRAY, wide);
    envelope = envelope.integer(size).integer(rank).integer(ndims).count(&lengths);
    for list in [distributions, arguments, process_counts] {
        envelope.integers.extend_from_slice(list);
    }
    let both = distributions.iter().zip(arguments);
    let distributions = both.map(|(kind, argument)| distribution_of(*kind, *argument)).collect::<Result<Vec<_>>>()?;
    let array = DistributedArray {
        size,
        rank,
        lengths: &lengths,
        distributions: &distributions,
        process_counts,
        order: order_of(order)?,
    };
    finish(map::darray(&array, &old)?, envelope.integer(order).datatype(&old), newtype)
}

/// `MPI_Type_create_resized`.
pub fn type_create_resized(
    oldtype: DatatypeHandle,
    lb: i64,
    extent: i64,
    newtype: Output<DatatypeHandle>,
    wide: bool,
) -> Result {
    let old = resolve(oldtype)?;
    let envelope = Envelope::new(MPI_COMBINER_RESIZED, wide).address(&[lb, extent]).datatype(&old);
    finish(map::resized(&old, lb, extent)?, envelope, newtype)
}

/// `MPI_Type_dup`.
pub fn type_dup(oldtype: DatatypeHandle, newtype: Output<DatatypeHandle>) -> Result {
    let old = resolve(oldtype)?;
    let mut new = Datatype::duplicate(&old);
    new.attributes = old.attributes.duplicate(oldtype.0)?;
    newtype.set(register(Arc::new(new)))
}

/// `MPI_Type_create_f90_integer`.
pub fn type_create_f90_integer(r: c_int, newtype: Output<DatatypeHandle>) -> Result {
    newtype.set(register(datatype::f90_integer(r)?))
}

/// `MPI_Type_create_f90_real`.
pub fn type_create_f90_real(p: c_int, r: c_int, newtype: Output<DatatypeHandle>) -> Result {
    newtype.set(register(datatype::f90_real(p, r)?))
}

/// `MPI_Type_create_f90_complex`.
pub fn type_create_f90_complex(p: c_int, r: c_int, newtype: Output<DatatypeHandle>) -> Result {
    newtype.set(register(datatype::f90_complex(p, r)?))
}

/// `MPI_Type_match_size`.
pub fn type_match_size(typeclass: c_int, size: c_int, datatype: Output<DatatypeHandle>) -> Result {
    datatype.set(datatype::match_size(typeclass, size)?)
}

/// `MPI_Type_get_value_index`.
pub fn type_get_value_index(
    value_type: DatatypeHandle,
    index_type: DatatypeHandle,
    pair_type: Output<DatatypeHandle>,
) -> Result {
    resolve(value_type)?;
    resolve(index_type)?;
    pair_type.set(datatype::value_index(value_type, index_type))
}

/// `MPI_Type_commit`.
pub fn type_commit(datatype: Output<DatatypeHandle>) -> Result {
    resolve(datatype.get()?)?.commit();
    Ok(())
}

/// `MPI_Type_free`.
pub fn type_free(datatype: Output<DatatypeHandle>) -> Result {
    let handle = datatype.get()?;
    let freed = resolve(handle)?;
    if freed.predefined().is_none() {
        freed.attributes.delete_all(handle.0)?;
    }
    datatype::free(handle)?;
    datatype.set(DatatypeHandle::NULL)
}

/// `MPI_Type_size`: `MPI_UNDEFINED` when an `int` cannot hold it.
pub fn type_size(datatype: DatatypeHandle, size: CountOut) -> Result {
    size.set_or_undefined(resolve(datatype)?.size() as i64)
}

/// `MPI_Type_size_x`.
pub fn type_size_x(datatype: DatatypeHandle, size: Output<Count>) -> Result {
    size.set(resolve(datatype)?.size() as i64)
}

/// `MPI_Type_get_extent`.
pub fn type_get_extent(datatype: DatatypeHandle, lb: CountOut, extent: CountOut) -> Result {
    let datatype = resolve(datatype)?;
    lb.set(datatype.lower_bound())?;
    extent.set(datatype.extent())
}

/// `MPI_Type_get_extent_x`.
pub fn type_get_extent_x(datatype: DatatypeHandle, lb: Output<Count>, extent: Output<Count>) -> Result {
    let datatype = resolve(datatype)?;
    lb.set(datatype.lower_bound())?;
    extent.set(datatype.extent())
}

/// `MPI_Type_get_true_extent`.
pub fn type_get_true_extent(datatype: DatatypeHandle, true_lb: CountOut, true_extent: CountOut) -> Result {
    let (lower, extent) = resolve(datatype)?.true_bounds();
    true_lb.set(lower)?;
    true_extent.set(extent)
}

/// `MPI_Type_get_true_extent_x`.
pub fn type_get_true_extent_x(datatype: DatatypeHandle, true_lb: Output<Count>, true_extent: Output<Count>) -> Result {
    let (lower, extent) = resolve(datatype)?.true_bounds();
    true_lb.set(lower)?;
    true_extent.set(extent)
}

/// `MPI_Type_get_name`.
pub fn type_get_name(datatype: DatatypeHandle, name: Output<c_char>, resultlen: Output<c_int>) -> Result {
    // Section 7.8: accepts MPI_DATATYPE_NULL, which has a name.
    let text =
        if datatype == DatatypeHandle::NULL { "MPI_DATATYPE_NULL".to_owned() } else { resolve(datatype)?.name() };
    set_string(name, resultlen, &text, MPI_MAX_OBJECT_NAME)
}

/// `MPI_Type_set_name`.
pub fn type_set_name(datatype: DatatypeHandle, name: Input<c_char>) -> Result {
    let datatype = resolve(datatype)?;
    datatype.set_name(name.text()?);
    Ok(())
}

/// `MPI_Type_get_envelope`.
pub fn type_get_envelope(
    datatype: DatatypeHandle,
    num_integers: CountOut,
    num_addresses: CountOut,
    num_large_counts: CountOut,
    num_datatypes: CountOut,
    combiner: Output<c_int>,
    wide: bool,
) -> Result {
    let datatype = resolve(datatype)?;
    let envelope = envelope_for(&datatype, wide)?;
    num_integers.set(envelope.integers.len() as i64)?;
    num_addresses.set(envelope.addresses.len() as i64)?;
    if wide {
        num_large_counts.set(envelope.counts.len() as i64)?;
    }
    num_datatypes.set(envelope.datatypes.len() as i64)?;
    combiner.set(envelope.combiner)
}

/// Section 5.1.13: types made by large-count constructors are decoded by large-count functions only.
fn envelope_for(datatype: &Datatype, wide: bool) -> Result<&Envelope> {
    let envelope = datatype.envelope();
    if envelope.is_wide() && !wide {
        fail!(MPI_ERR_TYPE, "the datatype was made with large counts: use the function whose name ends in _c");
    }
    Ok(envelope)
}

/// `MPI_Type_get_contents`.
pub fn type_get_contents(
    datatype: DatatypeHandle,
    max_integers: i64,
    max_addresses: i64,
    max_large_counts: i64,
    max_datatypes: i64,
    integers: Output<c_int>,
    addresses: Output<Aint>,
    large_counts: Output<Count>,
    datatypes: Output<DatatypeHandle>,
    wide: bool,
) -> Result {
    let datatype = resolve(datatype)?;
    let envelope = envelope_for(&datatype, wide)?;
    if envelope.combiner == MPI_COMBINER_NAMED {
        fail!(MPI_ERR_TYPE, "a named predefined datatype has no contents");
    }
    let room = [max_integers, max_addresses, if wide { max_large_counts } else { 0 }, max_datatypes];
    let needed = [envelope.integers.len(), envelope.addresses.len(), envelope.counts.len(), envelope.datatypes.len()];
    if room.iter().zip(needed).any(|(room, needed)| *room < needed as i64) {
        fail!(MPI_ERR_ARG, "there is room for {room:?} values, not for {needed:?}");
    }
    for (index, value) in envelope.integers.iter().enumerate() {
        integers.set_at(index, *value)?;
    }
    for (index, value) in envelope.addresses.iter().enumerate() {
        addresses.set_at(index, *value)?;
    }
    for (index, value) in envelope.counts.iter().enumerate() {
        large_counts.set_at(index, *value)?;
    }
    // Derived types get a new handle each, which the program frees.
    for (index, value) in envelope.datatypes.iter().enumerate() {
        datatypes.set_at(index, register(Arc::clone(value)))?;
    }
    Ok(())
}

/// The attribute functions of datatypes, bound in module `attr`.
pub(super) mod attributes {
    use super::*;

    /// `MPI_Type_get_attr`.
    pub fn get(datatype: DatatypeHandle, keyval: c_int) -> Result<Option<usize>> {
        resolve(datatype)?.attributes.get(keyval, ObjectKind::Datatype)
    }

    /// `MPI_Type_set_attr`.
    pub fn set(datatype: DatatypeHandle, keyval: c_int, value: *mut c_void) -> Result {
        let value = value.expose_provenance();
        resolve(datatype)?.attributes.set(keyval, ObjectKind::Datatype, datatype.0, value)
    }

    /// `MPI_Type_delete_attr`.
    pub fn delete(datatype: DatatypeHandle, keyval: c_int) -> Result {
        resolve(datatype)?.attributes.delete(keyval, ObjectKind::Datatype, datatype.0)
    }
}
