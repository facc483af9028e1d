//! Graph and distributed graph topologies (MPI-5.0 §8.5.3 to §8.5.5). Members keep their ranks: no better order is
//! known here.

use redrt_abi::error::{Error, Result};
use redrt_abi::fail;
use redrt_abi::handle::{CommHandle, InfoHandle};
use redrt_abi::{Input, MPI_ERR_ARG, MPI_ERR_RANK, MPI_ERR_TOPOLOGY, MPI_UNDEFINED, MPI_UNWEIGHTED, Output};
use redrt_comm::coll::gather;
use redrt_comm::comm::topology::{Edges, Graph, Topology};
use redrt_comm::comm::{self, Comm, handle_of};
use redrt_comm::objects::info;
use redrt_engine::tasks::block_on;
use redrt_transport::memory::Scratch;
use std::ffi::c_int;

fn ranks(comm: &Comm, ranks: &[c_int]) -> Result<Vec<usize>> {
    ranks.iter().map(|rank| comm.member(*rank).map(|_| *rank as usize)).collect()
}

fn make_graph(parent: &Comm, nnodes: c_int, index: Input<c_int>, edges: Input<c_int>) -> Result<Graph> {
    if nnodes < 0 || nnodes as usize > parent.size() {
        fail!(MPI_ERR_ARG, "a graph of {nnodes} nodes on the {} members of {}", parent.size(), parent.label());
    }
    let index = index.slice(nnodes)?;
    if !index.is_sorted() || index.first().is_some_and(|first| *first < 0) {
        fail!(MPI_ERR_ARG, "the ends of the nodes' edges do not rise: {index:?}");
    }
    let edges = edges.slice(index.last().copied().unwrap_or(0))?;
    if let Some(stranger) = edges.iter().find(|rank| !(0..nnodes).contains(*rank)) {
        fail!(MPI_ERR_RANK, "an edge to {stranger} in a graph of {nnodes} nodes");
    }
    let plain = |numbers: &[c_int]| numbers.iter().map(|number| *number as usize).collect();
    Ok(Graph { index: plain(index), edges: plain(edges) })
}

/// `MPI_Graph_create`.
pub fn graph_create(
    comm_old: CommHandle,
    nnodes: c_int,
    index: Input<c_int>,
    edges: Input<c_int>,
    _reorder: c_int,
    comm_graph: Output<CommHandle>,
) -> Result {
    let parent = comm::resolve(comm_old)?;
    let graph = make_graph(&parent, nnodes, index, edges)?;
    let members = parent.members[..nnodes as usize].to_vec();
    comm_graph.set(handle_of(parent.derive(&members, 0, Some(Topology::Graph(graph)))?))
}

/// `MPI_Graph_map`.
pub fn graph_map(
    comm: CommHandle,
    nnodes: c_int,
    index: Input<c_int>,
    edges: Input<c_int>,
    newrank: Output<c_int>,
) -> Result {
    let comm = comm::resolve(comm)?;
    make_graph(&comm, nnodes, index, edges)?;
    newrank.set(if (comm.rank as c_int) < nnodes { comm.rank as c_int } else { MPI_UNDEFINED })
}

fn graph(comm: &Comm) -> Result<&Graph> {
    match &comm.topology {
        Some(Topology::Graph(graph)) => Ok(graph),
        _ => Err(Error::new(MPI_ERR_TOPOLOGY, format!("{} has no graph topology", comm.label()))),
    }
}

fn distributed(comm: &Comm) -> Result<&Edges> {
    match &comm.topology {
        Some(Topology::Distributed(edges)) => Ok(edges),
        _ => Err(Error::new(MPI_ERR_TOPOLOGY, format!("{} has no distributed graph topology", comm.label()))),
    }
}

/// Stores as many numbers as fit.
fn store(numbers: &[usize], room: c_int, place: Output<c_int>) -> Result {
    for (at, number) in numbers.iter().enumerate().take(room.max(0) as usize) {
        place.set_at(at, *number as c_int)?;
    }
    Ok(())
}

/// `MPI_Graphdims_get`.
pub fn graphdims_get(comm: CommHandle, nnodes: Output<c_int>, nedges: Output<c_int>) -> Result {
    let comm = comm::resolve(comm)?;
    let graph = graph(&comm)?;
    nnodes.set(graph.index.len() as c_int)?;
    nedges.set(graph.edges.len() as c_int)
}

/// `MPI_Graph_get`.
pub fn graph_get(
    comm: CommHandle,
    maxindex: c_int,
    maxedges: c_int,
    index: Output<c_int>,
    edges: Output<c_int>,
) -> Result {
    let comm = comm::resolve(comm)?;
    let graph = graph(&comm)?;
    store(&graph.index, maxindex, index)?;
    store(&graph.edges, maxedges, edges)
}

/// `MPI_Graph_neighbors_count`.
pub fn graph_neighbors_count(comm: CommHandle, rank: c_int, nneighbors: Output<c_int>) -> Result {
    let comm = comm::resolve(comm)?;
    let graph = graph(&comm)?;
    comm.member(rank)?;
    nneighbors.set(graph.neighbors(rank as usize).len() as c_int)
}

/// `MPI_Graph_neighbors`.
pub fn graph_neighbors(comm: CommHandle, rank: c_int, maxneighbors: c_int, neighbors: Output<c_int>) -> Result {
    let comm = comm::resolve(comm)?;
    let graph = graph(&comm)?;
    comm.member(rank)?;
    store(graph.neighbors(rank as usize), maxneighbors, neighbors)
}

/// Weights of `count` edges; `None` for `MPI_UNWEIGHTED`.
fn weights(weights: Input<c_int>, count: usize) -> Result<Option<Vec<i32>>> {
    if std::ptr::eq(weights.as_ptr(), MPI_UNWEIGHTED) {
        return Ok(None);
    }
    if count == 0 {
        // MPI_WEIGHTS_EMPTY, or any address: no element is read.
        return Ok(Some(Vec::new()));
    }
    let weights = weights.slice(count)?;
    if let Some(weight) = weights.iter().find(|weight| **weight < 0) {
        fail!(MPI_ERR_ARG, "a weight of {weight}");
    }
    Ok(Some(weights.to_vec()))
}

/// `MPI_Dist_graph_create_adjacent`.
pub fn dist_graph_create_adjacent(
    comm_old: CommHandle,
    indegree: c_int,
    sources: Input<c_int>,
    sourceweights: Input<c_int>,
    outdegree: c_int,
    destinations: Input<c_int>,
    destweights: Input<c_int>,
    info: InfoHandle,
    _reorder: c_int,
    comm_dist_graph: Output<CommHandle>,
) -> Result {
    let parent = comm::resolve(comm_old)?;
    info::resolve_hints(info)?;
    let sources = ranks(&parent, sources.slice(indegree)?)?;
    let destinations = ranks(&parent, destinations.slice(outdegree)?)?;
    let edges = Edges {
        source_weights: weights(sourceweights, sources.len())?,
        destination_weights: weights(destweights, destinations.len())?,
        sources,
        destinations,
    };
    make_distributed(&parent, edges, comm_dist_graph)
}

fn make_distributed(parent: &Comm, edges: Edges, comm: Output<CommHandle>) -> Result {
    comm.set(handle_of(parent.derive(&parent.members, 0, Some(Topology::Distributed(edges)))?))
}

/// An edge in messages between members: source, destination, weight, and 1 if the edge has a weight.
type Edge = [i32; 4];

/// Gathers the edges that all members have named, in the order of members.
fn gather_edges(parent: &Comm, own: &[Edge]) -> Result<Vec<Edge>> {
    let gathered = |mine: &[u8], lengths: &[usize]| -> Result<Vec<u8>> {
        let mut scratch = Scratch::new(lengths.iter().sum());
        let all = scratch.region();
        let mut at = 0;
        let pieces: Vec<_> = lengths
            .iter()
            .map(|length| {
                at += length;
                all.part(at - length, *length)
            })
            .collect();
        pieces[parent.rank as usize].with_bytes_mut(|bytes| bytes.copy_from_slice(mine));
        block_on(gather::allgather(parent.peers(), None, pieces))?;
        Ok(all.with_bytes(<[u8]>::to_vec))
    };
    const EDGE_BYTES: usize = size_of::<Edge>();
    let counts = gathered(&(own.len() as u64).to_ne_bytes(), &vec![8; parent.size()])?;
    let counts = counts.chunks_exact(8).map(|bytes| u64::from_ne_bytes(bytes.try_into().expect("8 bytes")));
    let lengths: Vec<_> = counts.map(|count| count as usize * EDGE_BYTES).collect();
    let bytes: Vec<u8> = own.iter().flatten().flat_map(|number| number.to_ne_bytes()).collect();
    let all = gathered(&bytes, &lengths)?;
    let numbers = all.chunks_exact(4).map(|bytes| i32::from_ne_bytes(bytes.try_into().expect("4 bytes")));
    let numbers: Vec<_> = numbers.collect();
    Ok(numbers.chunks_exact(4).map(|edge| edge.try_into().expect("4 numbers")).collect())
}

/// `MPI_Dist_graph_create`.
pub fn dist_graph_create(
    comm_old: CommHandle,
    n: c_int,
    sources: Input<c_int>,
    degrees: Input<c_int>,
    destinations: Input<c_int>,
    weights_of_edges: Input<c_int>,
    info: InfoHandle,
    _reorder: c_int,
    comm_dist_graph: Output<CommHandle>,
) -> Result {
    let parent = comm::resolve(comm_old)?;
    info::resolve_hints(info)?;
    let (sources, degrees) = (ranks(&parent, sources.slice(n)?)?, degrees.slice(n)?);
    if let Some(degree) = degrees.iter().find(|degree| **degree < 0) {
        fail!(MPI_ERR_ARG, "a node with {degree} edges");
    }
    let from = sources.iter().zip(degrees).flat_map(|(source, degree)| vec![*source; *degree as usize]);
    let from: Vec<_> = from.collect();
    let to = ranks(&parent, destinations.slice(from.len())?)?;
    let own_weights = weights(weights_of_edges, from.len())?;
    let weight = |at: usize| own_weights.as_ref().map_or(1, |weights| weights[at]);
    let is_weighted = i32::from(own_weights.is_some());
    let own: Vec<Edge> = (0..from.len()).map(|at| [from[at] as i32, to[at] as i32, weight(at), is_weighted]).collect();
    let all = gather_edges(&parent, &own)?;
    let me = parent.rank as i32;
    // A graph is weighted or unweighted as a whole; a member without edges follows the others.
    let weighted = all.iter().any(|edge| edge[3] != 0) || (all.is_empty() && own_weights.is_some());
    let ends = |mine: usize, other: usize| -> (Vec<usize>, Option<Vec<i32>>) {
        let edges = || all.iter().filter(move |edge| edge[mine] == me);
        let weights = weighted.then(|| edges().map(|edge| edge[2]).collect());
        (edges().map(|edge| edge[other] as usize).collect(), weights)
    };
    let (sources, source_weights) = ends(1, 0);
    let (destinations, destination_weights) = ends(0, 1);
    make_distributed(&parent, Edges { sources, source_weights, destinations, destination_weights }, comm_dist_graph)
}

/// `MPI_Dist_graph_neighbors_count`.
pub fn dist_graph_neighbors_count(
    comm: CommHandle,
    indegree: Output<c_int>,
    outdegree: Output<c_int>,
    weighted: Output<c_int>,
) -> Result {
    let comm = comm::resolve(comm)?;
    let edges = distributed(&comm)?;
    indegree.set(edges.sources.len() as c_int)?;
    outdegree.set(edges.destinations.len() as c_int)?;
    weighted.set(c_int::from(edges.source_weights.is_some() || edges.destination_weights.is_some()))
}

/// `MPI_Dist_graph_neighbors`.
pub fn dist_graph_neighbors(
    comm: CommHandle,
    maxindegree: c_int,
    sources: Output<c_int>,
    sourceweights: Output<c_int>,
    maxoutdegree: c_int,
    destinations: Output<c_int>,
    destweights: Output<c_int>,
) -> Result {
    let comm = comm::resolve(comm)?;
    let edges = distributed(&comm)?;
    let store_weights = |weights: &Option<Vec<i32>>, room: c_int, place: Output<c_int>| -> Result {
        let Some(weights) = weights.as_ref().filter(|_| !std::ptr::eq(place.as_ptr(), MPI_UNWEIGHTED)) else {
            return Ok(());
        };
        for (at, weight) in weights.iter().enumerate().take(room.max(0) as usize) {
            place.set_at(at, *weight)?;
        }
        Ok(())
    };
    store(&edges.sources, maxindegree, sources)?;
    store(&edges.destinations, maxoutdegree, destinations)?;
    store_weights(&edges.source_weights, maxindegree, sourceweights)?;
    store_weights(&edges.destination_weights, maxoutdegree, destweights)
}
