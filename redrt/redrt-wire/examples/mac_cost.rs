//! Cost in one core's time of authenticating data between hosts: `cargo run --release -p redrt-wire --example
//! mac_cost`.
//!
//! Prints, for records of several sizes, MB/s of a MAC alone (keyed BLAKE3) and of encryption with authentication (the
//! cipher of `--secure`). The bytes are in cache, as they are when a socket takes them. docs/security.md has the
//! conclusion.

use redrt_wire::auth;
use redrt_wire::secret::Secret;
use std::hint::black_box;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

const SLICE: Duration = Duration::from_millis(300);
const SLICES: usize = 5;

/// MB/s of the best slice of `work`, which handles `bytes` bytes at each call.
fn rate(bytes: usize, mut work: impl FnMut()) -> f64 {
    let slice = |work: &mut dyn FnMut()| {
        let (begin, mut count) = (Instant::now(), 0_u64);
        while begin.elapsed() < SLICE {
            (0..16).for_each(|_| work());
            count += 16;
        }
        count as f64 * bytes as f64 / begin.elapsed().as_secs_f64() / 1e6
    };
    (0..SLICES).map(|_| slice(&mut work)).fold(0.0, f64::max)
}

fn main() -> std::io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (address, secret) = (listener.local_addr()?, Secret::new([7; 32]).sealing(true));
    let theirs = secret.clone();
    let far =
        std::thread::spawn(move || auth::accept(&mut listener.accept()?.0, &theirs, 0).map(|accepted| accepted.1));
    let mut cipher = auth::connect(&mut TcpStream::connect(address)?, &secret, b"")?.expect("it seals");
    let _far = far.join().expect("no panic")?;
    println!("{:>9}  {:>18}  {:>18}", "bytes", "MAC alone, MB/s", "encrypted, MB/s");
    for bytes in [64, 1 << 10, 8 << 10, 64_000] {
        let (piece, mut sealed) = (vec![0x5a_u8; bytes], Vec::new());
        let mac = rate(bytes, || _ = black_box(blake3::keyed_hash(secret.key(), black_box(&piece))));
        let encrypted = rate(bytes, || {
            sealed.clear();
            cipher.seal(black_box(&piece), &mut sealed);
        });
        println!("{bytes:>9}  {mac:>18.0}  {encrypted:>18.0}");
    }
    Ok(())
}
