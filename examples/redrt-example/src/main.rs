//! Forces in a ring: every rank has particles, a struct with a datatype of its own, and sends them around until all
//! have met all; then the forces are summed and compared. Rank 0 prints what must be the same at every degree.
//!
//! Built with `mpi`, the Rust bindings (rsmpi), by the `mpicc` of an installation; README.md of this directory says
//! how.

use mpi::collective::{CommunicatorCollectives, Root, SystemOperation};
use mpi::traits::{Communicator, Destination, Equivalence, Source};

/// A particle in a plane.
#[derive(Clone, Copy, Default, Equivalence)]
struct Particle {
    position: [f64; 2],
    charge: f64,
    identity: u64,
}

impl Particle {
    /// The one of this number. Positions come from the number alone, so replicas have the same.
    fn new(identity: u64) -> Self {
        let scattered = |seed: u64| {
            let mixed = (identity + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(seed as u32) ^ seed;
            (mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 11) as f64 / (1u64 << 53) as f64
        };
        let charge = if identity.is_multiple_of(2) { 1.0 } else { -1.0 };
        Self { position: [scattered(7), scattered(29)], charge, identity }
    }

    /// The force of `other` on this particle.
    fn force_of(&self, other: &Self) -> [f64; 2] {
        if self.identity == other.identity {
            return [0.0; 2];
        }
        let distance = [self.position[0] - other.position[0], self.position[1] - other.position[1]];
        let square = distance[0] * distance[0] + distance[1] * distance[1] + 1e-3;
        let strength = self.charge * other.charge / (square * square.sqrt());
        [strength * distance[0], strength * distance[1]]
    }
}

fn main() {
    let argument = std::env::args().nth(1);
    let rounds: u64 = argument.map_or(5, |text| text.parse().expect("the argument is a number of rounds"));
    let universe = mpi::initialize().expect("MPI is not initialized yet");
    let world = universe.world();
    let (rank, size) = (world.rank(), world.size());
    let each = 40;
    let own: Vec<_> = (0..each).map(|k| Particle::new((rank as u64) * each + k)).collect();
    let (left, right) = ((rank + size - 1) % size, (rank + 1) % size);
    let mut forces = vec![[0.0; 2]; own.len()];
    for round in 0..rounds {
        let mut guests = own.clone();
        for _ in 0..size {
            for (force, particle) in forces.iter_mut().zip(&own) {
                for guest in &guests {
                    let part = particle.force_of(guest);
                    force[0] += part[0];
                    force[1] += part[1];
                }
            }
            let mut next = vec![Particle::default(); guests.len()];
            mpi::request::scope(|scope| {
                let sending = world.process_at_rank(right).immediate_send(scope, &guests[..]);
                let receiving = world.process_at_rank(left).immediate_receive_into(scope, &mut next[..]);
                receiving.wait();
                sending.wait();
            });
            guests = next;
        }
        assert!(guests.iter().zip(&own).all(|(guest, particle)| guest.identity == particle.identity));
        let sum = forces.iter().fold([0.0; 2], |sum, force| [sum[0] + force[0], sum[1] + force[1]]);
        let strongest = forces.iter().map(|force| force[0].hypot(force[1])).fold(0.0, f64::max);
        let mut total = [0.0_f64; 2];
        let mut strongest_of_all = 0.0;
        world.all_reduce_into(&sum, &mut total, SystemOperation::sum());
        world.all_reduce_into(&strongest, &mut strongest_of_all, SystemOperation::max());
        if rank == 0 {
            println!("round {round} strongest {strongest_of_all:e} rest {:.3e}", total[0].hypot(total[1]));
        }
    }
    let digest = forces
        .iter()
        .flatten()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, part| (hash ^ part.to_bits()).wrapping_mul(0x100_0000_01b3));
    let mut digests = vec![0u64; if rank == 0 { size as usize } else { 0 }];
    let root = world.process_at_rank(0);
    if rank == 0 {
        root.gather_into_root(&digest, &mut digests[..]);
        println!("forces {:016x}", digests.iter().fold(0, |all, one| all ^ one.rotate_left(1)));
    } else {
        root.gather_into(&digest);
    }
}
