//! Cartesian topologies (MPI-5.0 §8.5): arithmetic on dimensions; no communication.

/// The virtual topology of a communicator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Topology {
    /// A grid.
    Cartesian(Grid),
}

/// Extents and periodicity of a Cartesian grid. Rank order is row-major (the last dimension varies fastest).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grid {
    /// Extent of each dimension.
    pub dimensions: Vec<usize>,
    /// Whether each dimension wraps around.
    pub periodic: Vec<bool>,
}

impl Grid {
    /// Number of positions.
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

    /// The rank at a position; coordinates of periodic dimensions wrap around, `None` when another is out of range.
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

    /// The neighbours of `rank` `distance` steps before and after it along `dimension`; `None` beyond an edge.
    pub fn shift(&self, rank: usize, dimension: usize, distance: i64) -> (Option<usize>, Option<usize>) {
        let at = |offset: i64| {
            let mut coordinates: Vec<_> = self.coordinates(rank).into_iter().map(|c| c as i64).collect();
            coordinates[dimension] += offset;
            self.rank(&coordinates)
        };
        (at(-distance), at(distance))
    }

    /// The grid of the kept dimensions, and which of the sub-grids a rank is in.
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
    fn sub_grids_keep_dimensions() {
        let (sub, number) = grid().sub(4, &[false, true]);
        assert_eq!((sub.dimensions, sub.periodic, number), (vec![3], vec![true], 1));
    }
}
