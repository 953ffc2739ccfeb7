//! How fast this machine makes checksums: `cargo run --release -p creamery-codec --example checksums`.
//!
//! Each row is the median of rounds in which all checksums take turns. The data is in the processor's cache.

use std::hint::black_box;
use std::time::Instant;

use creamery_codec::{ChecksumType, checksum};

const ROUNDS: usize = 21;
/// Bytes of a round.
const ROUND: usize = 32 << 20;

/// Returns the rate in 10^9 bytes per second.
fn rate(data: &[u8], sum: &dyn Fn(&[u8])) -> f64 {
    let times = (ROUND / data.len()).max(1);
    let begun = Instant::now();
    (0..times).for_each(|_| sum(black_box(data)));
    (times * data.len()) as f64 / begun.elapsed().as_secs_f64() / 1e9
}

fn main() {
    type Sum<'a> = (&'a str, Box<dyn Fn(&[u8])>);
    let ours = |kind: ChecksumType| {
        move |data: &[u8]| {
            black_box(checksum(kind, data));
        }
    };
    let ways: [Sum<'_>; 6] = [
        ("crc32c", Box::new(ours(ChecksumType::Crc32c))),
        (
            "  by three chains",
            Box::new(|data| {
                black_box(crc32c::crc32c(data));
            }),
        ),
        (
            "  by vectors",
            Box::new(|data| {
                black_box(crc_fast::crc32_iscsi(data));
            }),
        ),
        ("xxhash64", Box::new(ours(ChecksumType::Xxhash64))),
        ("sha256", Box::new(ours(ChecksumType::Sha256))),
        ("blake2b", Box::new(ours(ChecksumType::Blake2b))),
    ];
    println!("{:<20} {:>8} {:>8} {:>8}  GB/s", "", "4096", "16384", "65536");
    let blocks: Vec<Vec<u8>> = [4096, 16384, 65536]
        .map(|len| (0..len as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect())
        .to_vec();
    let mut rates = vec![vec![Vec::new(); blocks.len()]; ways.len()];
    for _ in 0..ROUNDS {
        for (way, (_, sum)) in ways.iter().enumerate() {
            for (size, block) in blocks.iter().enumerate() {
                rates[way][size].push(rate(block, sum));
            }
        }
    }
    for ((name, _), rates) in ways.iter().zip(&mut rates) {
        print!("{name:<20}");
        for rates in rates {
            rates.sort_by(f64::total_cmp);
            print!(" {:>8.2}", rates[ROUNDS / 2]);
        }
        println!();
    }
}
