//! A device or a participant that fails in every phase of a commit. Every caller gets the reason, no thread waits for ever, and the platter
//! has the last commit or this one, by the table of phases (`commit/phase.rs`).

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use creamery_base::{Error, ErrorKind, FixedEnv, InodeId, ObjectId, Result, Timespec, TreeId, Wait};
use creamery_check::{CheckOptions, NoProgress, check};
use creamery_device::{BlockDevice, Completion, DeviceId, Request};
use creamery_fs::{FileContent, Filesystem, FsOptions, NewInode, OpenFile};
use creamery_mkfs::Profile;
use creamery_sim::{Image, MadeBy, SimDevice, check_image, fresh_image, image_with_files, watched};
use creamery_testkit::{Judge, Judges, Scratch};
use creamery_txn::{CommitParticipant, CommitPhase, Engine, Handle, Options, ReserveItems};
use creamery_volume::{Mode, Volume};

/// One copy of everything, so a block that is not written is lost; and two superblocks.
const MADE_BY: MadeBy = MadeBy {
    len: 128 << 20,
    node_size: 4096,
    data: Profile::Single,
    metadata: Profile::Single,
    mixed: false,
    no_holes: true,
};
const SUPERBLOCKS: [u64; 2] = [64 << 10, 64 << 20];
/// Files that exist before, and the number of them that are removed.
const OLD: u64 = 60;
const REMOVED: u64 = 10;
/// New files.
const NEW: u64 = 40;
/// Enough new files that a commit runs references before it closes the gate.
const MANY: u64 = 800;
/// Bytes of a cache so small that a commit has to read.
const CACHE_BYTES: u64 = 64 << 10;
const THREADS: usize = 64;
const CABLE: &str = "the cable was pulled";

/// The fate of the failing request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Fate {
    /// It does not reach the platter.
    Lost,
    /// It reaches the platter, but the caller gets an error.
    Arrives,
    /// It is lost, and so are all later requests.
    Gone,
}

#[derive(Default)]
struct CommitState {
    /// Requests since the device was armed.
    requests: Vec<String>,
    failing: Option<(usize, Fate)>,
    struck: bool,
    /// Whether the failing request is held first, and whether it is held now.
    holds: bool,
    held: bool,
}

/// A device on which one request fails.
struct Failing {
    below: Arc<SimDevice>,
    state: Mutex<CommitState>,
    changed: Condvar,
}

impl Failing {
    fn new(image: Image) -> Arc<Self> {
        let below = Arc::new(SimDevice::new(image));
        Arc::new(Self { below, state: Mutex::default(), changed: Condvar::new() })
    }

    /// Counts requests from now on, and arms a failure. If it `holds`, the request waits for `let_go`.
    fn arm(&self, failing: Option<(usize, Fate)>, holds: bool) {
        *self.state.lock().expect("not poisoned") = CommitState { failing, holds, ..CommitState::default() };
    }

    fn until_held(&self) {
        let state = self.state.lock().expect("not poisoned");
        drop(self.changed.wait_while(state, |state| !state.held).expect("not poisoned"));
    }

    fn let_go(&self) {
        self.state.lock().expect("not poisoned").holds = false;
        self.changed.notify_all();
    }

    /// The kind of request that the armed failure struck.
    fn struck(&self) -> Option<String> {
        let state = self.state.lock().expect("not poisoned");
        let (at, _) = state.failing.filter(|_| state.struck)?;
        Some(state.requests[at].clone())
    }

    fn fate_of(&self, request: &Request) -> Option<Fate> {
        let mut state = self.state.lock().expect("not poisoned");
        let number = state.requests.len();
        let what = what(request, &state.requests);
        state.requests.push(what);
        let (at, fate) = state.failing?;
        if number != at {
            return (fate == Fate::Gone && number > at).then_some(fate);
        }
        state.struck = true;
        state.held = true;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |state| state.holds).expect("not poisoned"));
        Some(fate)
    }
}

/// The work of a commit that makes this request after the requests `before`.
fn what(request: &Request, before: &[String]) -> String {
    let flushes = before.iter().filter(|what| ["flush", "finish"].contains(&what.as_str())).count();
    let what = match (request, flushes) {
        (Request::Read { .. }, _) => "read",
        (Request::Write { offset, .. }, _) if *offset == SUPERBLOCKS[0] => "publish",
        (Request::Write { offset, .. }, _) if SUPERBLOCKS.contains(offset) => "copy",
        (Request::Write { .. }, _) => "write-out",
        (Request::Flush, 0) => "flush",
        (Request::Flush, 1) => "finish",
        (Request::Flush, _) => "close",
        (Request::Discard { .. }, _) => "discard",
    };
    what.to_owned()
}

impl BlockDevice for Failing {
    fn submit(&self, request: Request, done: Completion) {
        match self.fate_of(&request) {
            None => return self.below.submit(request, done),
            Some(Fate::Arrives) => self.below.submit(request, Box::new(|_| ())),
            Some(Fate::Lost | Fate::Gone) => {}
        }
        done(Err(Error::new(ErrorKind::Io, CABLE)));
    }

    fn len(&self) -> u64 {
        self.below.len()
    }

    fn id(&self) -> DeviceId {
        self.below.id()
    }

    fn describe(&self) -> String {
        "a device that fails".to_owned()
    }
}

fn prepared() -> Image {
    image_with_files(&MADE_BY, OLD, |number| 3000 * (number as usize % 7)).expect("an image").0
}

fn open_engine(device: Arc<dyn BlockDevice>, options: Options) -> Arc<Engine> {
    let volume = Volume::open(vec![device], Mode::ReadWrite).expect("it opens");
    let env = Arc::new(FixedEnv::new(Timespec { sec: 1_700_000_000, nsec: 0 }, 1));
    let options = Options { cache_bytes: CACHE_BYTES, env, ..options };
    Engine::open(volume, options).expect("it opens")
}

fn open(device: Arc<dyn BlockDevice>) -> Arc<Filesystem> {
    open_with(device, Options { tree_log: false, ..Options::default() })
}

fn open_with(device: Arc<dyn BlockDevice>, options: Options) -> Arc<Filesystem> {
    Filesystem::open(open_engine(device, options), FsOptions::default()).expect("it opens")
}

fn root(fs: &Filesystem) -> InodeId {
    fs.root(TreeId::FS).expect("the root")
}

fn create(fs: &Filesystem, name: &str) -> Result<InodeId> {
    let data = [7; 5000];
    let content = FileContent { size: 5000, stretches: &[(0, &data)], packed: None };
    let made = fs.create_file_with(root(fs), name.as_bytes(), &NewInode::file(0o644), &content)?;
    Ok(made.id)
}

/// Makes `new` files and removes some of the old ones. Returns one of the new files, open.
fn work(fs: &Filesystem, new: u64) -> Arc<OpenFile> {
    for number in 0..REMOVED {
        fs.unlink(root(fs), format!("name{number}").as_bytes()).expect("it is there");
    }
    let made: Vec<InodeId> =
        (0..new).map(|number| create(fs, &format!("new{number}")).expect("room")).collect();
    fs.clean();
    fs.open_file(made[0]).expect("it is there")
}

/// The call that asks for a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CommitRequest {
    Commit,
    Fsync,
    Close,
}

impl CommitRequest {
    fn ask(self, fs: &Filesystem, file: &OpenFile) -> Result<()> {
        match self {
            Self::Commit => fs.sync(),
            Self::Fsync => file.sync(),
            Self::Close => fs.shut_down(),
        }
    }
}

/// A request that fails during a commit.
#[derive(Clone, Copy, Debug)]
struct FaultCase {
    way: CommitRequest,
    request: usize,
    fate: Fate,
    new: u64,
}

/// The result of a case.
struct Ended {
    /// The work that the failing request belongs to.
    struck: String,
    aborted: Option<CommitPhase>,
    /// The content of the platter.
    image: Image,
}

/// Runs a case; `None` if the commit makes fewer requests.
fn fail_once(base: &Image, case: FaultCase) -> Option<Ended> {
    let device = Failing::new(base.clone());
    let fs = open(Arc::<Failing>::clone(&device));
    let file = work(&fs, case.new);
    device.arm(Some((case.request, case.fate)), false);
    let asked = case.way.ask(&fs, &file);
    let Some(struck) = device.struck() else {
        asked.expect("nothing failed");
        return None;
    };
    let abort = fs.engine().aborted().cloned();
    match &abort {
        Some(abort) => {
            assert!(abort.reason.contains(CABLE), "{abort}");
            let told = asked.expect_err("it aborted").to_string();
            assert!(told.contains(CABLE) && told.contains(&format!("phase {}", abort.phase)), "{told}");
            is_told(fs.sync());
            if case.way != CommitRequest::Close {
                is_told(file.sync());
                is_told(create(&fs, "later"));
                is_told(fs.shut_down());
            }
        }
        // The commit stands; closing has a flush of its own.
        None if struck == "close" || case.way == CommitRequest::Close && case.fate == Fate::Gone => {
            is_told(asked)
        }
        None => assert!(asked.is_ok(), "{struck}: {asked:?}"),
    }
    drop((file, fs));
    Some(Ended { struck, aborted: abort.map(|abort| abort.phase), image: device.below.image() })
}

fn is_told<T>(outcome: Result<T>) {
    let told = outcome.map(|_| ()).expect_err("nothing is written any more").to_string();
    assert!(told.contains(CABLE), "{told}");
}

/// Whether an image has all changes of [`work`]; else it has none of them.
fn shows_the_work(image: &Image, new: u64) -> bool {
    let device: Arc<dyn BlockDevice> = Arc::new(SimDevice::new(image.clone()));
    let volume = Volume::open(vec![Arc::clone(&device)], Mode::ReadOnly).expect("it opens");
    let options = CheckOptions { check_data_csum: true, threads: 1, ..CheckOptions::default() };
    let report = check(&volume, &options, &NoProgress).expect("it can be read");
    assert!(report.is_clean(), "{:?}", report.findings.iter().map(ToString::to_string).collect::<Vec<_>>());
    let fs = open(device);
    let is_there = |name: String| fs.lookup(root(&fs), name.as_bytes(), Wait::Yes).is_ok();
    let made = (0..new).filter(|number| is_there(format!("new{number}"))).count() as u64;
    let left = (0..REMOVED).filter(|number| is_there(format!("name{number}"))).count() as u64;
    assert!(
        [(0, REMOVED), (new, 0)].contains(&(made, left)),
        "{made} of {new} made, {left} of {REMOVED} left"
    );
    made == new
}

/// The phases that may abort when a request fails, and whether the platter has the new commit then.
fn table(struck: &str, fate: Fate) -> (&'static [CommitPhase], bool) {
    match struck {
        "read" => (&[CommitPhase::Settle, CommitPhase::Take], false),
        "write-out" => (&[CommitPhase::WriteOut], false),
        "flush" => (&[CommitPhase::Flush], false),
        "publish" => (&[CommitPhase::Publish], fate == Fate::Arrives),
        "finish" => (&[CommitPhase::Finish], true),
        // The commit stands without this request.
        "copy" | "close" => (&[], true),
        other => panic!("a commit makes no such request: {other}"),
    }
}

#[test]
fn a_device_that_fails_in_a_phase_is_told_by_its_name() {
    let met = watched(|watch| {
        let base = prepared();
        let scratch = Scratch::new("commit-faults").expect("a scratch folder");
        let has_judge = Judges::here().have(&[Judge::BtrfsProgs]);
        if !has_judge {
            println!("skipped: btrfs-progs missing");
        }
        let mut met = BTreeSet::new();
        let mut judged = BTreeSet::new();
        for way in [CommitRequest::Commit, CommitRequest::Fsync, CommitRequest::Close] {
            for fate in [Fate::Lost, Fate::Arrives, Fate::Gone] {
                for request in 0.. {
                    let case = FaultCase { way, request, fate, new: NEW };
                    watch.doing(&case);
                    let Some(ended) = fail_once(&base, case) else { break };
                    let (phases, is_new) = table(&ended.struck, fate);
                    let told = || format!("{case:?} {}: {:?}", ended.struck, ended.aborted);
                    assert_eq!(ended.aborted.is_some(), !phases.is_empty(), "{}", told());
                    assert!(ended.aborted.is_none_or(|phase| phases.contains(&phase)), "{}", told());
                    assert_eq!(shows_the_work(&ended.image, NEW), is_new, "{}", told());
                    met.extend(ended.aborted);
                    if has_judge && judged.insert((ended.struck.clone(), fate)) {
                        check_image(&ended.image, &scratch)
                            .unwrap_or_else(|error| panic!("{}: {error:#}", told()));
                    }
                }
            }
        }
        met
    });
    let all = [
        CommitPhase::Settle,
        CommitPhase::WriteOut,
        CommitPhase::Flush,
        CommitPhase::Publish,
        CommitPhase::Finish,
    ];
    assert!(all.iter().all(|phase| met.contains(phase)), "{met:?}");
}

/// Verifies an image. Returns whether a replay finds the first of the new files and nothing else of [`work`].
fn shows_what_was_synced(image: &Image) -> bool {
    let device: Arc<dyn BlockDevice> = Arc::new(SimDevice::new(image.clone()));
    let fs = open(Arc::clone(&device));
    let is_there = |name: String| fs.lookup(root(&fs), name.as_bytes(), Wait::Yes).is_ok();
    let made: Vec<u64> = (0..NEW).filter(|number| is_there(format!("new{number}"))).collect();
    let left = (0..REMOVED).filter(|number| is_there(format!("name{number}"))).count() as u64;
    assert!(made.is_empty() || made == [0] && fs.replayed().is_some(), "{made:?} were made");
    assert_eq!(left, REMOVED, "nobody has synced that files are gone");
    fs.shut_down().expect("it closes");
    drop(fs);
    let volume = Volume::open(vec![device], Mode::ReadOnly).expect("it opens");
    let options = CheckOptions { check_data_csum: true, threads: 1, ..CheckOptions::default() };
    let report = check(&volume, &options, &NoProgress).expect("it can be read");
    assert!(report.is_clean(), "{:?}", report.findings.iter().map(ToString::to_string).collect::<Vec<_>>());
    !made.is_empty()
}

#[test]
fn a_device_that_fails_while_a_log_is_written_is_told() {
    let met = watched(|watch| {
        let base = prepared();
        let mut met = BTreeSet::new();
        for fate in [Fate::Lost, Fate::Arrives, Fate::Gone] {
            for request in 0.. {
                let case = FaultCase { way: CommitRequest::Fsync, request, fate, new: NEW };
                watch.doing(&case);
                let device = Failing::new(base.clone());
                let fs = open_with(Arc::<Failing>::clone(&device), Options::default());
                let file = work(&fs, case.new);
                device.arm(Some((request, fate)), false);
                let asked = file.sync();
                let Some(struck) = device.struck() else {
                    asked.expect("nothing failed");
                    assert_eq!(fs.statistics().fsyncs.logged, 1, "it is not committed");
                    assert!(shows_what_was_synced(&device.below.image()), "{case:?}");
                    break;
                };
                let abort = fs.engine().aborted().cloned().expect("what was to be logged is lost");
                let told = asked.expect_err("it aborted").to_string();
                assert!(told.contains(CABLE) && told.contains("phase log"), "{told}");
                assert_eq!(abort.phase, CommitPhase::Log, "{case:?}");
                is_told(file.sync());
                is_told(create(&fs, "later"));
                is_told(fs.shut_down());
                let is_new = struck == "finish" || struck == "publish" && fate == Fate::Arrives;
                assert_eq!(shows_what_was_synced(&device.below.image()), is_new, "{case:?}: {struck}");
                met.insert(struck);
            }
        }
        met
    });
    let all = ["write-out", "flush", "publish", "finish"];
    assert!(all.iter().all(|request| met.contains(*request)), "{met:?}");
}

#[test]
fn a_device_that_fails_before_the_gate_closes_is_told() {
    watched(|watch| {
        let base = prepared();
        let mut met = 0;
        for request in 0.. {
            let case = FaultCase { way: CommitRequest::Commit, request, fate: Fate::Lost, new: MANY };
            watch.doing(&case);
            let ended = fail_once(&base, case).expect("it writes at last");
            if ended.struck != "read" {
                break;
            }
            let phase = ended.aborted.expect("nobody reads for nothing");
            assert!(phase <= CommitPhase::Take, "{case:?}: {phase}");
            met += usize::from(phase == CommitPhase::Running);
            assert!(!shows_the_work(&ended.image, MANY), "{case:?}");
        }
        assert!(met > 0, "references are run before the gate closes");
    });
}

/// Data was written, and the file extent that refers to it is gone: the commit only has to flush.
#[test]
fn a_flush_that_fails_with_nothing_else_to_commit_is_told() {
    let device = Failing::new(fresh_image(&MADE_BY).expect("an image"));
    // Each new handle runs two heads.
    let engine =
        open_engine(Arc::<Failing>::clone(&device), Options { delayed_refs_max: 4, ..Options::default() });
    let owner = InodeId { subvolume: TreeId::FS, ino: ObjectId::new(1000) };
    for number in 0..2 {
        let extent = engine.allocate_data(TreeId::FS, 4096, 4096, None).expect("room");
        let written = engine.data().write(&extent, &[7; 4096]).expect("written");
        let (start, len) = (extent.start(), extent.len());
        let handle = engine.start(ReserveItems::items(4)).expect("room");
        handle.complete_data(extent, written, owner, number, None).expect("room");
        handle.drop_data_ref(start, len, owner, number);
        handle.end();
    }
    engine.start(ReserveItems::items(1)).expect("room").end();
    device.arm(Some((0, Fate::Lost)), false);
    is_told(engine.commit());
    assert_eq!(device.struck().as_deref(), Some("flush"));
    assert_eq!(engine.aborted().map(|abort| abort.phase), Some(CommitPhase::Flush));
}

/// Holds one thread's commit at a request; all other threads ask for a commit, too; then the request fails. Returns the phase that aborts,
/// and the error that each thread gets (`None` for a thread that panicked).
fn all_ask(base: &Image, request: usize) -> (CommitPhase, Vec<Option<String>>) {
    let device = Failing::new(base.clone());
    let fs = open(Arc::<Failing>::clone(&device));
    let file = work(&fs, NEW);
    device.arm(Some((request, Fate::Lost)), true);
    let told = ask_while(&fs, &file, &|| device.until_held(), &|| device.let_go());
    let abort = fs.engine().aborted().expect("it aborted");
    is_told(fs.shut_down());
    (abort.phase, told)
}

/// One thread commits. When it is `held`, the other threads ask for commits; when they have asked, `let_go` lets it fail.
fn ask_while(
    fs: &Filesystem,
    file: &OpenFile,
    held: &(dyn Fn() + Sync),
    let_go: &(dyn Fn() + Sync),
) -> Vec<Option<String>> {
    let generation = fs.engine().generation();
    let asking = AtomicUsize::new(0);
    let outcome = |asked: Result<()>| asked.expect_err("nothing became durable").to_string();
    std::thread::scope(|scope| {
        let first = scope.spawn(move || outcome(fs.sync()));
        held();
        let ask = |number: usize| {
            asking.fetch_add(1, Ordering::SeqCst);
            outcome(match number % 4 {
                0 => fs.sync(),
                1 => fs.engine().commit_through(generation),
                2 => file.sync(),
                _ => create(fs, &format!("other{number}")).and_then(|_| fs.sync()),
            })
        };
        let others: Vec<_> = (1..THREADS).map(|number| scope.spawn(move || ask(number))).collect();
        while asking.load(Ordering::SeqCst) < others.len() {
            std::thread::yield_now();
        }
        (0..1000).for_each(|_| std::thread::yield_now()); // most threads wait by then; not all have to
        let_go();
        std::iter::once(first).chain(others).map(|thread| thread.join().ok()).collect()
    })
}

#[test]
fn all_who_ask_while_it_aborts_are_told() {
    let base = prepared();
    let requests = {
        let device = Failing::new(base.clone());
        let fs = open(Arc::<Failing>::clone(&device));
        work(&fs, NEW);
        device.arm(None, false);
        fs.sync().expect("nothing fails");
        let state = device.state.lock().expect("not poisoned");
        state.requests.clone()
    };
    let phases = [
        ("read", CommitPhase::Settle),
        ("write-out", CommitPhase::WriteOut),
        ("flush", CommitPhase::Flush),
        ("publish", CommitPhase::Publish),
        ("finish", CommitPhase::Finish),
    ];
    for (what, phase) in phases {
        let at = requests.iter().position(|request| request == what).expect("every commit does that");
        let base = base.clone();
        let (aborted, told) = watched(move |watch| {
            watch.doing(&phase);
            all_ask(&base, at)
        });
        assert_eq!(aborted, phase);
        assert_eq!(told.len(), THREADS);
        for told in told {
            let told = told.expect("nobody dies");
            assert!(told.contains(CABLE) && told.contains(&format!("phase {phase}")), "{phase}: {told}");
        }
    }
}

/// Takes part in commits, and fails once `fails` is set.
struct Participant {
    dies: bool,
    /// Whether it fails; whether it is held, and may go on.
    fails: AtomicBool,
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl CommitParticipant for Participant {
    fn settle(&self, _: &Handle<'_>) -> Result<()> {
        if !self.fails.load(Ordering::SeqCst) {
            return Ok(());
        }
        let mut state = self.state.lock().expect("not poisoned");
        state.0 = true;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |state| !state.1).expect("not poisoned"));
        assert!(!self.dies, "{CABLE}, and a participant dies of it");
        Err(Error::new(ErrorKind::Io, CABLE))
    }
}

#[test]
fn all_who_ask_while_a_participant_fails_are_told() {
    for dies in [false, true] {
        let base = prepared();
        let (image, abort, told) = watched(move |watch| {
            watch.doing(&dies);
            let device = Failing::new(base);
            let fs = open(Arc::<Failing>::clone(&device));
            let file = work(&fs, NEW);
            let (fails, state, changed) = (AtomicBool::new(true), Mutex::default(), Condvar::new());
            let participant = Arc::new(Participant { dies, fails, state, changed });
            fs.engine().register(Arc::<Participant>::clone(&participant));
            let held = || {
                let state = participant.state.lock().expect("not poisoned");
                drop(participant.changed.wait_while(state, |state| !state.0).expect("not poisoned"));
            };
            let let_go = || {
                participant.state.lock().expect("not poisoned").1 = true;
                participant.changed.notify_all();
            };
            let told = ask_while(&fs, &file, &held, &let_go);
            let abort = fs.engine().aborted().expect("it aborted").clone();
            let closed = catch_unwind(AssertUnwindSafe(|| fs.shut_down())).expect("it does not try again");
            is_told(closed);
            drop((file, fs));
            (device.below.image(), abort, told)
        });
        assert_eq!(abort.phase, CommitPhase::Settle, "{abort}");
        assert!(abort.reason.contains(CABLE), "{abort}");
        assert!(!dies || abort.place.contains("commit_faults.rs"), "{abort}");
        let dead = told.iter().filter(|told| told.is_none()).count();
        assert_eq!(dead, usize::from(dies), "who asked first, and nobody else");
        for told in told.into_iter().flatten() {
            assert!(told.contains(CABLE) && told.contains("phase settle"), "{told}");
        }
        assert!(!shows_the_work(&image, NEW));
    }
}
