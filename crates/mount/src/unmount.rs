//! Unmounts from outside, and waits until the image is closed: a tool that reads it a moment later must not find
//! it half flushed. The server reports whether all changes are durable (see `closing`), and the unmount returns that.

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

/// Time between two checks whether there is still a mount.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// Tries of an unmount if the kernel says that the mount is in use, and no process is visible that uses it, except processes of this program.
const BUSY_TRIES: u32 = 100;
const LIVES_ON_AGAIN: Duration = Duration::from_secs(1);
/// Time that a server that does not answer may keep the image.
const SILENT_MAX: Duration = Duration::from_secs(10);

/// The kind of an unmount.
///
/// ```
/// assert_ne!(creamery_mount::How::WhenIdle, creamery_mount::How::Lazy);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// Fails while files are open or the mount has working directories; waits until the image is closed.
    WhenIdle,
    /// Removes the mount at once and does not wait; the image is closed after the last use.
    Lazy,
}

/// The state after an unmount.
///
/// ```
/// assert_ne!(creamery_mount::Unmounted::Closed, creamery_mount::Unmounted::StillAt("/mnt".into()));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unmounted {
    /// The image is closed, and everything is durable; or the unmount was lazy, and did not wait.
    Closed,
    /// The image is mounted here, too (`mount --bind`), and stays mounted. All changes until then are durable.
    StillAt(PathBuf),
    /// Only a directory or a file of the image was mounted there (`mount --bind`). The image stays mounted. All changes until then are durable.
    Part,
    /// The image is mounted in another mount namespace, too, and stays mounted. The next commits make its changes durable.
    StillElsewhere,
}

/// Unmounts the mount at the directory `place`, or the image of that name. Unless it is lazy, it returns when the image is closed and durable,
/// or still mounted at another place. A lazy unmount does not ask the server, so it works for one that hangs.
/// Errors: no mount of ours is there, or the image is mounted at several places; in use; errors of the system. After the unmount:
/// some changes on the mount are not durable, and why; or this is not known, because the server could not be asked.
pub fn unmount(place: &Path, how: How) -> Result<Unmounted> {
    let dir = &point_named(place)?;
    let (mounted, point, held) = held_at(dir)?;
    let number = held.number();
    let server = if how == How::Lazy { None } else { Some(ServerToUnmount::of(&held, &mounted)) };
    drop(held); // it keeps the mount busy
    detach(&mounted, (&point, number), how)
        .map_err(|error| error.context(format_args!("unmounting {}", dir.display())))?;
    let outcome = match server {
        None => Ok(Unmounted::Closed),
        Some(server) => server.end(&mounted),
    };
    outcome.map_err(|error| error.context(format_args!("{} is unmounted, but", dir.display())))
}

/// Unmounts a mount of ours at `dir` whose server has died, if the caller may: its mounter, or root. Returns a message about that for
/// the caller. Returns `None` if there is no such mount, or if another process unmounts it at the same time.
///
/// # Errors
/// `Busy`: other mounts lie below it, and nothing is unmounted. `PermissionDenied`: it is another user's; a mount that the caller may not enter,
/// whose server may live. The unmount fails.
pub fn clear_dead(dir: &Path) -> Result<Option<String>> {
    let Ok((mounted, point, held)) = held_at(dir) else { return Ok(None) };
    let (image, shown) = (mounted.image.display(), dir.display());
    let remedy = format!("user {} or root can unmount it: `creamery umount {shown}`", mounted.mounter);
    match held.ask() {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            let by = mounted.mounter;
            let what = format!("{shown}: only user {by} may access this mount of {image}: {remedy}");
            return Err(Error::new(ErrorKind::PermissionDenied, what));
        }
        Err(error) if says_dead(&error) => {}
        Ok(()) | Err(_) => return Ok(None),
    }
    let asker = rustix::process::geteuid();
    if !asker.is_root() && asker.as_raw() != mounted.mounter {
        let what = format!("{shown}: the server of {image} has died: {remedy}");
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

/// Whether this call unmounted a dead mount; false if another process did before.
fn cleared(unmounted: Result<()>) -> Result<bool> {
    match unmounted {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error.context("unmounting a mount whose server has died")),
    }
}

/// Fails if mounts lie below a dead mount, whose unmount would remove them.
/// Errors: `Busy`: there are such mounts.
fn expect_nothing_below(mounted: &MountedImage, dir: &Path) -> Result<()> {
    let Some(below) = shown_below(mounted.id)? else { return Ok(()) };
    let (image, shown) = (mounted.image.display(), dir.display());
    let what = format!(
        "{shown}: the server of {image} has died, but other mounts lie below it: {below}: unmount these first, \
         or, if their paths are no longer reachable, everything with `creamery umount -l {shown}`"
    );
    Err(Error::new(ErrorKind::Busy, what))
}

/// Unmounts a dead mount with fusermount3, which unmounts any mount at a path. So the dead mount is checked right before each run, and the first run
/// fails for a mount that is in use: one that took the place after the check is removed only if it is not in use.
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

/// The server of a mount, as far as it is known before the unmount.
enum ServerToUnmount {
    /// It will report its end.
    Speaks(Watch),
    /// It could not be asked, and `why`: it serves only its mounter, the root directory is not readable, or it has another version.
    Silent {
        why: Error,
        /// Whether it has visibly opened the image for reading only. A remount does not change that.
        only_reads: bool,
    },
    /// It has died.
    Gone,
}

impl ServerToUnmount {
    fn of(held: &HeldMount, mounted: &MountedImage) -> Self {
        let channel = match Channel::through(held, &mounted.point) {
            // The mount is one of a file (`mount --bind`).
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

    /// Waits for the end of a server whose mount was detached, unless it is still mounted elsewhere.
    /// Errors: some changes are not durable.
    fn end(self, mounted: &MountedImage) -> Result<Unmounted> {
        match self {
            Self::Gone => Err(Error::new(ErrorKind::Io, died(mounted.is_read_only))),
            Self::Silent { why, only_reads } => {
                let lives_on = mounted.lives_on()?;
                if !lives_on {
                    wait_until_closed(&mounted.image)?;
                }
                // The server wrote nothing.
                match (only_reads, lives_on) {
                    (true, false) => return Ok(Unmounted::Closed),
                    (true, true) => return Ok(place_left(mounted.another()?)),
                    (false, _) => {}
                }
                let by = mounted.mounter;
                let what = "some changes may not be durable";
                let asked = format!("{what}: its server, which user {by} started, could not be asked: {why}");
                Err(Error::new(ErrorKind::Io, asked))
            }
            Self::Speaks(watch) => match watch.end(LIVES_ON_AGAIN, || Ok(!mounted.lives_on()?))? {
                Some(End { failure: Some(failure), why, aborted, log }) => {
                    let lost = if aborted { "changes after the last commit are lost: " } else { "" };
                    let seen = log.map_or_else(String::new, |log| format!(" (the log is {log})"));
                    Err(Error::new(why.kind(), format!("{lost}{failure}{seen}")))
                }
                Some(End { failure: None, .. }) => Ok(Unmounted::Closed),
                None => stays(mounted),
            },
        }
    }
}

/// Makes all changes durable if the same mount is still at another place.
/// Errors: some changes are not durable.
fn stays(mounted: &MountedImage) -> Result<Unmounted> {
    let other = mounted.another()?;
    if let Some(other) = &other {
        let point = other.point.display();
        if other.is_of_a_directory() == Some(false) {
            let what = format!(
                "still mounted at {point}, a file, through which no sync is possible: the changes of the last seconds are durable after its next \
                 commit"
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

/// The place of a mount that lives on.
fn place_left(other: Option<MountedImage>) -> Unmounted {
    other.map_or(Unmounted::StillElsewhere, |other| Unmounted::StillAt(other.point))
}

/// A message about changes on a mount whose server died. The mount table shows its current flags, and not those of the mount call.
const fn died(is_read_only: bool) -> &'static str {
    if is_read_only {
        "its server had died: nothing is lost if it was read-only from the start, or since creamery mount -o remount,ro; \
         if it was made read-only in another way, uncommitted changes are lost"
    } else {
        "its server had died, and uncommitted changes are lost"
    }
}

fn detach(mounted: &MountedImage, (there, number): (&PinnedPoint, MountNumber), how: How) -> Result<()> {
    let unmount = || match rustix::process::geteuid().is_root() {
        true => there.unmount(number, if how == How::Lazy { Unmount::Lazy } else { Unmount::WhenIdle }),
        false => run_helper(&mounted.point, how),
    };
    // A process that lists mounts (`creamery mounts`) holds each mount for a moment.
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

/// Whether a process or mount visibly keeps a mount in use, and not only for a moment.
fn has_users(mounted: &MountedImage) -> bool {
    shown_below(mounted.id).is_ok_and(|below| below.is_some())
        || users_of(mounted).iter().any(|user| !user.only_looks())
}

/// The error of a mount in use, with its users.
fn in_use(mounted: &MountedImage) -> Error {
    let what = match shown_below(mounted.id) {
        Ok(Some(below)) => {
            format!("other mounts lie below it: {below} (-l detaches it and these)")
        }
        Ok(None) | Err(_) => match shown(&users_of(mounted)) {
            Some(users) => format!("{users} (-l detaches it anyway)"),
            None => "it has open files or is a working directory (-l detaches it anyway)".to_owned(),
        },
    };
    Error::new(ErrorKind::Busy, what)
}

/// Unmounts the mount at `point`, as an ordinary user.
fn run_helper(point: &Path, how: How) -> Result<()> {
    let mut command = Command::new("fusermount3");
    command.arg("-u").args((how == How::Lazy).then_some("-z")).arg("--").arg(point);
    let output = command.output().map_err(|error| Error::from(error).context("running fusermount3"))?;
    if output.status.success() {
        return Ok(());
    }
    // It fails for two reasons: the mount is in use, or it belongs to another user.
    let said = String::from_utf8_lossy(&output.stderr);
    let kind = if said.contains("busy") { ErrorKind::Busy } else { ErrorKind::PermissionDenied };
    Err(Error::new(kind, said.trim().to_owned()))
}

/// Waits for a server that does not answer: it has the image's lock until everything is durable. But other processes that may read the image can
/// hold the lock too, so the wait is limited. A process that mounts the image meanwhile gets the lock right after the server; then this
/// call does not wait for it.
/// Errors: the image is still locked.
fn wait_until_closed(image: &Path) -> Result<()> {
    let begun = Instant::now();
    while let Err(error) = FileDevice::open(image, Access::ReadOnly) {
        if error.kind() != ErrorKind::Busy || is_mounted(image) {
            break; // gone, or not accessible for this user: nothing to wait for
        }
        if begun.elapsed() > SILENT_MAX {
            return Err(error.context("the image may not be closed and durable yet"));
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    Ok(())
}
