//! Rust features: threads, channels, locks, thread-locals with destructors, caught panics.
//!
//!   cloner-test-crates STEPS

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, RwLock};
use std::thread;

thread_local! {
    static COUNTS: RefCell<BTreeMap<u64, u64>> = const { RefCell::new(BTreeMap::new()) };
}

fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^ x >> 27
}

fn count(me: u64, steps: u64) -> u64 {
    let mut value = me;
    for _ in 0..steps {
        value = mix(value);
        COUNTS.with_borrow_mut(|counts| *counts.entry(value % 512).or_default() += value >> 40);
    }
    COUNTS.with_borrow(|counts| counts.iter().fold(value, |sum, (key, count)| mix(sum ^ key ^ count)))
}

fn main() {
    let steps: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1000);
    std::panic::set_hook(Box::new(|_| {}));
    println!("running");
    std::io::stdout().flush().unwrap();
    let counters: Vec<_> = (0..3).map(|me| thread::spawn(move || count(me, steps))).collect();
    let (send, receive) = channel::<u64>();
    let sum = Arc::new(RwLock::new(0_u64));
    let adder = thread::spawn({
        let sum = sum.clone();
        move || {
            for value in receive {
                let before = *sum.read().unwrap();
                *sum.write().unwrap() = mix(before ^ value);
            }
        }
    });
    let turn = Arc::new((Mutex::new(0_u64), Condvar::new()));
    let players: Vec<_> = (0..2)
        .map(|side| {
            let turn = turn.clone();
            thread::spawn(move || {
                for _ in 0..steps / 100 {
                    let mut now = turn.1.wait_while(turn.0.lock().unwrap(), |now| *now % 2 != side).unwrap();
                    *now += 1;
                    turn.1.notify_all();
                }
            })
        })
        .collect();
    let mut caught = 0;
    for step in 0..steps / 100 {
        send.send(step).unwrap();
        caught += u32::from(thread::spawn(move || assert!(step % 3 != 0)).join().is_err());
    }
    drop(send);
    adder.join().unwrap();
    players.into_iter().for_each(|player| player.join().unwrap());
    let counted: Vec<u64> = counters.into_iter().map(|counter| counter.join().unwrap()).collect();
    // The source waits for its input to end; the copy's input is empty.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    let (sum, turn) = (*sum.read().unwrap(), *turn.0.lock().unwrap());
    println!("{counted:x?} {sum:x} {caught} {turn}\ndone");
}
