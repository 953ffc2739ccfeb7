//! How long creates take while somebody overwrites a file of the same leaf in place, and his look for checksums takes 50 ms:
//! `creates_beside_nocow let-go|kept`. Prints the count, and the median, the 99th of a hundred and the worst in seconds.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use creamery_base::{InodeId, TreeId};
use creamery_device::BlockDevice;
use creamery_fs::{Filesystem, FsOptions, InodeFlags, NewInode, SetAttributes};
use creamery_sim::{MadeBy, SimDevice, fresh_image};
use creamery_txn::{Engine, Options};
use creamery_volume::{Mode, Volume};

const DELAY: Duration = Duration::from_millis(50);
const TIME: Duration = Duration::from_secs(5);
/// One create is due in each of these, whether the one before has ended or not.
const PERIOD: Duration = Duration::from_millis(2);
const SECTORS: u64 = 16;

fn main() -> Result<()> {
    let nocow_keeps_leaf = match std::env::args().nth(1).as_deref() {
        Some("let-go") => false,
        Some("kept") => true,
        _ => bail!("creates_beside_nocow let-go|kept"),
    };
    let device: Arc<dyn BlockDevice> = Arc::new(SimDevice::new(fresh_image(&MadeBy::default())?));
    let engine = Engine::open(Volume::open(vec![device], Mode::ReadWrite)?, Options::default())?;
    let options = FsOptions { delayed_bytes: 0, nocow_keeps_leaf, ..FsOptions::default() };
    let fs = Filesystem::open(engine, options)?;
    let root = fs.root(TreeId::FS)?;
    let file = fs.create(root, b"file", &NewInode::file(0o600))?.id;
    let flags = Some(InodeFlags::NODATACOW);
    fs.set_attributes(file, &SetAttributes { flags, ..SetAttributes::default() })?;
    overwrite(&fs, file, || false)?;
    fs.sync()?;
    fs.engine().before_csum_look_ups(|| std::thread::sleep(DELAY));
    let over = AtomicBool::new(false);
    let took = std::thread::scope(|scope| {
        let writer = scope.spawn(|| overwrite(&fs, file, || !over.load(Ordering::Relaxed)));
        let took = create(&fs, root);
        over.store(true, Ordering::Relaxed);
        writer.join().expect("it does not panic")?;
        took
    })?;
    let looks = fs.statistics().nocow.written;
    ensure!(looks > 10, "{looks} looks for checksums are no test");
    let at = |thousandths: usize| took[(took.len() * thousandths / 1000).min(took.len() - 1)].as_secs_f64();
    println!("{} {} {} {}", took.len(), at(500), at(990), at(1000));
    Ok(())
}

/// Writes the sectors of a file one after the other, at least once each.
fn overwrite(fs: &Filesystem, file: InodeId, goes_on: impl Fn() -> bool) -> Result<()> {
    let open = fs.open_file(file)?;
    for number in 0.. {
        if number >= SECTORS && !goes_on() {
            break;
        }
        open.write_at(number % SECTORS * 4096, &[number as u8; 4096])?;
    }
    fs.close(open);
    Ok(())
}

/// Makes a file and removes it, again and again, so that all stays in one leaf. How long after it was due each create ended, in order.
fn create(fs: &Filesystem, dir: InodeId) -> Result<Vec<Duration>> {
    let (mut due, mut took) = (Instant::now(), Vec::new());
    let end = due + TIME;
    while due < end {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        fs.create(dir, b"new", &NewInode::file(0o600))?;
        took.push(due.elapsed());
        fs.unlink(dir, b"new")?;
        due += PERIOD;
    }
    took.sort_unstable();
    took.first().context("no create ended")?;
    Ok(took)
}
