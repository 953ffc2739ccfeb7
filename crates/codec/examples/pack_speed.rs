//! How fast one core packs and unpacks: `pack_speed FILE...`, each in chunks of 128 KiB, or of `CHUNK` bytes.

use std::time::{Duration, Instant};

use creamery_codec::{
    CompressionMethod, CompressionType, Packer, looks_compressible, unpack_lzo, unpack_zlib, unpack_zstd,
};

const SECTOR: usize = 4096;
const WORDS: [&str; 9] =
    ["lzo", "zlib:1", "zlib:3", "zlib:9", "zstd:-15", "zstd:-5", "zstd:1", "zstd:3", "zstd:15"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let chunk = std::env::var("CHUNK").map_or(Ok(Packer::DATA_MAX), |text| text.parse())?;
    for path in std::env::args().skip(1) {
        let data = std::fs::read(&path)?;
        let started = Instant::now();
        let worth = data.chunks(chunk).filter(|chunk| looks_compressible(chunk)).count();
        let chunks = data.len().div_ceil(chunk);
        let each = started.elapsed().as_nanos() / chunks.max(1) as u128;
        println!("{path}: {worth} of {chunks} chunks look compressible, {each} ns for each");
        for word in WORDS {
            measure(word.parse()?, &data, chunk)?;
        }
    }
    Ok(())
}

fn measure(method: CompressionMethod, data: &[u8], chunk: usize) -> Result<(), Box<dyn std::error::Error>> {
    let (mut packer, mut packed, mut plain) = (Packer::new(), vec![0; chunk], vec![0; chunk]);
    let (mut packing, mut unpacking) = (Duration::ZERO, Duration::ZERO);
    let (mut on_disk, mut unpacked) = (0, 0);
    for chunk in data.chunks(chunk) {
        let started = Instant::now();
        let room = chunk.len().saturating_sub(SECTOR.min(chunk.len() / 2));
        let made = packer.pack(method, chunk, SECTOR, &mut packed[..room]);
        packing += started.elapsed();
        let Some(made) = made else {
            on_disk += chunk.len();
            continue;
        };
        on_disk += made.next_multiple_of(SECTOR).min(chunk.len());
        let started = Instant::now();
        let out = &mut plain[..chunk.len()];
        unpacked += match method.kind() {
            CompressionType::Zlib => unpack_zlib(&packed[..made], out)?,
            CompressionType::Lzo => unpack_lzo(&packed[..made], SECTOR, out)?,
            CompressionType::Zstd => unpack_zstd(&packed[..made], out)?,
        };
        unpacking += started.elapsed();
        assert!(out == chunk, "{method} gave something else back");
    }
    let speed = |len: usize, time: Duration| len as f64 / time.as_secs_f64().max(1e-9) / 1048576.0;
    println!(
        "  {method:10} packs {:7.1} MiB/s to {:5.1} %, unpacks {:7.1} MiB/s",
        speed(data.len(), packing),
        on_disk as f64 / data.len().max(1) as f64 * 100.0,
        speed(unpacked, unpacking),
    );
    Ok(())
}
