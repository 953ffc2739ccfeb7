//! Lists the mounted images, from the mount table and from the server of each mount.
//!
//! A separate thread asks each server, because the list is used to find servers that hang.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Instant;

use creamery_base::{Error, ErrorKind, Result};
use creamery_device::ImageName;

use crate::control::{is_of_a_dead_server, says_dead};
use crate::facts::LiveFacts;
use crate::subvolumes::Live;
use crate::table::{ANSWER_MAX, MountedImage, held_at, is_point, mounted_at, ours, ours_of, point_of};

/// The state of the server of a mount.
///
/// ```
/// use creamery_mount::{LiveFacts, ServerState};
/// assert_ne!(ServerState::Dead, ServerState::Answers(LiveFacts::default()));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ServerState {
    /// The server answers.
    Answers(LiveFacts),
    /// The server died, and the mount is left.
    Dead,
    /// The server only answers its mounter.
    Refuses,
    /// Another mount lies over this one.
    Hidden,
    /// The server did not answer in time, or has another version.
    Silent,
}

/// A mount of an image.
///
/// ```no_run
/// for mount in creamery_mount::live_mounts()? {
///     println!("{} at {}", mount.image.display(), mount.point.display());
/// }
/// # Ok::<(), creamery_base::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LiveMount {
    /// The image file or block device, unless the mounter has set another name (`fsname=`).
    pub image: PathBuf,
    /// The mount point.
    pub point: PathBuf,
    /// The user number of the mounter.
    pub mounter: u32,
    /// Whether the mount is read-only.
    pub is_read_only: bool,
    /// The state of its server.
    pub server: ServerState,
}

/// Lists the mounts of images that this process sees, in the order in which they were made. A mount with another type in the mount
/// table (`subtype=`) is not listed.
///
/// # Errors
/// When the mount table cannot be read.
pub fn live_mounts() -> Result<Vec<LiveMount>> {
    let asked: Vec<_> = ours()?
        .into_iter()
        .map(|(mounted, is_read_only)| {
            let (answer, answers) = mpsc::channel();
            let asked = mounted.clone();
            // A thread that waits for a hanging server ends with the server, or with the process.
            std::thread::spawn(move || {
                let _ = answer.send(ask(&asked)); // the receiver may have given up
            });
            (mounted, is_read_only, answers)
        })
        .collect();
    let begun = Instant::now();
    let mount = |(mounted, is_read_only, answers): (MountedImage, bool, mpsc::Receiver<_>)| {
        let left = ANSWER_MAX.saturating_sub(begun.elapsed());
        let server = answers.recv_timeout(left).unwrap_or(ServerState::Silent);
        LiveMount {
            image: mounted.image,
            point: mounted.point,
            mounter: mounted.mounter,
            is_read_only,
            server,
        }
    };
    Ok(asked.into_iter().map(mount).collect())
}

fn ask(mounted: &MountedImage) -> ServerState {
    if !mounted.is_reached() {
        return ServerState::Hidden;
    }
    match Live::at(&mounted.point).and_then(|live| live.map(|live| live.facts()).transpose()) {
        Ok(Some(facts)) => ServerState::Answers(facts),
        Ok(None) => ServerState::Silent,
        Err(error) if is_of_a_dead_server(&error) => ServerState::Dead,
        Err(error) if error.kind() == ErrorKind::PermissionDenied => ServerState::Refuses,
        Err(_) => ServerState::Silent,
    }
}

/// Whether the directory `dir` is the mount of a server that has died.
#[must_use]
pub fn is_dead(dir: &Path) -> bool {
    let held = held_at(dir).map(|(_, _, held)| held);
    held.is_ok_and(|held| held.ask().is_err_and(|error| says_dead(&error)))
}

/// Returns the mount point of `image`, if a server of ours has mounted it; the first of several. `None` if it is not mounted, not visible, or hidden
/// by another mount.
///
/// ```
/// assert_eq!(creamery_mount::mount_point_of("no-such.img".as_ref())?, None);
/// # Ok::<(), creamery_base::Error>(())
/// ```
///
/// # Errors
/// When the mount table cannot be read.
pub fn mount_point_of(image: &Path) -> Result<Option<PathBuf>> {
    Ok(ours_of(image)?.into_iter().find(MountedImage::is_reached).map(|mounted| mounted.point))
}

/// Returns the image that is mounted at the directory `dir`; `None` if that is not a mount of ours.
///
/// ```
/// assert_eq!(creamery_mount::image_at("/proc".as_ref()), None);
/// ```
#[must_use]
pub fn image_at(dir: &Path) -> Option<PathBuf> {
    let (point, _) = point_of(dir).ok().flatten()?;
    mounted_at(&point).ok().map(|mounted| mounted.image)
}

/// The mount point for `place`: `place` itself, or the mount point of the image of that name.
///
/// # Errors
/// The image is not mounted, or at several places, or hidden by another mount; the mount table cannot be read.
pub(crate) fn point_named(place: &Path) -> Result<PathBuf> {
    // The directory itself is not examined: its server may hang.
    if is_point(place)? || ImageName::metadata(place).is_ok_and(|meta| meta.is_dir()) {
        return Ok(place.to_owned());
    }
    let mounts = ours_of(place)?;
    // The image may be removed since. A name that does not exist and is in no row counts as a directory.
    if mounts.is_empty() && ImageName::metadata(place).is_err() {
        return Ok(place.to_owned());
    }
    let (mounts, hidden): (Vec<_>, Vec<_>) = mounts.into_iter().partition(MountedImage::is_reached);
    if let ([], [hidden, ..]) = (&mounts[..], &hidden[..]) {
        return Err(hidden.hidden());
    }
    let mut points: Vec<PathBuf> = mounts.into_iter().map(|mounted| mounted.point).collect();
    points.dedup();
    match &points[..] {
        [] => Err(Error::invalid(format!("{}: no mount of this image is visible", place.display()))
            .advise("`creamery mounts` lists all mounts")),
        [point] => Ok(point.clone()),
        _ => {
            let all: Vec<_> = points.iter().map(|point| point.display().to_string()).collect();
            let what = format!("{} is mounted at several places: {}", place.display(), all.join(", "));
            Err(Error::invalid(what).advise("name one of them"))
        }
    }
}
