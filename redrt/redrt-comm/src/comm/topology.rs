//! Virtual topologies (MPI-5.0 chapter 8): grids, graphs and the neighbours in them. Nothing here communicates.

/// The virtual topology of a communicator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Topology {
    /// A Cartesian grid (`MPI_Cart_create`).
    Cartesian(Grid),
    /// A graph that every member knows.
    Graph(Graph),
    /// A graph of which every member knows its own edges.
    Distributed(Edges),
}

/// A graph in the format of `MPI_Graph_create`: node k has the edges `index[k - 1]..index[k]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Graph {
    /// Ends of the nodes' edges.
    pub index: Vec<usize>,
    /// The neighbours, node by node.
    pub edges: Vec<usize>,
}

impl Graph {
    /// The neighbours of a node.
    pub fn neighbors(&self, node: usize) -> &[usize] {
        let begin = if node == 0 { 0 } else { self.index[node - 1] };
        &self.edges[begin..self.index[node]]
    }
}

/// The edges of one member of a distributed graph.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Edges {
    /// Ranks from which edges lead to this member.
    pub sources: Vec<usize>,
    /// Weights of those edges, if there are any.
    pub source_weights: Option<Vec<i32>>,
    /// Ranks to which edges lead from this member.
    pub destinations: Vec<usize>,
    /// Weights of those edges, if there are any.
    pub destination_weights: Option<Vec<i32>>,
}

/// The neighbours of one member, as neighbourhood collectives see them (§8.6). `None` is `MPI_PROC_NULL`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Neighbors {
    /// Ranks from which it receives, by place in the receive buffer.
    pub sources: Vec<Option<usize>>,
    /// Ranks to which it sends, by place in the send buffer.
    pub destinations: Vec<Option<usize>>,
    /// Places in the receive buffer in the order of posting receives, so that several messages between two members
    /// match their places.
    pub receive_order: Vec<usize>,
}

impl Topology {
    /// The neighbours of `rank`, which is the member whose topology this is.
    pub fn neighbors(&self, rank: usize) -> Neighbors {
        match self {
            Self::Cartesian(grid) => grid.neighbors(rank),
            Self::Graph(graph) => Neighbors::in_order(graph.neighbors(rank), graph.neighbors(rank)),
            Self::Distributed(edges) => Neighbors::in_order(&edges.sources, &edges.destinations),
        }
    }
}

impl Neighbors {
    fn in_order(sources: &[usize], destinations: &[usize]) -> Self {
        let some = |ranks: &[usize]| ranks.iter().copied().map(Some).collect();
        let receive_order = (0..sources.len()).collect();
        Self { sources: some(sources), destinations: some(destinations), receive_order }
    }
}

/// Extents and periodicity of a Cartesian grid. Rank order is row-major (the last dimension varies fastest).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grid {
    /// Extent of each dimension.
    pub dimensions: Vec<usize>,
    /// True for each dimension that wraps around.
    pub periodic: Vec<bool>,
}

impl Grid {
    /// Number of positions, the product of the dimensions.
    pub fn size(&self) -> usize {
        self.dimensions.iter().product()
    }

    /// The position of a rank.
    pub fn coordinates(&self, rank: usize) -> Vec<usize> {
        let mut rest = rank;
        let mut coordinates: Vec<_> = self
            .dimensions
            .iter()
            .rev()
            .map(|extent| {
                let coordinate = rest % extent;
                rest /= extent;
                coordinate
            })
            .collect();
        coordinates.reverse();
        coordinates
    }

    /// The rank at a position. Coordinates of periodic dimensions wrap around; `None` if another one is out of range.
    pub fn rank(&self, coordinates: &[i64]) -> Option<usize> {
        let mut rank = 0;
        for ((extent, periodic), coordinate) in self.dimensions.iter().zip(&self.periodic).zip(coordinates) {
            let extent = *extent as i64;
            let place = if *periodic { coordinate.rem_euclid(extent) } else { *coordinate };
            if !(0..extent).contains(&place) {
                return None;
            }
            rank = rank * extent as usize + place as usize;
        }
        Some(rank)
    }

    /// The ranks `distance` steps before and after `rank` along `dimension`; `None` beyond an edge.
    pub fn shift(&self, rank: usize, dimension: usize, distance: i64) -> (Option<usize>, Option<usize>) {
        let at = |offset: i64| {
            let mut coordinates: Vec<_> = self.coordinates(rank).into_iter().map(|c| c as i64).collect();
            coordinates[dimension] += offset;
            self.rank(&coordinates)
        };
        (at(-distance), at(distance))
    }

    /// For each dimension the neighbour before and the one after. A message to the one before arrives there from the
    /// one after: messages from the one after are received first, which matters if both are the same member.
    fn neighbors(&self, rank: usize) -> Neighbors {
        let pairs = (0..self.dimensions.len()).map(|dimension| self.shift(rank, dimension, 1));
        let places: Vec<_> = pairs.flat_map(|(before, after)| [before, after]).collect();
        let receive_order =
            (0..self.dimensions.len()).flat_map(|dimension| [2 * dimension + 1, 2 * dimension]).collect();
        Neighbors { sources: places.clone(), destinations: places, receive_order }
    }

    /// The grid of the kept dimensions, and the number of the sub-grid that a rank is in.
    pub fn sub(&self, rank: usize, keep: &[bool]) -> (Self, u64) {
        let pick = |wanted: bool| move |(index, _): &(usize, &usize)| keep[*index] == wanted;
        let dimensions = self.dimensions.iter().enumerate().filter(pick(true)).map(|(_, extent)| *extent).collect();
        let periodic =
            self.periodic.iter().zip(keep).filter(|(_, keep)| **keep).map(|(periodic, _)| *periodic).collect();
        let coordinates = self.coordinates(rank);
        let dropped = coordinates.iter().enumerate().filter(pick(false));
        let number = dropped.fold(0, |number, (index, c)| number * self.dimensions[index] as u64 + *c as u64);
        (Self { dimensions, periodic }, number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Grid {
        Grid { dimensions: vec![2, 3], periodic: vec![false, true] }
    }

    #[test]
    fn ranks_and_coordinates_are_inverse() {
        for rank in 0..6 {
            let coordinates: Vec<_> = grid().coordinates(rank).into_iter().map(|c| c as i64).collect();
            assert_eq!(grid().rank(&coordinates), Some(rank));
        }
        assert_eq!(grid().rank(&[0, -1]), Some(2));
        assert_eq!(grid().rank(&[2, 0]), None);
    }

    #[test]
    fn shifts_wrap_or_end() {
        assert_eq!(grid().shift(0, 0, 1), (None, Some(3)));
        assert_eq!(grid().shift(0, 1, 1), (Some(2), Some(1)));
    }

    #[test]
    fn the_neighbours_of_a_grid_are_before_and_after() {
        let neighbors = Topology::Cartesian(grid()).neighbors(0);
        assert_eq!(neighbors.sources, [None, Some(3), Some(2), Some(1)]);
        assert_eq!(neighbors.receive_order, [1, 0, 3, 2]);
    }

    #[test]
    fn the_edges_of_a_graph_go_by_node() {
        let graph = Graph { index: vec![2, 2, 3], edges: vec![1, 2, 0] };
        assert_eq!((graph.neighbors(0), graph.neighbors(1), graph.neighbors(2)), (&[1, 2][..], &[][..], &[0][..]));
    }

    #[test]
    fn sub_grids_keep_dimensions() {
        let (sub, number) = grid().sub(4, &[false, true]);
        assert_eq!((sub.dimensions, sub.periodic, number), (vec![3], vec![true], 1));
    }
}
