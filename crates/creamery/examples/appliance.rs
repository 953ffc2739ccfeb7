//! A program that keeps its state in its own Btrfs, inside a file with other content: no root, no mount, no
//! helper, one dependency.
//!
//! `appliance FILE update NAME TEXT` sets a value, and keeps the old state as a snapshot; `appliance FILE show` prints all values;
//! `appliance FILE undo` goes back. The file begins with a header of the appliance's own.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use creamery::device::StreamDevice;
use creamery::{Filesystem, Image};

const HEADER: &[u8] = b"APPLIANCE 1\n";
/// Offset of the filesystem in the file, and its length, bytes.
const BEGIN: u64 = 1 << 20;
const LEN: u64 = 128 << 20;

/// A file from an offset on: everything that reads, writes and seeks is a device.
struct Inside(File);

impl Read for Inside {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Inside {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    /// Makes the data that the filesystem flushes durable on the disk.
    fn flush(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }
}

impl Seek for Inside {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let to = match to {
            SeekFrom::Start(at) => SeekFrom::Start(at + BEGIN),
            other => other,
        };
        Ok(self.0.seek(to)?.saturating_sub(BEGIN))
    }
}

/// Opens the store, or makes it if it does not exist.
fn open(path: &Path) -> io::Result<Filesystem> {
    let is_new = !path.exists();
    let mut file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
    if is_new {
        file.write_all(HEADER)?;
        file.set_len(BEGIN + LEN)?;
    }
    let device =
        || -> io::Result<_> { Ok(Arc::new(StreamDevice::new(Inside(file.try_clone()?), "the store")?)) };
    if is_new {
        Image::make_on(device()?).label("appliance").run()?;
    }
    let fs = Image::options().write().open_device(device()?)?;
    if is_new {
        fs.subvolumes().create("/state")?;
    }
    Ok(fs)
}

fn update(fs: &Filesystem, name: &str, text: &str) -> io::Result<()> {
    if fs.exists("/before") {
        fs.subvolumes().delete("/before")?;
    }
    fs.subvolumes().snapshot("/state", "/before").read_only().run()?;
    Ok(fs.write(Path::new("/state").join(name), text)?)
}

fn undo(fs: &Filesystem) -> io::Result<()> {
    fs.subvolumes().delete("/state")?;
    Ok(fs.subvolumes().snapshot("/before", "/state").run()?)
}

fn show(fs: &Filesystem) -> io::Result<()> {
    for entry in fs.read_dir("/state")? {
        let entry = entry?;
        println!("{}={}", entry.file_name().to_string_lossy(), fs.read_to_string(entry.path())?);
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (file, action) = words.split_first().ok_or_else(|| io::Error::other("which file?"))?;
    let fs = open(Path::new(file))?;
    match action {
        ["update", name, text] => update(&fs, name, text)?,
        ["undo"] => undo(&fs)?,
        ["show"] => show(&fs)?,
        _ => return Err(io::Error::other("update NAME TEXT, undo, or show")),
    }
    Ok(fs.close()?)
}
