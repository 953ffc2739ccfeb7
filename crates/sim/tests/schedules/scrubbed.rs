//! A scrub that mends walks while a file is rewritten and commits are made: what is freed, written anew or being written is never called bad, and the scrub
//! overwrites nothing.

use std::num::NonZero;
use std::sync::{Arc, OnceLock};

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::sync::shuttle::thread;
use creamery_base::{DevId, TreeId, Wait};
use creamery_fs::{Filesystem, NewInode};
use creamery_maint::scrub::{Counts, Finding, Scrub, Sink, Step};
use creamery_sim::{Image, MadeBy, SimDevice, fresh_image};

use crate::{explore_some, open};

const FILE: &[u8] = b"file";
const DATA: usize = 12 << 10;
/// How often the file is rewritten: what the first time frees is written to by a later one.
const TIMES: u8 = 3;
const DEVICE: DevId = DevId::new(1);
/// Bytes of a step: each is one batch.
const STEP: u64 = 1;
/// Schedules of each sort: an execution makes several commits.
const SCHEDULES: usize = 200;

/// A filesystem with one file.
fn image() -> &'static Image {
    static IMAGE: OnceLock<Image> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let device = Arc::new(SimDevice::new(fresh_image(&MadeBy::default()).expect("an image")));
        let fs = open(&device);
        let top = fs.root(TreeId::FS).expect("the top level is there");
        fs.create(top, FILE, &NewInode::file(0o644)).expect("made");
        write(&fs, 0);
        drop(fs);
        let mut image = device.image();
        image.freeze();
        image
    })
}

/// Rewrites the file, and commits.
fn write(fs: &Filesystem, content: u8) {
    let top = fs.root(TreeId::FS).expect("the top level is there");
    let file = fs.lookup(top, FILE, Wait::Yes).expect("it is there");
    let opened = fs.open_file(file).expect("it is there");
    opened.write_at(0, &[content; DATA]).expect("room");
    fs.close(opened);
    fs.sync().expect("nothing was aborted");
}

/// Keeps what is bad.
#[derive(Default)]
struct ScrubbedFindings(RankedMutex<Vec<String>, { rank::LEAF }>);

impl Sink for ScrubbedFindings {
    fn found(&self, finding: &Finding) {
        self.0.lock().push(format!("{finding:?}"));
    }

    fn goes_on(&self, _: DevId, _: &Counts) -> bool {
        true
    }
}

/// One execution.
fn execute() {
    let device = Arc::new(SimDevice::new(image().clone()));
    let fs = open(&device);
    let beside = {
        let fs = Arc::clone(&fs);
        thread::spawn(move || (1..=TIMES).for_each(|content| write(&fs, content)))
    };
    let (engine, heard) = (fs.engine(), ScrubbedFindings::default());
    let mender = engine.volume().mender().expect("it is open for writing");
    let scrub = Scrub::mending(engine, mender).beside_commits().on_threads(NonZero::<usize>::MIN);
    let mut scrubbed = scrub.begin(DEVICE, &heard).expect("no damage");
    while scrub.step(&mut scrubbed, STEP, &heard).expect("no damage") == Step::More {}
    assert_eq!(*heard.0.lock(), Vec::<String>::new());
    let counts = scrubbed.counts();
    assert_eq!((counts.errors(), counts.corrected_errors), (0, 0), "{counts:?}");
    assert!(!mender.has_rewritten(DEVICE), "nothing is overwritten");
    assert!(counts.tree_bytes_scrubbed > 0 && counts.data_bytes_scrubbed > 0, "{counts:?}");
    beside.join().expect("it ends well");
}

#[test]
fn a_scrub_beside_a_file_that_is_rewritten_finds_nothing_bad() {
    explore_some("rewritten beside a scrub", SCHEDULES, execute);
}
