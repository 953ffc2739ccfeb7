//! Tests of a mount's scrub without the transport.

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use creamery_base::TreeId;
use creamery_device::{Access, BlockDevice, FileDevice};
use creamery_fs::{Filesystem, FsOptions, NewInode};
use creamery_maint::scrub::{DeviceStatus, Ended, Findings, StatusFile};
use creamery_txn::{BackgroundWork, Due, Engine, Options};
use creamery_volume::{Mode, Volume};

use super::{OrderKind, ScrubOrder, Scrubbing};
use crate::access_times::Watched;

const SECTOR: usize = 4096;

/// A mount without a kernel.
pub(super) struct Mount {
    device: Arc<FileDevice>,
    pub(super) fs: Arc<Filesystem>,
    pub(super) scrubbing: Scrubbing,
    state: tempfile::TempDir,
}

impl Mount {
    /// A mount on a filesystem of mkfs.btrfs; `None`, with a message, if there is no mkfs.btrfs.
    pub(super) fn new() -> Option<Self> {
        let state = tempfile::tempdir().unwrap();
        let image = state.path().join("disk.img");
        File::create(&image).unwrap().set_len(256 << 20).unwrap();
        let made =
            Command::new("mkfs.btrfs").args(["-q", "-d", "single", "-m", "single"]).arg(&image).output();
        match made {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                println!("skipped: this host has no mkfs.btrfs");
                return None;
            }
            made => assert!(made.unwrap().status.success()),
        }
        let device = Arc::new(FileDevice::open(&image, Access::ReadWrite).unwrap());
        let volume =
            Volume::open(vec![Arc::clone(&device) as Arc<dyn BlockDevice>], Mode::ReadWrite).unwrap();
        let engine = Engine::open(volume, Options::default()).unwrap();
        let fs = Filesystem::open(engine, FsOptions::default()).unwrap();
        let row = Arc::<Watched>::default();
        let kept = (state.path().join("state"), Path::new("/nowhere").to_owned());
        let scrubbing = Scrubbing::new(&fs, &row, Some(kept));
        Some(Self { device, fs, scrubbing, state })
    }

    /// Makes a file with a sector of these bytes and `names` names, and puts rot into the sector.
    fn rot(&self, byte: u8, names: usize) {
        let top = self.fs.root(TreeId::FS).unwrap();
        let file = self.fs.create(top, format!("{byte}-0").as_bytes(), &NewInode::file(0o644)).unwrap().id;
        self.fs.open_file(file).unwrap().write_at(0, &[byte; SECTOR]).unwrap();
        for number in 1..names {
            self.fs.link(file, top, format!("{byte}-{number}").as_bytes()).unwrap();
        }
        self.fs.make_durable().unwrap();
        let mut sector = [0; SECTOR];
        let places = (0..self.device.len() / SECTOR as u64).map(|number| number * SECTOR as u64);
        let mut is_its = |at: &u64| {
            self.device.read_at(*at, &mut sector).unwrap();
            sector == [byte; SECTOR]
        };
        let at = places.into_iter().find(|at| is_its(at)).unwrap();
        self.device.write_at(at, &[!byte; SECTOR]).unwrap();
    }

    fn generation(&self) -> u64 {
        self.fs.engine().volume().superblock().generation().get()
    }

    pub(super) fn start(&self, reads_only: bool) {
        self.scrubbing
            .start(&ScrubOrder { wish: OrderKind::Start, reads_only, ..ScrubOrder::default() })
            .unwrap();
    }

    pub(super) fn to_the_end(&self) {
        while self.scrubbing.due() != Due::Never {
            self.scrubbing.step().unwrap();
        }
    }

    /// The stored status and findings.
    pub(super) fn kept(&self) -> (DeviceStatus, Findings) {
        let file = StatusFile::of_engine(&self.state.path().join("state"), self.fs.engine()).unwrap();
        (file.read().unwrap().unwrap().devices.remove(0), file.read_findings().unwrap())
    }
}

#[test]
fn an_unmount_leaves_status_and_findings_of_one_moment() {
    let Some(mount) = Mount::new() else { return };
    mount.device.write_at(64 << 20, &[0; SECTOR]).unwrap();
    mount.start(false);
    mount.scrubbing.stop();
    let (status, findings) = mount.kept();
    assert_eq!(status.ended, None);
    let counts = status.counts;
    assert_eq!((counts.super_errors, counts.corrected_errors, counts.unverified_errors), (1, 1, 0));
    assert_eq!((findings.left().len(), findings.len()), (0, 1), "{}", findings.to_text());
}

#[test]
fn files_are_named_by_the_last_commit_and_a_few_of_each_finding() {
    let Some(mount) = Mount::new() else { return };
    mount.rot(7, 20);
    mount.rot(8, 1);
    let top = mount.fs.root(TreeId::FS).unwrap();
    mount.fs.create(top, b"not-committed", &NewInode::file(0o644)).unwrap();
    let before = mount.generation();
    mount.start(true);
    mount.to_the_end();
    assert_eq!(mount.generation(), before, "a scrub that only reads commits nothing");
    let (status, findings) = mount.kept();
    assert_eq!((status.ended, status.counts.csum_errors, findings.left().len()), (Some(Ended::Whole), 2, 2));
    let text = findings.to_text();
    let files = |of: &str| text.lines().filter(|line| line.starts_with(&format!("  /{of}-"))).count();
    assert_eq!((files("7"), files("8")), (8, 1), "{text}");
    // The counters of the device are committed once, and nothing else is.
    mount.start(false);
    mount.to_the_end();
    assert_eq!(mount.generation(), before + 1);
}
