//! A walk through an image that nothing is cached of, on a device that takes its time for each read:
//! `cold_walk seek|list IMAGE PATH MICROS on|off`. `seek` asks a file for data and holes in turn, `list` lists a directory; the last
//! word says whether blocks are read ahead. Prints what was found and how long it took in seconds, then how many blocks were read
//! ahead, how many of these the walk came to, and how many were wasted.
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use creamery_base::{ErrorKind, InodeId, Wait};
use creamery_device::{Access, FileDevice, Hook, Hooked, Request};
use creamery_fs::{Filesystem, FsOptions};
use creamery_txn::{BackgroundThreads, Engine, Options};
use creamery_volume::{Mode, Volume};

const USAGE: &str = "cold_walk seek|list IMAGE NAME MICROS on|off";

/// Each read waits so long, whatever the others do.
struct Slow(Duration);

impl Hook for Slow {
    fn before(&self, request: &Request) -> creamery_base::Result<()> {
        if matches!(request, Request::Read { .. }) {
            std::thread::sleep(self.0);
        }
        Ok(())
    }
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [walk, image, name, micros, ahead] = &words[..] else { bail!(USAGE) };
    let read_ahead = match ahead.as_str() {
        "on" => true,
        "off" => false,
        _ => bail!(USAGE),
    };
    let file = Arc::new(FileDevice::open(image, Access::ReadWrite)?);
    let device = Arc::new(Hooked::new(file, Slow(Duration::from_micros(micros.parse()?))));
    let volume = Volume::open(vec![device], Mode::ReadWrite)?;
    let engine = Engine::open(volume, Options { read_ahead, ..Options::default() })?;
    let fs = Filesystem::open(engine, FsOptions::default())?;
    let threads = fs.engine().start_background(BackgroundThreads::usual());
    let root = fs.root(fs.default_subvolume())?;
    let inode = fs.lookup(root, name.as_bytes(), Wait::Yes)?;
    let before = fs.statistics().block_cache;
    let start = Instant::now();
    let found = match walk.as_str() {
        "seek" => seek(&fs, inode)?,
        "list" => list(&fs, inode)?,
        _ => bail!(USAGE),
    };
    let seconds = start.elapsed().as_secs_f64();
    let cache = fs.statistics().block_cache;
    let issued = cache.read_ahead_issued - before.read_ahead_issued;
    let hit = cache.read_ahead_hit - before.read_ahead_hit;
    println!("{found} {seconds} {issued} {hit} {}", cache.read_ahead_wasted - before.read_ahead_wasted);
    drop(threads);
    fs.engine().volume().close().context("closing the image")
}

/// How many extents a file has between its holes.
fn seek(fs: &Filesystem, file: InodeId) -> Result<u64> {
    let open = fs.open_file(file)?;
    let (mut extents, mut at) = (0, 0);
    loop {
        match open.seek_data(at) {
            Err(error) if error.kind() == ErrorKind::NotFound => break,
            data => at = open.seek_hole(data?)?,
        }
        extents += 1;
    }
    fs.close(open);
    Ok(extents)
}

/// How many names a directory has, without those of itself and its parent.
fn list(fs: &Filesystem, dir: InodeId) -> Result<u64> {
    let mut names = 0;
    fs.read_dir(dir, 0, Wait::Yes, &mut |entry| {
        names += u64::from(entry.name != b"." && entry.name != b"..");
        ControlFlow::Continue(())
    })?;
    Ok(names)
}
