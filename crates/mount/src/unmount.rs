//! Unmounting from outside, and waiting until the image is closed: a tool that reads it a moment later must not find
//! it half flushed. Whether all that was done is durable is told by the server (see `closing`), and is how an unmount ends.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use creamery_base::{Error, ErrorKind, Result};
use creamery_device::{Access, FileDevice, ImageName, is_only_read};
use creamery_fuse::{HeldMount, MountNumber, PinnedPoint, Unmount};

use crate::closing::{End, Watch};
use crate::control::{Channel, is_of_a_dead_server, says_dead};
use crate::live_mounts::point_named;
use crate::table::{MountedImage, held_at, is_mounted, shown_below};
use crate::users::{shown, users_of};

/// Time between two looks at whether there is something to wait for.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// How often an unmount is tried where the kernel says that the mount is in use, and no process but some of this program is seen to use it.
const BUSY_TRIES: u32 = 100;
const LIVES_ON_AGAIN: Duration = Duration::from_secs(1);
/// How long a server that does not speak with us may have the image.
const SILENT_MAX: Duration = Duration::from_secs(10);

/// When an unmount is over.
///
/// ```
/// assert_ne!(creamery_mount::How::WhenIdle, creamery_mount::How::Lazy);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// Refuse while files are open or somebody's working directory is there; wait until the image is closed.
    WhenIdle,
    /// Take it out of sight at once and do not wait; the image is closed when the last user has left.
    Lazy,
}

/// What an unmount left.
///
/// ```
/// assert_ne!(creamery_mount::Unmounted::Closed, creamery_mount::Unmounted::StillAt("/mnt".into()));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unmounted {
    /// The image is closed, and everything is durable; or it was lazy, and nobody waited.
    Closed,
    /// The image is mounted here, too (`mount --bind`), and stays mounted. All changes until then are durable.
    StillAt(PathBuf),
    /// Only a directory or a file of the image was mounted there (`mount --bind`). The image stays mounted. All changes until then are durable.
    Part,
    /// The image is mounted in another mount namespace, too, and stays mounted. The next commits make its changes durable.
    StillElsewhere,
}

/// Unmounts what is mounted at the directory `place`, or the image of that name, and, unless it is lazy, returns when the image is closed and durable,
/// or still mounted at another place. A lazy one asks the server nothing, so it works for one that hangs.
/// Errors: nothing of ours is mounted there, or the image at several places; in use; what the system said. And, with nothing mounted there any more: that
/// not everything that was done on the mount is durable, and why; that this is not known, because the server could not be asked.
pub fn unmount(place: &Path, how: How) -> Result<Unmounted> {
    let dir = &point_named(place)?;
    let (mounted, point, held) = held_at(dir)?;
    let number = held.number();
    let server = if how == How::Lazy { None } else { Some(Server::of(&held, &mounted)) };
    drop(held); // it keeps the mount busy
    detach(&mounted, (&point, number), how)
        .map_err(|error| error.context(format_args!("unmounting {}", dir.display())))?;
    let outcome = match server {
        None => Ok(Unmounted::Closed),
        Some(server) => server.end(&mounted),
    };
    outcome.map_err(|error| error.context(format_args!("{} is unmounted, but", dir.display())))
}

/// Clears away what is mounted at `dir` if its server has died and the caller may: its mounter, or root. Says what became of it then, for the
/// caller to be told. Nothing is said where somebody else clears it away at the same time.
///
/// # Errors
/// `Busy`: other mounts lie below it, and nothing is unmounted. `PermissionDenied`: it is another user's; a mount that does not let the caller in,
/// whose server may live. It cannot be unmounted.
pub fn clear_dead(dir: &Path) -> Result<Option<String>> {
    let Ok((mounted, point, held)) = held_at(dir) else { return Ok(None) };
    let (image, shown) = (mounted.image.display(), dir.display());
    let remedy = format!("user {} or root can unmount it: `creamery umount {shown}`", mounted.mounter);
    match held.ask() {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            let by = mounted.mounter;
            let what = format!(
                "{shown}: user {by} has mounted {image} there, and the mount lets nobody else in: {remedy}"
            );
            return Err(Error::new(ErrorKind::PermissionDenied, what));
        }
        Err(error) if says_dead(&error) => {}
        Ok(()) | Err(_) => return Ok(None),
    }
    let asker = rustix::process::geteuid();
    if !asker.is_root() && asker.as_raw() != mounted.mounter {
        let what = format!("{shown}: the server of {image}, which is mounted there, has died: {remedy}");
        return Err(Error::new(ErrorKind::PermissionDenied, what));
    }
    let is_cleared = if asker.is_root() {
        expect_nothing_below(&mounted, dir).and_then(|()| cleared(held.detach()))
    } else {
        clear_by_helper(&mounted, dir, &point, held)
    };
    if !is_cleared? {
        return Ok(None);
    }
    Ok(Some(format!("{shown} was still the mount of {image}: {}; unmounted", died(mounted.is_read_only))))
}

/// Whether this unmount cleared a dead mount away; false where somebody else had by then.
fn cleared(unmounted: Result<()>) -> Result<bool> {
    match unmounted {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error.context("unmounting a mount whose server has died")),
    }
}

/// An unmount of a dead mount takes along what lies below it.
/// Errors: `Busy`: something does.
fn expect_nothing_below(mounted: &MountedImage, dir: &Path) -> Result<()> {
    let Some(below) = shown_below(mounted.id)? else { return Ok(()) };
    let (image, shown) = (mounted.image.display(), dir.display());
    let what = format!(
        "{shown}: the server of {image}, which is mounted there, has died, but other mounts lie below it: {below}: unmount these first, \
         or, once their paths lead nowhere any more, everything with `creamery umount -l {shown}`"
    );
    Err(Error::new(ErrorKind::Busy, what))
}

/// fusermount3 unmounts what is at a path, and compares nothing. So the dead mount is looked for right before each run of it, and the first run
/// refuses a mount that is in use: one that took the place after the look is taken away only if nobody uses it.
fn clear_by_helper(mounted: &MountedImage, dir: &Path, point: &PinnedPoint, held: HeldMount) -> Result<bool> {
    let number = held.number();
    drop(held); // it keeps the mount busy
    let is_there = || {
        let there = point.hold().ok().filter(|there| there.number() == number);
        there.is_some_and(|there| there.ask().is_err_and(|error| says_dead(&error)))
    };
    let mut refused = None;
    for how in [How::WhenIdle, How::Lazy] {
        if !is_there() {
            return Ok(false);
        }
        expect_nothing_below(mounted, dir)?;
        match run_helper(&mounted.point, how) {
            Ok(()) => return Ok(true),
            Err(error) => refused = Some(error),
        }
    }
    match refused {
        Some(error) if is_there() => cleared(Err(error)),
        _ => Ok(false),
    }
}

/// Who serves a mount, as far as it is to be seen before the unmount.
enum Server {
    /// It will tell how it ended.
    Speaks(Watch),
    /// It could not be asked, and `why`: it serves its mounter alone, nobody may read the root directory, it is of another version.
    Silent {
        why: Error,
        /// Whether it is seen to have the image for reading only. It has that as it was mounted, whatever a remount says.
        only_reads: bool,
    },
    /// It died.
    Gone,
}

impl Server {
    fn of(held: &HeldMount, mounted: &MountedImage) -> Self {
        let channel = match Channel::through(held, &mounted.point) {
            // A file is mounted there (`mount --bind`).
            Err(error) if mounted.is_of_a_directory() == Some(false) => {
                mounted.another().and_then(|other| other.as_ref().map_or(Err(error), Channel::open))
            }
            channel => channel,
        };
        let watch = channel.and_then(|channel| Watch::begin(&channel, mounted.mounter));
        match watch {
            Ok(watch) => Self::Speaks(watch),
            Err(error) if is_of_a_dead_server(&error) => Self::Gone,
            Err(why) => {
                let image = ImageName::metadata(&mounted.image);
                Self::Silent { why, only_reads: image.is_ok_and(|image| is_only_read(&image)) }
            }
        }
    }

    /// Waits for the end of a server whose mount was detached, while it is not mounted anywhere else.
    /// Errors: something is not durable.
    fn end(self, mounted: &MountedImage) -> Result<Unmounted> {
        match self {
            Self::Gone => Err(Error::new(ErrorKind::Io, died(mounted.is_read_only))),
            Self::Silent { why, only_reads } => {
                let lives_on = mounted.lives_on()?;
                if !lives_on {
                    wait_until_closed(&mounted.image)?;
                }
                // Nothing was written.
                match (only_reads, lives_on) {
                    (true, false) => return Ok(Unmounted::Closed),
                    (true, true) => return Ok(place_left(mounted.another()?)),
                    (false, _) => {}
                }
                let by = mounted.mounter;
                let what = "whether everything that was written is durable is not known";
                let asked = format!("{what}: its server, which user {by} started, could not be asked: {why}");
                Err(Error::new(ErrorKind::Io, asked))
            }
            Self::Speaks(watch) => match watch.end(LIVES_ON_AGAIN, || Ok(!mounted.lives_on()?))? {
                Some(End { failure: Some(failure), why, aborted, log }) => {
                    let lost = if aborted { "what came after the last commit is lost: " } else { "" };
                    let seen = log.map_or_else(String::new, |log| format!(" (the log is {log})"));
                    Err(Error::new(why.kind(), format!("{lost}{failure}{seen}")))
                }
                Some(End { failure: None, .. }) => Ok(Unmounted::Closed),
                None => stays(mounted),
            },
        }
    }
}

/// Makes durable what was done, where the same mount is at another place still.
/// Errors: something is not durable.
fn stays(mounted: &MountedImage) -> Result<Unmounted> {
    let other = mounted.another()?;
    if let Some(other) = &other {
        let point = other.point.display();
        if other.is_of_a_directory() == Some(false) {
            let what = format!(
                "still mounted at {point}, which is a file: its server can be asked through a directory only, so the changes of the last seconds \
                 are durable when it commits"
            );
            return Err(Error::new(ErrorKind::Io, what));
        }
        let synced = Channel::open(other).and_then(|channel| channel.sync());
        synced.map_err(|error| error.context(format_args!("still mounted at {point}")))?;
    }
    Ok(match place_left(other) {
        Unmounted::StillAt(_) if mounted.is_part => Unmounted::Part,
        left => left,
    })
}

/// Where a mount is left that lives on.
fn place_left(other: Option<MountedImage>) -> Unmounted {
    other.map_or(Unmounted::StillElsewhere, |other| Unmounted::StillAt(other.point))
}

/// What is known of a mount after its server died. The mount table says how it was then, and not how it was mounted.
const fn died(is_read_only: bool) -> &'static str {
    if is_read_only {
        "the program that served it had died: nothing is lost if it was read-only from the start, or since creamery mount -o remount,ro; \
         if it was written and then made read-only in another way, what was not committed is lost"
    } else {
        "the program that served it had died, and what it had not committed is lost"
    }
}

fn detach(mounted: &MountedImage, (there, number): (&PinnedPoint, MountNumber), how: How) -> Result<()> {
    let unmount = || match rustix::process::geteuid().is_root() {
        true => there.unmount(number, if how == How::Lazy { Unmount::Lazy } else { Unmount::WhenIdle }),
        false => run_helper(&mounted.point, how),
    };
    // A process that lists mounts (`creamery mounts`) holds each for a moment.
    for _ in 0..BUSY_TRIES {
        match unmount() {
            Err(error) if error.kind() != ErrorKind::Busy => return Err(error),
            Err(_) if has_users(mounted) => break,
            Err(_) => std::thread::sleep(LOOK_AGAIN),
            Ok(()) => return Ok(()),
        }
        // fusermount3 takes a path: another process may have unmounted this one meanwhile, and mounted something else there.
        if !there.hold().is_ok_and(|held| held.number() == number) {
            return Err(Error::new(ErrorKind::NotFound, "another process has unmounted it"));
        }
    }
    Err(in_use(mounted))
}

/// Whether something is seen that keeps a mount in use, and not for a moment alone.
fn has_users(mounted: &MountedImage) -> bool {
    shown_below(mounted.id).is_ok_and(|below| below.is_some())
        || users_of(mounted).iter().any(|user| !user.only_looks())
}

/// Why a mount is in use.
fn in_use(mounted: &MountedImage) -> Error {
    let what = match shown_below(mounted.id) {
        Ok(Some(below)) => {
            format!("other mounts lie below it: {below} (-l detaches it all the same, and these with it)")
        }
        Ok(None) | Err(_) => match shown(&users_of(mounted)) {
            Some(users) => format!("{users} (-l detaches it all the same)"),
            None => {
                "files are open there, or it is somebody's working directory (-l detaches it all the same)"
                    .to_owned()
            }
        },
    };
    Error::new(ErrorKind::Busy, what)
}

/// Unmounts what is at `point`, as an ordinary user.
fn run_helper(point: &Path, how: How) -> Result<()> {
    let mut command = Command::new("fusermount3");
    command.arg("-u").args((how == How::Lazy).then_some("-z")).arg("--").arg(point);
    let output = command.output().map_err(|error| Error::from(error).context("running fusermount3"))?;
    if output.status.success() {
        return Ok(());
    }
    // It knows two reasons: somebody is there, or the mount is not the asker's.
    let said = String::from_utf8_lossy(&output.stderr);
    let kind = if said.contains("busy") { ErrorKind::Busy } else { ErrorKind::PermissionDenied };
    Err(Error::new(kind, said.trim().to_owned()))
}

/// For a server that does not speak: it has the image's lock until everything is durable. But others who may read the image can
/// have that too, so this does not wait for ever. Who mounts the image meanwhile gets the lock right after it; then it is
/// not ours to wait for any more.
/// Errors: somebody has the image still.
fn wait_until_closed(image: &Path) -> Result<()> {
    let begun = Instant::now();
    while let Err(error) = FileDevice::open(image, Access::ReadOnly) {
        if error.kind() != ErrorKind::Busy || is_mounted(image) {
            break; // gone, or not ours to look at: nothing to wait for
        }
        if begun.elapsed() > SILENT_MAX {
            return Err(error.context("whether the image is closed and durable is not to be known"));
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    Ok(())
}
